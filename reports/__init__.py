"""Reads outcomes, thinks and draws."""
