"""Calls of PEFT's utilities for adapted models: states of the base, choices of targets, dtypes, signatures."""
