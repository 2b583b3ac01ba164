"""Calls of the functions that models are made of: activations and losses."""
