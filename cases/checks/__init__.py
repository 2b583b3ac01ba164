"""Evidence that each option took effect, and what each rank holds."""
