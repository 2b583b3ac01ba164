"""The values of options as a user writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cases.space.options import OPEN, IllegalError, listed, values

if TYPE_CHECKING:
    from cases.space.options import Value

ALIASES = {
    "False": False,
    "false": False,
    "off": False,
    "no": False,
    "True": True,
    "true": True,
    "on": True,
    "yes": True,
}


def parsed(name: str, text: str) -> Value:
    """The value that a user wrote as text, e.g. ``parsed("world_size", "2") == 2``.

    Raises:
        IllegalError: the option has no such value.
    """
    known = values(name)
    if name in OPEN:
        return text
    for value in known:
        if str(value) == text or (isinstance(value, bool) and ALIASES.get(text) is value):
            return value
    raise IllegalError(f"option {name!r} has no value {text!r}; choose from {listed(known)}")
