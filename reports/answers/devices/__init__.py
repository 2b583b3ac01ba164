"""Compares CPU and GPU results: the same case on both, on the nearest version sets."""
