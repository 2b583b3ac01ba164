"""Searches fixes: for a red cell the nearest green one, in the order of ``fixes.Kind``.

Both cells of a fix ran twice. The cell without any one of the changes is red, or its set cannot be resolved.
``neighbours`` lists the settings that may change. The search runs only cells without a known result, and runs cells of
one set together.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from cases.space.case import Case
from cases.space.verdict import RED, Verdict
from matrix.errors import UserError
from matrix.keys import moved_key
from matrix.run import code_digest
from matrix.search import neighbours
from matrix.search.fixes import Change, Kind
from matrix.search.moves import ORDER, distance, likely, moves
from matrix.search.target import Neighbour, advice, other_set
from matrix.versions.sets import PACKAGES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from cases.space.options import Options
    from matrix.search.fixes import Fix
    from matrix.search.neighbours import Changes
    from matrix.search.target import FixTask
    from matrix.versions.sets import VersionSet

    Verdicts = tuple[Verdict, ...]

REQUIRED_RUNS: Final = 2  # runs of a cell with equal verdicts that prove it red or green
DIRECT_MOVES: Final = 2  # number of nearest green sets that the search tries whole, at any distance
OFF_GRID: Final = "Outside the grid"  # group of cases outside the grid; stored in outcomes
SINGLES, PAIRS = "single settings", "pairs of settings"
ALTERNATIVES, ALTERNATIVES_AND_SETTING = "alternatives", "alternatives with one setting"
WAVES: Final = {
    SINGLES: 6,
    PAIRS: 18,
    ALTERNATIVES: 6,
    ALTERNATIVES_AND_SETTING: 18,
}  # candidates per wave; a wave ends with a look for green ones


class CellRunner(Protocol):
    """Runs cells and returns their results."""

    def seen(self, version_set: VersionSet, case: Case) -> Verdicts:
        """The verdict of each run of the cell on this machine and with this case code, without losses."""

    def modules(self, version_set: VersionSet, case: Case) -> str:
        """The modules of the case code that the cell's last run imported, with their digests."""

    def measure(self, version_set: VersionSet, times: Mapping[Case, int]) -> None:
        """Run each case until it has this many verdicts, unless it cannot run on this set."""

    def hint(self, version_set: VersionSet, case: Case) -> bool:
        """Return whether any result is green, those of other machines and older case code included."""

    def moved(self, base: VersionSet, pins: Mapping[str, str]) -> VersionSet:
        """The set with some packages at other versions; a set of the table if one is equal."""


@dataclass(kw_only=True)
class FixSearch:
    """Searches the fixes of several red cells at once, so that cells of one set run together.

    ``table`` has the known sets, ``cases`` the cases of the grid by id. ``advised`` has, by cell, other uses of the
    interface that a known problem recommends. ``environments`` is the number of further sets that may be installed for
    one set. ``radius`` is the number of settings that change together; an alternative counts as one.
    """

    runner: CellRunner
    tasks: Sequence[FixTask]
    table: Sequence[VersionSet]
    cases: Mapping[str, Case]
    advised: Mapping[str, Sequence[Case]] = field(default_factory=dict)
    environments: int = 6
    radius: int = neighbours.MAX_RADIUS
    kinds: frozenset[Kind] = frozenset(Kind)
    note: Callable[[tuple[Fix, ...]], object] = tuple
    spent: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))  # further sets by set
    closed: set[FixTask] = field(default_factory=set)  # not red every time, so that the search skips them
    off_grid: dict[str, Case] = field(default_factory=dict)  # cases outside the grid by id

    def run(self) -> tuple[Fix, ...]:
        """Finish every task; ``note`` gets what is decided after each wave, so that an interruption keeps it."""
        stages: tuple[tuple[Kind, int, Callable[[list[FixTask]], None]], ...] = (
            (Kind.SETTINGS, 1, self.one_setting),
            (Kind.SETTINGS, 2, self.two_settings),
            (Kind.VERSIONS, 1, self.versions),
            (Kind.ALTERNATIVE, 1, self.alternatives),
            (Kind.ALTERNATIVE, 2, self.alternatives_with_setting),
        )
        for kind, radius, stage in stages:
            for tasks in self.open_tasks() if kind in self.kinds and radius <= self.radius else ():
                stage(tasks)
        return self.fixes(self.tasks)

    def fixes(self, tasks: Iterable[FixTask]) -> tuple[Fix, ...]:
        return tuple(task.record.model_copy(update={"modules": self.modules(task)}) for task in tasks)

    def modules(self, task: FixTask) -> str:
        """The case code that the red cell and the green cell of its fix used."""
        green = [self.runner.modules(task.neighbour.to_set, task.neighbour.to_case)] if task.neighbour else []
        return code_digest.merged([self.runner.modules(task.version_set, task.case), *green])

    def open_tasks(self) -> list[list[FixTask]]:
        """The tasks without a fix, by set."""
        by_set: dict[str, list[FixTask]] = defaultdict(list)
        for task in self.unfinished(self.tasks):
            by_set[task.version_set.key].append(task)
        return list(by_set.values())

    def unfinished(self, tasks: Iterable[FixTask]) -> list[FixTask]:
        return [task for task in tasks if task.fix is None and task not in self.closed]

    # Settings and alternatives: the same set.

    def one_setting(self, tasks: list[FixTask]) -> None:
        self.reach(tasks, Kind.SETTINGS, SINGLES, lambda start: neighbours.settings(start, 1))

    def two_settings(self, tasks: list[FixTask]) -> None:
        self.reach(tasks, Kind.SETTINGS, PAIRS, lambda start: neighbours.settings(start, 2))

    def alternatives(self, tasks: list[FixTask]) -> None:
        self.reach(tasks, Kind.ALTERNATIVE, ALTERNATIVES, neighbours.alternatives)
        self.take_advice(self.unfinished(tasks))

    def alternatives_with_setting(self, tasks: list[FixTask]) -> None:
        self.reach(tasks, Kind.ALTERNATIVE, ALTERNATIVES_AND_SETTING, neighbours.alternatives_with_setting)

    def reach(
        self, tasks: list[FixTask], kind: Kind, label: str, around: Callable[[Options], Iterable[Changes]]
    ) -> None:
        """Run neighbours wave by wave, so that the search stops soon after the first green cell."""
        rest = {
            task: [each for changes in around(task.case.options) if (each := self.neighbour(task, changes))]
            for task in tasks
        }
        size = WAVES[label]
        while rest:
            self.try_candidates(kind, label, {task: candidates[:size] for task, candidates in rest.items()})
            rest = {task: rest[task][size:] for task in self.unfinished(rest) if rest[task][size:]}

    def take_advice(self, tasks: list[FixTask]) -> None:
        advised = {
            task: [advice(task, case) for case in self.advised[task.cell]]
            for task in tasks
            if task.cell in self.advised
        }
        self.try_candidates(
            Kind.ALTERNATIVE,
            "uses recommended by known problems",
            {task: uses for task, uses in advised.items() if uses},
        )

    def neighbour(self, task: FixTask, changes: Changes) -> Neighbour | None:
        """The cell with some options changed; None if the changes are illegal or have no effect."""
        start = task.case.options
        options = neighbours.moved(start, changes)
        if options is None:
            return None
        new_case = Case(OFF_GRID, f"one step from {task.case.id}", options)
        recorded = tuple(Change(name=name, old=getattr(start, name), new=new) for name, new in changes.items())
        case = self.cases.get(new_case.id) or self.off_grid.setdefault(new_case.id, new_case)
        return Neighbour(to_set=task.version_set, to_case=case, changes=recorded)

    # Versions: the same case on another set.

    def versions(self, tasks: list[FixTask]) -> None:
        """Move one package at a time towards the nearest green set; then try the nearest green sets whole."""
        targets = {task: self.green_sets(task) for task in tasks}
        one_away = {
            task: [other_set(task, each) for each in sets if len(moves(task.version_set, each)) == 1]
            for task, sets in targets.items()
        }
        self.try_candidates(Kind.VERSIONS, "", self.affordable(one_away))
        for nth in range(len(ORDER)):
            towards = {
                task: self.towards(task, likely(task.case.options)[nth], targets[task])
                for task in self.unfinished(tasks)
            }
            self.try_candidates(
                Kind.VERSIONS, "", self.affordable({task: [each] for task, each in towards.items() if each})
            )
        whole = {
            task: [other_set(task, each) for each in targets[task][:DIRECT_MOVES]] for task in self.unfinished(tasks)
        }
        self.try_candidates(Kind.VERSIONS, "", self.affordable(whole))
        for task in (each for each in tasks if each not in self.closed):
            task.notes.append(task.other_sets(each.key for each in targets[task]))

    def green_sets(self, task: FixTask) -> list[VersionSet]:
        """Sets of the table on which the case is green, the nearest first."""
        start = task.version_set
        green = [each for each in self.table if each.key != start.key and self.runner.hint(each, task.case)]
        return sorted(green, key=lambda each: distance(start, each))

    def towards(self, task: FixTask, name: str, targets: Sequence[VersionSet]) -> Neighbour | None:
        """The case with one package at the version of the nearest green set; None if it has that version already."""
        start = task.version_set
        if not targets or targets[0].pins[name] == start.pins[name]:
            return None
        return self.derived(task, {name: targets[0].pins[name]})

    def derived(self, task: FixTask, pins: Mapping[str, str]) -> Neighbour | None:
        """The case on its set with some packages at other versions; None if no index has them."""
        try:
            return other_set(task, self.runner.moved(task.version_set, pins))
        except UserError:
            task.skipped[moved_key(task.version_set.key, pins)] = "cannot be resolved"
            return None

    def affordable(self, candidates: Mapping[FixTask, list[Neighbour]]) -> dict[FixTask, list[Neighbour]]:
        """The neighbours with a known result, or on a set within the budget."""
        return {
            task: [candidate for candidate in each if self.affords(task, candidate)]
            for task, each in candidates.items()
        }

    def affords(self, task: FixTask, candidate: Neighbour) -> bool:
        """Return whether the candidate needs no new environment, or the budget has one left, which it takes."""
        spent = self.spent[task.version_set.key]
        is_installed = candidate.to_set.key in {task.version_set.key, *spent}
        if is_installed or self.runner.seen(candidate.to_set, candidate.to_case):
            return True
        if len(spent) < self.environments:
            spent.add(candidate.to_set.key)
            return True
        task.skipped[candidate.to_set.key] = "no environment left"
        return False

    # All stages: measure the candidates, choose the nearest green one, and prove it.

    def try_candidates(self, kind: Kind, label: str, candidates: Mapping[FixTask, list[Neighbour]]) -> None:
        """Run every candidate once and the red cells twice, then choose a fix among the candidates."""
        runs = [(task.version_set, task.case, REQUIRED_RUNS) for task in candidates]
        runs += [(candidate.to_set, candidate.to_case, 1) for each in candidates.values() for candidate in each]
        self.measure(runs)
        for task, each in candidates.items():
            self.record(kind, label, task, each)
        self.close_tasks_that_are_not_red(list(candidates))
        self.choose(kind, {task: list(each) for task, each in candidates.items() if task not in self.closed})
        self.note_decided()

    def record(self, kind: Kind, label: str, task: FixTask, candidates: Sequence[Neighbour]) -> None:
        """Record at a task which candidates ran, and why the others did not."""
        ran = {each.cell for each in candidates if self.ran(each)}
        task.measured |= ran
        if kind is Kind.VERSIONS:
            task.skipped |= {each.to_set.key: self.why_not(each) for each in candidates if each.cell not in ran}
        if label:
            task.tried[label] += len(ran)

    def note_decided(self) -> None:
        """Pass on what is decided; more waves may find a fix of the others."""
        unfinished = set(self.unfinished(self.tasks))
        self.note(self.fixes(task for task in self.tasks if task not in unfinished))

    def measure(self, runs: Iterable[tuple[VersionSet, Case, int]]) -> None:
        """Run cells set by set, each until it has the given number of verdicts."""
        sets: dict[str, VersionSet] = {}
        times: dict[str, dict[Case, int]] = defaultdict(dict)
        for version_set, case, count in runs:
            sets[version_set.key] = version_set
            times[version_set.key][case] = max(count, times[version_set.key].get(case, 0))
        for key, counts in times.items():
            self.runner.measure(sets[key], counts)

    def why_not(self, candidate: Neighbour) -> str:
        """The reason why a neighbour did not run."""
        return ", ".join(dict.fromkeys(self.runner.seen(candidate.to_set, candidate.to_case))) or "lost"

    def ran(self, candidate: Neighbour) -> bool:
        return any(
            verdict in RED or verdict is Verdict.PASS
            for verdict in self.runner.seen(candidate.to_set, candidate.to_case)
        )

    def close_tasks_that_are_not_red(self, tasks: Iterable[FixTask]) -> None:
        for task in tasks:
            verdicts = self.runner.seen(task.version_set, task.case)
            if len(verdicts) < REQUIRED_RUNS or not is_red(verdicts):
                task.tried.clear()
                task.notes = [why_closed(verdicts)]
                self.closed.add(task)

    def choose(self, kind: Kind, candidates: Mapping[FixTask, list[Neighbour]]) -> None:
        """Choose for each task the first candidate that can be proven."""
        while True:
            chosen = {
                task: candidate
                for task, each in candidates.items()
                if task.fix is None
                for candidate in self.green(each)[:1]
            }
            if not chosen:
                return
            parts = {task: self.parts(kind, task, candidate) for task, candidate in chosen.items()}
            self.measure(
                [
                    *((candidate.to_set, candidate.to_case, REQUIRED_RUNS) for candidate in chosen.values()),
                    *((part.to_set, part.to_case, 1) for each in parts.values() for part in each if part),
                ]
            )
            for task, candidate in chosen.items():
                self.prove(kind, task, candidate, parts[task], candidates[task])

    def green(self, candidates: Iterable[Neighbour]) -> list[Neighbour]:
        return [
            candidate for candidate in candidates if is_green(self.runner.seen(candidate.to_set, candidate.to_case))
        ]

    def prove(
        self,
        kind: Kind,
        task: FixTask,
        candidate: Neighbour,
        parts: Sequence[Neighbour | None],
        candidates: list[Neighbour],
    ) -> None:
        """Accept a candidate that is green every time and red without any one change; otherwise try a shorter one."""
        candidates.remove(candidate)
        verdicts = self.runner.seen(candidate.to_set, candidate.to_case)
        if len(verdicts) < REQUIRED_RUNS or not is_green(verdicts):
            return
        task.measured |= {part.cell for part in parts if part and self.ran(part)}
        shorter = self.green(part for part in parts if part)
        if shorter:
            candidates.insert(0, shorter[0])
            return
        witnesses = [part for part in parts if part and self.is_witness(kind, part)]
        minimal = len(witnesses) == len(parts)
        if minimal or kind is Kind.VERSIONS:  # the budget may not allow every part of a move
            cells = [part.cell for part in witnesses] or [task.cell]
            blocked = [part.cell for part in witnesses if not self.ran(part)]
            task.set_fix(kind, candidate, runs=len(verdicts), witnesses=cells, blocked=blocked, minimal=minimal)

    def is_witness(self, kind: Kind, part: Neighbour) -> bool:
        verdicts = self.runner.seen(part.to_set, part.to_case)
        return is_red(verdicts) or (kind is Kind.VERSIONS and bool(verdicts) and set(verdicts) == {Verdict.BLOCKED})

    def parts(self, kind: Kind, task: FixTask, candidate: Neighbour) -> list[Neighbour | None]:
        """The candidate without each one of its changes; None for one that the budget does not allow."""
        if len(candidate.changes) == 1:
            return []
        subsets = [tuple(each for each in candidate.changes if each is not removed) for removed in candidate.changes]
        if kind is not Kind.VERSIONS:
            fewer = (self.neighbour(task, {each.name: each.new for each in changes}) for changes in subsets)
            return [part for part in fewer if part]  # a change without effect by itself leaves the cell red
        return [self.part_of_move(task, changes) for changes in subsets]

    def part_of_move(self, task: FixTask, changes: Sequence[Change]) -> Neighbour | None:
        pins = {each.name: str(each.new) for each in changes if each.name in PACKAGES}
        if len(pins) < len(changes):  # only the six packages can be moved separately
            return None
        part = self.derived(task, pins)
        return part if part and self.affords(task, part) else None


def is_red(verdicts: Verdicts) -> bool:
    return bool(verdicts) and all(verdict in RED for verdict in verdicts)


def why_closed(verdicts: Verdicts) -> str:
    """The reason why the search skips a cell: it was not red twice."""
    listed = ", ".join(verdicts)
    if not verdicts:
        return "it could not run"
    if is_red(verdicts):
        return f"it finished only once: {listed}"
    ran = any(verdict in RED or verdict is Verdict.PASS for verdict in verdicts)
    return f"it is not red every time: {listed}" if ran else f"it cannot run on this machine: {listed}"


def is_green(verdicts: Verdicts) -> bool:
    return bool(verdicts) and all(verdict is Verdict.PASS for verdict in verdicts)
