"""Chooses what a night measures: the sets of new releases, and the cells that fit into its time."""
