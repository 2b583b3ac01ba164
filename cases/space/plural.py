"""Words that depend on a number."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number and its noun, e.g. ``1 cell`` or ``2 cells``; ``plural`` is the noun's plural if it is irregular."""
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"
