"""Commands for hosts without a package index."""
