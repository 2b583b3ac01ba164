"""Runs inside a version environment: the only code that uses torch. Imports the standard library only."""
