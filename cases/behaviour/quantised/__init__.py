"""Quantised layers and the states of optimisers in 8 bits, layer by layer."""
