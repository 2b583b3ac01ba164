"""Weights and products in 8-bit floating-point numbers, and torchao's weights: FP8 checkpoints, adapters, training."""
