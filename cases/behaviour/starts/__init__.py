"""The start values of adapters, compared with their papers."""
