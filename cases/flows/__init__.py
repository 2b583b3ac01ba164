"""The flows of a case: train, save and reload, resume, merge, generate, run a command."""
