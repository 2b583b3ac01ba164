"""Probes: what a version or a machine lacks, found by trying."""
