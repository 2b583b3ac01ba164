"""Calls of utilities and rarer methods of PEFT: states of the base, choices of targets, dtypes, signatures, tasks."""
