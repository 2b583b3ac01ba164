"""The search for fixes: from a red cell to the nearest green one, in the order of ``fixes.Kind``.

A fix is a green cell that ran twice, for a red cell that ran twice. Without any one of its changes the cell is red, or
its set cannot be resolved. ``neighbours`` lists the settings that may change. The search runs only cells without a
known result, those of one set together.
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

SURE: Final = 2  # runs of a cell that say the same
JUMPS: Final = 2  # how many of the nearest green sets are tried as they are, however many moves away
BESIDE: Final = "Beside the grid"
SINGLES, PAIRS = "single settings", "pairs of settings"
INSTEAD, INSTEAD_AND = "alternatives", "alternatives with one setting"
WAVES: Final = {SINGLES: 6, PAIRS: 18, INSTEAD: 6, INSTEAD_AND: 18}  # how many are run before one looks


class CellRunner(Protocol):
    """Runs cells, and knows their results."""

    def seen(self, version_set: VersionSet, case: Case) -> Verdicts:
        """The verdict of each run of the cell on this machine and with this case code, without losses."""

    def modules(self, version_set: VersionSet, case: Case) -> str:
        """The modules of the case code that took part in the cell's last run, with their digests."""

    def measure(self, version_set: VersionSet, times: Mapping[Case, int]) -> None:
        """Run each case until it has this many verdicts, unless it cannot run there."""

    def hint(self, version_set: VersionSet, case: Case) -> bool:
        """Whether any result, also of another machine or older case code, shows the cell green."""

    def moved(self, base: VersionSet, pins: Mapping[str, str]) -> VersionSet:
        """The set with some packages moved; the one of the table, if it has one."""


@dataclass(kw_only=True)
class FixSearch:
    """The fixes of several red cells at once, so that cells of one set are run together.

    ``table``: the sets that there are; ``cases``: those of the grid; ``advised``: by cell, other uses of the
    interface that a known problem puts beside it; ``environments``: how many further sets may be run for one set;
    ``radius``: how many settings are changed together, and what is given up counts as one.
    """

    runner: CellRunner
    tasks: Sequence[FixTask]
    table: Sequence[VersionSet]
    cases: Mapping[str, Case]
    advised: Mapping[str, Sequence[Case]] = field(default_factory=dict)
    environments: int = 6
    radius: int = neighbours.FARTHEST
    kinds: frozenset[Kind] = frozenset(Kind)
    note: Callable[[tuple[Fix, ...]], object] = tuple
    spent: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    closed: set[FixTask] = field(default_factory=set)  # without a fix, and not to be looked for further
    free: dict[str, Case] = field(default_factory=dict)  # beside the grid, each once

    def run(self) -> tuple[Fix, ...]:
        """Finish every task; ``note`` gets the fixes after each step, so that an interruption keeps them."""
        stages: tuple[tuple[Kind, int, Callable[[list[FixTask]], None]], ...] = (
            (Kind.SETTINGS, 1, self.one_setting),
            (Kind.SETTINGS, 2, self.two_settings),
            (Kind.VERSIONS, 1, self.versions),
            (Kind.ALTERNATIVE, 1, self.alternatives),
            (Kind.ALTERNATIVE, 2, self.alternatives_with_setting),
        )
        for kind, radius, stage in stages:
            for tasks in self.open() if kind in self.kinds and radius <= self.radius else ():
                stage(tasks)
                self.note(self.fixes)
        return self.fixes

    @property
    def fixes(self) -> tuple[Fix, ...]:
        return tuple(task.record.model_copy(update={"modules": self.modules(task)}) for task in self.tasks)

    def modules(self, task: FixTask) -> str:
        """The case code that took part in the red cell and, if there is one, the green cell of a fix."""
        green = [self.runner.modules(task.way.to_set, task.way.to_case)] if task.way else []
        return code_digest.merged([self.runner.modules(task.version_set, task.case), *green])

    def open(self) -> list[list[FixTask]]:
        """The tasks without a fix, by set."""
        by_set: dict[str, list[FixTask]] = defaultdict(list)
        for task in self.still(self.tasks):
            by_set[task.version_set.key].append(task)
        return list(by_set.values())

    def still(self, tasks: Iterable[FixTask]) -> list[FixTask]:
        return [task for task in tasks if task.fix is None and task not in self.closed]

    # By settings, and by giving something up: on the same set.

    def one_setting(self, tasks: list[FixTask]) -> None:
        self.reach(tasks, Kind.SETTINGS, SINGLES, lambda start: neighbours.settings(start, 1))

    def two_settings(self, tasks: list[FixTask]) -> None:
        self.reach(tasks, Kind.SETTINGS, PAIRS, lambda start: neighbours.settings(start, 2))

    def alternatives(self, tasks: list[FixTask]) -> None:
        self.reach(tasks, Kind.ALTERNATIVE, INSTEAD, neighbours.alternatives)
        self.take_advice(self.still(tasks))

    def alternatives_with_setting(self, tasks: list[FixTask]) -> None:
        self.reach(tasks, Kind.ALTERNATIVE, INSTEAD_AND, neighbours.alternatives_with_setting)

    def reach(
        self, tasks: list[FixTask], kind: Kind, what: str, around: Callable[[Options], Iterable[Changes]]
    ) -> None:
        """Run neighbours wave by wave, so that those behind the first green cell are not run."""
        rest = {
            task: [way for changes in around(task.case.options) if (way := self.way(task, changes))] for task in tasks
        }
        size = WAVES[what]
        while rest:
            self.look(kind, what, {task: ways[:size] for task, ways in rest.items()})
            rest = {task: rest[task][size:] for task in self.still(rest) if rest[task][size:]}

    def take_advice(self, tasks: list[FixTask]) -> None:
        ways = {task: [advice(task, case) for case in self.advised.get(task.cell, ())] for task in tasks}
        self.look(Kind.ALTERNATIVE, "uses that known problems put beside it", {q: w for q, w in ways.items() if w})

    def way(self, task: FixTask, changes: Changes) -> Neighbour | None:
        start = task.case.options
        there = neighbours.moved(start, changes)
        if there is None:
            return None
        free = Case(BESIDE, f"one step from {task.case.id}", there)
        said = tuple(Change(name=name, old=getattr(start, name), new=new) for name, new in changes.items())
        case = self.cases.get(free.id) or self.free.setdefault(free.id, free)
        return Neighbour(to_set=task.version_set, to_case=case, changes=said)

    # By versions: the same case on another set.

    def versions(self, tasks: list[FixTask]) -> None:
        """Move one package at a time towards the nearest green set; then try that set itself."""
        targets = {task: self.green_sets(task) for task in tasks}
        one_away = {
            task: [other_set(task, each) for each in sets if len(moves(task.version_set, each)) == 1]
            for task, sets in targets.items()
        }
        self.look(Kind.VERSIONS, "", self.affordable(one_away))
        for nth in range(len(ORDER)):
            towards = {
                task: self.towards(task, likely(task.case.options)[nth], targets[task]) for task in self.still(tasks)
            }
            self.look(Kind.VERSIONS, "", self.affordable({q: [way] for q, way in towards.items() if way}))
        jumps = {q: [other_set(q, each) for each in targets[q][:JUMPS]] for q in self.still(tasks)}
        self.look(Kind.VERSIONS, "", self.affordable(jumps))
        for task in (each for each in tasks if each not in self.closed):
            task.notes.append(task.other_sets(each.key for each in targets[task]))

    def green_sets(self, task: FixTask) -> list[VersionSet]:
        """Sets of the table on which the case is green, those with the fewest moves first."""
        start = task.version_set
        there = [each for each in self.table if each.key != start.key and self.runner.hint(each, task.case)]
        return sorted(there, key=lambda each: distance(start, each))

    def towards(self, task: FixTask, name: str, targets: Sequence[VersionSet]) -> Neighbour | None:
        """One package at the version that the nearest green set has."""
        start = task.version_set
        if not targets or targets[0].pins[name] == start.pins[name]:
            return None
        return self.derived(task, {name: targets[0].pins[name]})

    def derived(self, task: FixTask, pins: Mapping[str, str]) -> Neighbour | None:
        """The case on its set with some packages moved; None if the index does not have them."""
        try:
            return other_set(task, self.runner.moved(task.version_set, pins))
        except UserError:
            task.missed[moved_key(task.version_set.key, pins)] = "cannot be made"
            return None

    def affordable(self, ways: Mapping[FixTask, list[Neighbour]]) -> dict[FixTask, list[Neighbour]]:
        """The neighbours with a known result, or on a set within the budget."""
        return {task: [way for way in each if self.affords(task, way)] for task, each in ways.items()}

    def affords(self, task: FixTask, way: Neighbour) -> bool:
        spent = self.spent[task.version_set.key]
        if self.runner.seen(way.to_set, way.to_case) or way.to_set.key in {task.version_set.key, *spent}:
            return True
        if len(spent) < self.environments:
            spent.add(way.to_set.key)
            return True
        task.missed[way.to_set.key] = "no environment left"
        return False

    # What is common to all: look, choose the nearest that is green, and prove it.

    def look(self, kind: Kind, what: str, ways: Mapping[FixTask, list[Neighbour]]) -> None:
        """Run every neighbour once, and the red cells twice."""
        asked = [(task.version_set, task.case, SURE) for task in ways]
        asked += [(way.to_set, way.to_case, 1) for each in ways.values() for way in each]
        self.measure(asked)
        for task, each in ways.items():
            ran = {way.cell for way in each if self.ran(way)}
            task.looked_at |= ran
            if kind is Kind.VERSIONS:
                task.missed |= {way.to_set.key: self.why_not(way) for way in each if way.cell not in ran}
            if what:
                task.tried[what] += len(ran)
        self.close_what_is_not_red(list(ways))
        self.settle(kind, {task: list(each) for task, each in ways.items() if task not in self.closed})

    def measure(self, asked: Iterable[tuple[VersionSet, Case, int]]) -> None:
        """Run the cells set by set, in order."""
        sets: dict[str, VersionSet] = {}
        times: dict[str, dict[Case, int]] = defaultdict(dict)
        for version_set, case, often in asked:
            sets[version_set.key] = version_set
            times[version_set.key][case] = max(often, times[version_set.key].get(case, 0))
        for key, wanted in times.items():
            self.runner.measure(sets[key], wanted)

    def why_not(self, way: Neighbour) -> str:
        """The reason why a neighbour did not run."""
        return ", ".join(dict.fromkeys(self.runner.seen(way.to_set, way.to_case))) or "lost"

    def ran(self, way: Neighbour) -> bool:
        return any(verdict in RED or verdict is Verdict.PASS for verdict in self.runner.seen(way.to_set, way.to_case))

    def close_what_is_not_red(self, tasks: Iterable[FixTask]) -> None:
        for task in tasks:
            seen = self.runner.seen(task.version_set, task.case)
            if len(seen) < SURE or not is_red(seen):
                task.tried.clear()
                task.notes = [why_closed(seen)]
                self.closed.add(task)

    def settle(self, kind: Kind, ways: Mapping[FixTask, list[Neighbour]]) -> None:
        """Choose for each task the first neighbour that holds."""
        while True:
            chosen = {task: way for task, each in ways.items() if task.fix is None for way in self.green(each)[:1]}
            if not chosen:
                return
            parts = {task: self.parts(kind, task, way) for task, way in chosen.items()}
            self.measure(
                [
                    *((way.to_set, way.to_case, SURE) for way in chosen.values()),
                    *((part.to_set, part.to_case, 1) for each in parts.values() for part in each if part),
                ]
            )
            for task, way in chosen.items():
                self.prove(kind, task, way, parts[task], ways[task])

    def green(self, ways: Iterable[Neighbour]) -> list[Neighbour]:
        return [way for way in ways if is_green(self.runner.seen(way.to_set, way.to_case))]

    def prove(
        self, kind: Kind, task: FixTask, way: Neighbour, parts: Sequence[Neighbour | None], ways: list[Neighbour]
    ) -> None:
        """Accept a neighbour that is green every time and red without any one change; otherwise try a shorter one."""
        ways.remove(way)
        seen = self.runner.seen(way.to_set, way.to_case)
        if len(seen) < SURE or not is_green(seen):
            return
        task.looked_at |= {part.cell for part in parts if part and self.ran(part)}
        shorter = self.green(part for part in parts if part)
        if shorter:
            ways.insert(0, shorter[0])
            return
        shown = [part for part in parts if part and self.is_witness(kind, part)]
        minimal = len(shown) == len(parts)
        if minimal or kind is Kind.VERSIONS:  # of versions, the budget may have left parts untried
            witnesses = [part.cell for part in shown] or [task.cell]
            blocked = [part.cell for part in shown if not self.ran(part)]
            task.found(kind, way, runs=len(seen), witnesses=witnesses, blocked=blocked, minimal=minimal)

    def is_witness(self, kind: Kind, part: Neighbour) -> bool:
        seen = self.runner.seen(part.to_set, part.to_case)
        return is_red(seen) or (kind is Kind.VERSIONS and bool(seen) and set(seen) == {Verdict.BLOCKED})

    def parts(self, kind: Kind, task: FixTask, way: Neighbour) -> list[Neighbour | None]:
        """The neighbour without each of its changes; None if the budget does not allow it."""
        if len(way.changes) == 1:
            return []
        kept = [tuple(each for each in way.changes if each is not left) for left in way.changes]
        if kind is not Kind.VERSIONS:
            fewer = (self.way(task, {each.name: each.new for each in changes}) for changes in kept)
            return [part for part in fewer if part]  # what has no meaning by itself leaves the red cell as it is
        return [self.part_of_move(task, changes) for changes in kept]

    def part_of_move(self, task: FixTask, changes: Sequence[Change]) -> Neighbour | None:
        pins = {each.name: str(each.new) for each in changes if each.name in PACKAGES}
        if len(pins) < len(changes):  # a requirement beside the six cannot be moved by itself
            return None
        part = self.derived(task, pins)
        return part if part and self.affords(task, part) else None


def is_red(seen: Verdicts) -> bool:
    return bool(seen) and all(verdict in RED for verdict in seen)


def why_closed(seen: Verdicts) -> str:
    """The reason why the search skips a cell: it was not red twice."""
    said = ", ".join(seen)
    if not seen:
        return "it could not be run"
    if is_red(seen):
        return f"it ran only once to its end: {said}"
    ran = any(verdict in RED or verdict is Verdict.PASS for verdict in seen)
    return f"it is not red every time: {said}" if ran else f"it cannot be run on this machine: {said}"


def is_green(seen: Verdicts) -> bool:
    return bool(seen) and all(verdict is Verdict.PASS for verdict in seen)
