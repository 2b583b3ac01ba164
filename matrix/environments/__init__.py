"""Environments: installed from locks, verified, reused, shared between runs, and evicted."""
