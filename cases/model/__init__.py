"""Tiny random models, their adapters and their checkpoints."""
