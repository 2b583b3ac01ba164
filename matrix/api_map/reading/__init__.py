"""Reads releases from wheels without importing them."""
