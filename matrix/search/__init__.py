"""The search for the nearest green cell of a red one."""
