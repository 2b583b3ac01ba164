"""The import matrix: imports combinations of releases for real, and compares them with what the map predicts."""
