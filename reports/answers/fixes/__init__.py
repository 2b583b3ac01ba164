"""Finds the fixes that runs proved."""
