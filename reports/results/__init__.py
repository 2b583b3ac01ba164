"""Measured results as values: the grid, documents, comparisons."""
