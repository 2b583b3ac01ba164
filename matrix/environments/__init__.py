"""Environments: made, reused, shared between runs, and evicted."""
