"""Answers about releases of two packages together: if they import, from the import matrix and the map of the API."""
