"""Answers which version sets and versions support what a user wants to run."""
