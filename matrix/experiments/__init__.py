"""Measurements of the harness itself: benchmarks, selfcheck, crash injection."""
