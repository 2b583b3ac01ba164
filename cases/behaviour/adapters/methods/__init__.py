"""Calls about adapters of every method: merged, dropped out, saved, and put on chosen layers."""
