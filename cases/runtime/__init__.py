"""Processes, GPUs and supervision of the ranks. Standard library only."""
