"""A map of the API between the packages: which release has which name, and which release uses it.

``build`` reads the releases' wheels without importing them, ``query`` answers from the stored map.
"""
