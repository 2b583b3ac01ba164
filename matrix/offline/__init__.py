"""Hosts without an index: packs of wheels, and overlays on a torch that must stay."""
