"""The rows of the map."""

from __future__ import annotations

from typing import Final, NamedTuple

RENAMES: Final = frozenset({"rename", "alias"})
STILL_ACCEPTED: Final = frozenset({"alias", "accepted"})  # keywords that a function takes without stating them
NEEDS: Final = "needs"  # conditions of an export
# Rows that tell something about another row's name.
NO_DEFINITIONS: Final = RENAMES | STILL_ACCEPTED | {"returned", "asks", NEEDS}


class Name(NamedTuple):
    """A row of the map: a module (name is empty), or a name in a module, with its kind and detail."""

    module: str
    name: str
    kind: str
    detail: str


class UsedName(NamedTuple):
    """A use: the module that uses, the dotted target, its kind, and the conditions separated by semicolons."""

    module: str
    target: str
    kind: str
    conditions: str
