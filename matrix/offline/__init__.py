"""Runs without a package index: packs of wheels, and overlays on a host's torch."""
