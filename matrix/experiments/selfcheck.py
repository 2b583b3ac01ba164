"""Measures the harness's own sensitivity: faults planted in a working stack, and what a clean repeat says wrongly.

A fault is planted only in cells that were green in both clean passes: in another, there would be nothing to see. It is
caught if every cell that it was planted in came out wrong, by a check that was missed. An error does not count, unless
the fault is one that the stack may notice itself: a patch that raises shows nothing of our checks.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from cases.injection.fault_suite import CASES as PLANTED
from cases.injection.faults import FAULTS
from cases.space.verdict import RED, Verdict
from matrix.run import request as asking
from matrix.run import store
from matrix.run.execute import Suite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from matrix.run.outcome import Outcome
    from matrix.run.pipeline import Work
    from matrix.run.progress import Progress
    from matrix.run.request import Asked

PASSES: Final = 2  # of the clean stack: the second is the repeat in which an alarm would be false
RAN: Final = RED | {Verdict.PASS}


@dataclass(frozen=True, kw_only=True)
class PlantedCell:
    """``caught_by`` are the checks that were missed, or the error."""

    case: str
    verdict: str
    caught: bool
    caught_by: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class PlantedFault:
    name: str
    what: str
    cells: tuple[PlantedCell, ...]

    @property
    def caught(self) -> bool:
        return all(cell.caught for cell in self.cells)


@dataclass(frozen=True, kw_only=True)
class OfSet:
    """One version set. ``not_planted`` are faults none of whose cases is green there."""

    set: str
    faults: tuple[PlantedFault, ...]
    not_planted: tuple[str, ...]
    clean_cells: int  # of the repeat, that ran
    false_alarms: tuple[str, ...]  # another verdict in the repeat than in the first pass, one of the two red
    silent_errors: tuple[str, ...]  # wrong in both passes: a finding about the stack, or an error of ours
    lost: tuple[str, ...] = ()  # planted cells that did not run: they count for nothing

    @property
    def planted(self) -> int:
        return len(self.faults)

    @property
    def caught(self) -> int:
        return sum(each.caught for each in self.faults)

    def as_json(self) -> dict[str, Any]:
        faults = [{**asdict(each), "caught": each.caught} for each in self.faults]
        cells = [cell for each in self.faults for cell in each.cells]
        return {
            **asdict(self),
            "planted": self.planted,
            "caught": self.caught,
            "planted_cells": len(cells),
            "caught_cells": sum(cell.caught for cell in cells),
            "faults": faults,
            "false_alarms": len(self.false_alarms),
            "false_alarm_cells": self.false_alarms,
        }


def run(
    asked: Asked, *, directory: Path, watcher: Callable[[int], Progress], say: Callable[[str], None]
) -> tuple[OfSet, ...]:
    """Two clean passes and one with faults, on each set that was asked for; outcomes stay in ``directory``.

    With ``asked.resume``, what an earlier one left there is gone on with.

    Raises:
        UserError: bad input.
    """
    clean = replace(asked, out=directory / "clean", repeats=PASSES, cold_sample=0)
    needed = {case.clean: asked.suite.cases[case.clean] for case in PLANTED.values()}
    cases = tuple({**{case.id: case for case in asked.cases()}, **needed}.values())
    whole = [(each, cases) for each in asked.version_sets()]
    asking.run(clean, work=whole, watcher=watcher(len(whole) * len(cases) * PASSES), say=say)
    _, _, outcomes = store.read(directory / "clean")
    work = planted_work(clean, green(outcomes))
    begun = asked.resume and (directory / "planted" / store.RUN).exists()
    faulty = replace(
        clean, out=directory / "planted", profile="", repeats=1, suite=Suite(module="cases.injection.fault_suite")
    )
    faulty = replace(faulty, resume=begun)
    asking.run(faulty, work=work, watcher=watcher(sum(len(cases) for _, cases in work)), say=say)
    _, _, planted = store.read(directory / "planted")
    keys = [each.key for each in asked.version_sets()]
    return tuple(of_set(key, of(key, outcomes), of(key, planted)) for key in keys)


def planted_work(asked: Asked, healthy: set[tuple[str, str]]) -> Work:
    return [
        (each, tuple(case for case in PLANTED.values() if (each.key, case.clean) in healthy))
        for each in asked.version_sets()
    ]


def green(outcomes: Iterable[Outcome]) -> set[tuple[str, str]]:
    """(set, case) of the cells that passed in every pass."""
    found = [(each.set, each.case, each.verdict) for each in outcomes]
    red = {(key, case) for key, case, verdict in found if verdict is not Verdict.PASS}
    return {(key, case) for key, case, _ in found} - red


def of(key: str, outcomes: Iterable[Outcome]) -> list[Outcome]:
    return [each for each in outcomes if each.set == key]


def of_set(key: str, clean: Sequence[Outcome], planted: Sequence[Outcome]) -> OfSet:
    first = {each.case: each.verdict for each in clean if each.repeat == 1}
    again = {each.case: each.verdict for each in clean if each.repeat > 1 and each.verdict in RAN}
    both = {case: (first[case], verdict) for case, verdict in again.items() if first.get(case) in RAN}
    names = dict.fromkeys(case.fault for case in PLANTED.values())
    met = {each.case: each for each in planted}
    faults = tuple(found for name in names for found in [fault(name, met)] if found.cells)
    return OfSet(
        set=key,
        faults=faults,
        not_planted=tuple(name for name in names if name not in {each.name for each in faults}),
        clean_cells=len(again),
        false_alarms=tuple(case for case, (one, other) in both.items() if one is not other),
        silent_errors=tuple(case for case, (one, other) in both.items() if one is other is Verdict.WRONG),
        lost=tuple(each.case for each in planted if each.verdict not in RAN),
    )


def fault(name: str, met: dict[str, Outcome]) -> PlantedFault:
    cases = [case for case in PLANTED.values() if case.fault == name]
    cells = tuple(cell(case.clean, met[case.id]) for case in cases if case.id in met and met[case.id].verdict in RAN)
    return PlantedFault(name=name, what=cases[0].why, cells=cells)


def cell(case: str, outcome: Outcome) -> PlantedCell:
    missed = tuple(check.name for check in outcome.checks if not check.ok)
    error = () if outcome.error is None else (f"{outcome.error.type}: {first_line(outcome.error.message)}",)
    loud = FAULTS[PLANTED[outcome.case].fault].loud
    caught = outcome.verdict is Verdict.WRONG or (loud and outcome.verdict in RED)
    return PlantedCell(case=case, verdict=outcome.verdict.value, caught=caught, caught_by=missed or error)


def first_line(message: str) -> str:
    """An error need not have a message."""
    return message.partition("\n")[0][:120]
