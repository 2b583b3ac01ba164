"""Finds the lock that a set was measured with: the packaged one, or one that a run on a host's torch kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from matrix.errors import UserError
from matrix.versions import locks
from matrix.versions import sets as known_sets
from reports.answers.knowledge import PUBLISHED

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matrix.run.outcome import SetRecord
    from matrix.versions.sets import VersionSet

LAID_OVER: Final = (
    "# Measured over the packages of a host: the lines without hashes are the host's, torch among them. Install the\n"
    "# others over them, with `uv pip install --no-deps`.\n"
)


def lock_text(column: SetRecord, sets: Sequence[VersionSet] | None = None, folder: Path = PUBLISHED) -> str:
    """Return the requirements that the set was measured with: hash-locked, except packages of a host.

    Raises:
        UserError: this installation has no lock of the set, or a different one.
    """
    kept = kept_lock(column, folder)
    if kept:
        is_of_host = any("--hash" not in line for line in locks.statements(kept))
        return f"{LAID_OVER}{kept}" if is_of_host else kept
    known = {each.key: each for each in (known_sets.load() if sets is None else sets)}
    lock = locks.read(known[column.key]) if column.key in known else None
    if lock is None:
        raise UserError(f"this installation has no lock of {column.key}; `ftmatrix sets` lists the sets that have one")
    if column.lock and lock.digest != column.lock:
        raise UserError(
            f"this installation has lock {lock.digest} of {column.key}, but the results used {column.lock}; "
            f"use the ftmatrix version that measured it, or measure again: ftmatrix run --sets {column.key}"
        )
    return lock.text


def kept_lock(column: SetRecord, folder: Path) -> str:
    """Return the lock of a packed set that a run kept beside its results; empty if there is none with its digest."""
    for path in sorted(folder.rglob(f"locks/{column.key}.txt")):
        text = path.read_text(encoding="utf-8")
        if locks.digest_of(column.python, text) == column.lock:
            return text
    return ""
