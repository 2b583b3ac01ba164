"""Diagnoses failed cells and pasted logs."""
