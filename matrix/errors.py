"""The one exception that reaches a user."""

from __future__ import annotations


class UserError(Exception):
    """Bad input: one sentence that says what is wrong, then what to do. The command exits with 2."""
