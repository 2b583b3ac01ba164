"""Keeps the version sets of a night in its run directory: ``versions.toml`` and their locks.

A night that was interrupted goes on with the sets that it began with, even if the index has more since.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import tomlkit

from matrix.versions import locks, sets
from matrix.versions.locks import Lock

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from matrix.nightly.candidates import CandidateSet
    from matrix.versions.sets import VersionSet

NIGHT_SETS: Final = "versions.toml"


def store(directory: Path, base: Lock, candidates: Iterable[CandidateSet]) -> tuple[VersionSet, ...]:
    """Write the base set and the candidates, with their locks; return all sets, the base first.

    A candidate without a lock is kept: its resolution fails again when it is measured, and its cells are blocked.

    Raises:
        UserError: the directory cannot be written.
    """
    found = tuple(candidates)
    every = (base.version_set, *(each.version_set for each in found))
    made = [base, *(each.lock for each in found if isinstance(each.lock, Lock))]
    path = directory / NIGHT_SETS
    for lock in made:
        locks.write(lock, folder=locks.locks_folder(path))
    document = tomlkit.document()
    tables = tomlkit.table(is_super_table=True)
    for each in every:
        tables[each.key] = sets.as_table(each)
    document["sets"] = tables
    sets.save(document, path)
    return every


def stored(directory: Path) -> tuple[VersionSet, ...]:
    """Return the sets of a night that began before, the base first; none if it is new.

    Raises:
        UserError: the file cannot be read.
    """
    path = directory / NIGHT_SETS
    return sets.load(path) if path.exists() else ()
