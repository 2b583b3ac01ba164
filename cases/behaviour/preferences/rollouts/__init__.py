"""Calls about what GRPOTrainer and RLOOTrainer generate, when, in which order, and what they log of it."""
