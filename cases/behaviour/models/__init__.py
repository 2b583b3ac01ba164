"""Models, their losses and their heads, compared with the reference implementations."""
