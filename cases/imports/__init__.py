"""Imports the stack in many combinations of versions, each in a fork of a process that imported torch once."""
