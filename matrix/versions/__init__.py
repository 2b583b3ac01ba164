"""Version sets, their locks, and uv."""
