"""Packages that ``--with`` lays over version sets: git commits, local checkouts, wheels and releases."""
