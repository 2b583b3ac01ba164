"""Decides what to run and runs it: version sets, locks, environments, cells, outcomes."""
