"""Known problems, upstream's and our own findings, as published runs showed them on some version sets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from matrix import known as tables
from reports import known
from reports.answers import knowledge
from reports.answers.knowledge import PUBLISHED
from reports.known import Standing

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from datetime import datetime
    from pathlib import Path

    from matrix.known import Problem
    from reports.known import Judged, Shown

TABLES: Final = {"known": tables.PACKAGED, "findings": tables.FINDINGS}  # folder of the published run -> its rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Met:
    """A problem that was reproduced on some of the sets, and what was green there beside it.

    ``red`` and ``green``: the sets, by case.
    """

    problem: Problem
    red: Mapping[str, tuple[str, ...]]
    green: Mapping[str, tuple[str, ...]]
    hardware: str
    measured: datetime


def met(sets: Collection[str], *, device: str, folder: Path = PUBLISHED) -> tuple[Met, ...]:
    """What was reproduced on these sets, those that raise nothing first.

    Raises:
        UserError: a published document or a table cannot be read.
    """
    found = [each for name, rows in TABLES.items() for each in reproduced(folder / name, rows, sets, device)]
    return tuple(sorted(found, key=lambda each: not each.problem.silent))


def reproduced(folder: Path, rows: Path, sets: Collection[str], device: str) -> Iterator[Met]:
    documents = [each for each in knowledge.documents(folder) if each.device == device]
    if not documents:
        return
    matrix = knowledge.load(folder, device=device)
    for judged in known.judged(tables.load(rows), matrix):
        here = on(judged, sets)
        if known.standing(here.problem, here.red, here.green) is Standing.REPRODUCED:
            yield Met(
                problem=judged.problem,
                red=by_case(here.red),
                green=by_case(here.green),
                hardware=documents[0].hardware,
                measured=documents[0].run.started,
            )


def on(judged: Judged, sets: Collection[str]) -> Judged:
    return replace(
        judged,
        red=tuple(each for each in judged.red if each.set in sets),
        green=tuple(each for each in judged.green if each.set in sets),
    )


def by_case(cells: Iterable[Shown]) -> Mapping[str, tuple[str, ...]]:
    """The sets on which the cells of a case are as the table says."""
    found: dict[str, list[str]] = {}
    for each in cells:
        if each.as_said:
            found.setdefault(each.case, []).append(each.set)
    return {case: tuple(sets) for case, sets in found.items()}
