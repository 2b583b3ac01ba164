"""Checks a user's own code and configuration against the map of the API."""
