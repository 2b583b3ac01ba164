"""The stack as a user calls it: load, adapt, wrap, step, save."""
