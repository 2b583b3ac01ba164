"""Adapters in use: switching, combining, merging, saving and exchanging them."""
