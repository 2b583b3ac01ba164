"""Fixes that runs proved."""
