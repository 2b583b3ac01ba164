"""Tells people what a night found: issues, one message, a feed and badges. Nothing here measures or compares."""
