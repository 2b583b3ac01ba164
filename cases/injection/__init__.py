"""Faults, crashes and hangs to inject into a working stack."""
