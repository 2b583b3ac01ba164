"""Optimisers and learning-rate schedules on their own, compared with their documented formulas."""
