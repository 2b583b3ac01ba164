"""Texts of the commands for a terminal."""
