"""The difference between two results: classes of cells, causes, packages that moved, numbers, and the quarantine."""
