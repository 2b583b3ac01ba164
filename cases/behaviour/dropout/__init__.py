"""Dropout masks: their rate, their place, and when they repeat."""
