"""Finds the set that a night compares with, and the results of it that still count."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from matrix.errors import UserError
from matrix.keys import SetKey
from matrix.nightly.candidates import NIGHTLY
from matrix.versions import locks
from matrix.versions import sets as known_sets
from matrix.versions.locks import Lock
from matrix.versions.sets import VersionSet
from reports.answers.diff.sides import BASELINE
from reports.answers.support.set_locks import LAID_OVER, lock_text
from reports.results import document as data
from reports.results.loading import load

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from matrix.run import store
    from matrix.run.outcome import Outcome, SetRecord


@dataclass(frozen=True, kw_only=True)
class BaseSet:
    """The base set's lock, and its accepted outcomes; ``source`` says in words where it is from."""

    lock: Lock
    source: str
    outcomes: tuple[Outcome, ...] = ()


def find(baselines: Path, device: str, *, key: str = "", versions: Path = known_sets.PACKAGED) -> BaseSet:
    """Return the set of the accepted baseline, or the newest packaged set if no baseline was accepted.

    Args:
        baselines: the folder of baselines.
        device: ``cpu`` or ``cuda``.
        key: a set, if the baseline or the packaged file has several; by default its newest dated one.
        versions: the file of packaged sets.

    Raises:
        UserError: there is no such set, it has no lock, or the baseline cannot be read.
    """
    folder, known = baselines / device, known_sets.load(versions)
    if data.locate(folder) is None:
        chosen = known_sets.select(known, key or "newest")
        if not chosen:
            raise UserError(f"{versions}: has no default set to compare with; name one with --base")
        lock = locks.read(chosen[0], folder=locks.locks_folder(versions))
        if lock is None:
            raise UserError(f"{chosen[0].key} has no lock; resolve it with `ftmatrix sets lock {chosen[0].key}`")
        return BaseSet(lock=lock, source=f"{chosen[0].key}, as no baseline of {device} was accepted yet")
    results = load(folder)
    column = chosen_column(results.sets, key, folder)
    text = lock_text(column, known, folder)
    if text.startswith(LAID_OVER):
        raise UserError(f"{folder}: {column.key} was measured over a host's torch, so nothing can be installed like it")
    return BaseSet(
        lock=Lock(version_set=version_set(column, known), text=text),
        source=f"{column.key} of the accepted baseline {folder}, as of {column.as_of}",
        outcomes=tuple(
            each.model_copy(update={"set": base_key(column)}) for each in results.outcomes if each.set == column.key
        ),
    )


def base_key(column: SetRecord) -> str:
    """The key of the base set; that of a night's set would be the key of a candidate as well."""
    return BASELINE if SetKey.parse(column.key).slice == NIGHTLY else column.key


def chosen_column(sets: Iterable[SetRecord], key: str, folder: Path) -> SetRecord:
    """Return the named set, or the newest dated one."""
    by_key = {each.key: each for each in sets if each.lock}
    if key:
        if key not in by_key:
            raise UserError(f"--base {key}: {folder} has {', '.join(by_key) or 'no set with a lock'}")
        return by_key[key]
    if not by_key:
        raise UserError(f"{folder} has no set with a lock; accept another run with `ftmatrix baseline accept RUN`")
    return max(by_key.values(), key=lambda each: (SetKey.parse(each.key).is_slice, each.as_of))


def version_set(column: SetRecord, known: Iterable[VersionSet]) -> VersionSet:
    """Return a stored set.

    Results do not keep the requirements that its packages fail to declare; they are those of the packaged set, or of
    the newest one.
    """
    table = {each.key: each for each in known}
    like = table.get(column.key) or next(iter(known_sets.newest(table.values())), None)
    return VersionSet(
        key=base_key(column),
        python=column.python,
        as_of=date.fromisoformat(column.as_of),
        pins=column.pins,
        why=column.why,
        extras=like.extras if like else {},
    )


def take_over(base: BaseSet, opened: store.Store) -> None:
    """Put accepted outcomes of the base set into a run of it, so that cells that still count do not run again."""
    known = {(each.case, each.repeat) for each in opened.outcomes}
    for each in base.outcomes:
        if (each.case, each.repeat) not in known:
            opened.append(each.model_copy(update={"evidence": {}}))
