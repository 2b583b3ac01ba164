"""Answers users' questions from measured results; installs, runs and searches nothing."""
