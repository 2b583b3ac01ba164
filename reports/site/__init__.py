"""Writes the static site of all published results: pages, data files and scripts."""
