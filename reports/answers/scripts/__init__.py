"""A case as the code that a user writes."""
