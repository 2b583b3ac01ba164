"""What people ask of results: why is it red, what fixes it, which set, is mine sound. Reads what runs measured."""
