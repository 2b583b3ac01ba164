"""The one exception that reaches a user."""

from __future__ import annotations


class UserError(Exception):
    """Bad input: one clear sentence that says what was wrong and what would do. The command exits 2."""
