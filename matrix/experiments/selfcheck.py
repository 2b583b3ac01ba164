"""Injects faults into a working stack to measure how many the checks catch, and how many false alarms they raise.

The harness injects a fault only into cells that were green in both clean passes. A fault is caught if every cell with
it is wrong because a check was missed. An error does not count unless the stack may notice the fault itself: a patch
that raises shows nothing about our checks.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from cases.injection.fault_suite import CASES as INJECTED
from cases.injection.faults import FAULTS
from cases.space.verdict import RED, Verdict
from matrix.run import location, store
from matrix.run import request as run_request
from matrix.run.execute import Suite

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from pathlib import Path

    from cases.injection.fault_suite import FaultyCase
    from matrix.run.outcome import Outcome
    from matrix.run.progress import Progress
    from matrix.run.request import RunRequest
    from matrix.run.timings import Work

PASSES: Final = 2  # of the clean stack: an alarm in the second one is false
RAN: Final = RED | {Verdict.PASS}


@dataclass(frozen=True, kw_only=True)
class InjectedCell:
    """A cell with a fault. ``caught_by`` are the checks that were missed, or the error."""

    case: str
    verdict: str
    caught: bool
    caught_by: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class InjectedFault:
    name: str
    what: str
    cells: tuple[InjectedCell, ...]

    @property
    def caught(self) -> bool:
        return all(cell.caught for cell in self.cells)


@dataclass(frozen=True, kw_only=True)
class LocatedFault:
    """A located cell with a fault: the kind and the module that it names first, and the pattern of the right ones."""

    case: str
    named: str
    expected: str

    @property
    def is_right(self) -> bool:
        return fnmatchcase(self.named, self.expected)


@dataclass(frozen=True, kw_only=True)
class FaultResults:
    """The results of one version set. ``not_injected`` are faults none of whose cases is green there."""

    set: str
    faults: tuple[InjectedFault, ...]
    not_injected: tuple[str, ...]
    clean_cells: int  # of the second clean pass, that ran
    false_alarms: tuple[str, ...]  # cells whose two clean verdicts differ, one of them red
    silent_errors: tuple[str, ...]  # cells wrong in both clean passes: a finding about the stack, or an error of ours
    lost: tuple[str, ...] = ()  # cells with a fault that did not run; they do not count
    located: tuple[LocatedFault, ...] = ()  # with ``--locate``, wrong cells whose fault says what it changes

    @property
    def injected(self) -> int:
        return len(self.faults)

    @property
    def caught(self) -> int:
        return sum(each.caught for each in self.faults)

    def as_json(self) -> dict[str, Any]:
        faults = [{**asdict(each), "caught": each.caught} for each in self.faults]
        cells = [cell for each in self.faults for cell in each.cells]
        return {
            **asdict(self),
            "injected": self.injected,
            "caught": self.caught,
            "injected_cells": len(cells),
            "caught_cells": sum(cell.caught for cell in cells),
            "faults": faults,
            "false_alarms": len(self.false_alarms),
            "false_alarm_cells": self.false_alarms,
        }


def run(
    request: RunRequest,
    *,
    directory: Path,
    watcher: Callable[[int], Progress],
    say: Callable[[str], None],
    only: Collection[str] = (),
) -> tuple[FaultResults, ...]:
    """Run two clean passes and one with faults on each set of the request; outcomes stay in ``directory``.

    With ``resume`` in the request, an earlier selfcheck in the directory continues. ``only`` names faults; then no
    other fault is injected, and the clean passes have the cells of these faults alone.

    Raises:
        UserError: bad input.
    """
    clean = replace(request, out=directory / "clean", repeats=PASSES, cold_sample=0, locate=location.NONE)
    chosen = tuple(case for case in INJECTED.values() if not only or case.fault in only)
    needed = {case.clean: request.suite.cases[case.clean] for case in chosen}
    cases = tuple({**({} if only else {case.id: case for case in request.cases()}), **needed}.values())
    whole = [(each, cases) for each in request.version_sets()]
    run_request.run(clean, work=whole, watcher=watcher(len(whole) * len(cases) * PASSES), say=say)
    _, _, outcomes = store.read(directory / "clean")
    work = injected_work(clean, green(outcomes), chosen)
    out = faults_folder(directory)
    with_faults = replace(clean, out=out, profile="", repeats=1, suite=Suite(module="cases.injection.fault_suite"))
    with_faults = replace(with_faults, locate=request.locate)
    with_faults = replace(with_faults, resume=request.resume and (out / store.RUN).exists())
    run_request.run(with_faults, work=work, watcher=watcher(sum(len(cases) for _, cases in work)), say=say)
    _, _, injected = store.read(out)
    keys = [each.key for each in request.version_sets()]
    return tuple(of_set(key, of(key, outcomes), of(key, injected), chosen) for key in keys)


def faults_folder(directory: Path) -> Path:
    """The folder of the run with faults; earlier versions called it ``planted``."""
    former = directory / "planted"
    return former if former.exists() else directory / "injected"


def injected_work(request: RunRequest, healthy: set[tuple[str, str]], chosen: Sequence[FaultyCase]) -> Work:
    return [
        (each, tuple(case for case in chosen if (each.key, case.clean) in healthy)) for each in request.version_sets()
    ]


def green(outcomes: Iterable[Outcome]) -> set[tuple[str, str]]:
    """(set, case) of the cells that passed in every pass."""
    verdicts = [(each.set, each.case, each.verdict) for each in outcomes]
    red = {(key, case) for key, case, verdict in verdicts if verdict is not Verdict.PASS}
    return {(key, case) for key, case, _ in verdicts} - red


def of(key: str, outcomes: Iterable[Outcome]) -> list[Outcome]:
    return [each for each in outcomes if each.set == key]


def of_set(
    key: str, clean: Sequence[Outcome], injected: Sequence[Outcome], chosen: Sequence[FaultyCase] = ()
) -> FaultResults:
    """The results of one set for all faults, or for the ``chosen`` ones."""
    first = {each.case: each.verdict for each in clean if each.repeat == 1}
    again = {each.case: each.verdict for each in clean if each.repeat > 1 and each.verdict in RAN}
    both = {case: (first[case], verdict) for case, verdict in again.items() if first.get(case) in RAN}
    names = dict.fromkeys(case.fault for case in chosen or INJECTED.values())
    outcomes = {each.case: each for each in injected}
    faults = tuple(result for name in names for result in [fault(name, outcomes)] if result.cells)
    return FaultResults(
        set=key,
        faults=faults,
        not_injected=tuple(name for name in names if name not in {each.name for each in faults}),
        clean_cells=len(again),
        false_alarms=tuple(case for case, (one, other) in both.items() if one is not other),
        silent_errors=tuple(case for case, (one, other) in both.items() if one is other is Verdict.WRONG),
        lost=tuple(each.case for each in injected if each.verdict not in RAN),
        located=tuple(located for each in outcomes.values() if (located := located_fault(each))),
    )


def located_fault(outcome: Outcome) -> LocatedFault | None:
    """What a location names first; None for a cell that was not located, or whose fault has no expected location."""
    expected = FAULTS[INJECTED[outcome.case].fault].located
    if outcome.location is None or not expected:
        return None
    named = next((f"{each.kind} {each.module}" for each in outcome.location.beginnings), "nothing")
    return LocatedFault(case=outcome.case, named=named, expected=expected)


def fault(name: str, outcomes: dict[str, Outcome]) -> InjectedFault:
    cases = [case for case in INJECTED.values() if case.fault == name]
    cells = tuple(
        cell(case.clean, outcomes[case.id])
        for case in cases
        if case.id in outcomes and outcomes[case.id].verdict in RAN
    )
    return InjectedFault(name=name, what=cases[0].why, cells=cells)


def cell(case: str, outcome: Outcome) -> InjectedCell:
    missed = tuple(check.name for check in outcome.checks if not check.ok)
    error = () if outcome.error is None else (f"{outcome.error.type}: {first_line(outcome.error.message)}",)
    loud = FAULTS[INJECTED[outcome.case].fault].loud
    caught = outcome.verdict is Verdict.WRONG or (loud and outcome.verdict in RED)
    return InjectedCell(case=case, verdict=outcome.verdict.value, caught=caught, caught_by=missed or error)


def first_line(message: str) -> str:
    """The first line of an error's message, which may be empty."""
    return message.partition("\n")[0][:120]
