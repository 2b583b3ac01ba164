"""Calls about what TRL's trainers make of rows: templates, truncation, padding, evaluation sets, and statistics."""
