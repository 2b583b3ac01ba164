"""Version sets, their locks, package indexes, and uv."""
