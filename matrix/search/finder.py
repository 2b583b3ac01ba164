"""The search for fixes: from a red cell to the nearest green one, in the order of ``fixes.Kind``.

A fix is a green cell that was run twice, beside a red one that was run twice, and without any one of its changes it is
red, or its set cannot be resolved. Which settings may change, and what they keep, is said in ``neighbours``. What the
ground has seen already is looked up; only the missing cells are run, those of one set together.
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
from matrix.search.target import Way, advice, other_set
from matrix.versions.sets import PACKAGES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from cases.space.options import Options
    from matrix.search.fixes import Fix
    from matrix.search.neighbours import Changes
    from matrix.search.target import Quest
    from matrix.versions.sets import VersionSet

    Verdicts = tuple[Verdict, ...]

SURE: Final = 2  # runs of a cell that say the same
JUMPS: Final = 2  # how many of the nearest green sets are tried as they are, however many moves away
BESIDE: Final = "Beside the grid"
SINGLES, PAIRS = "single settings", "pairs of settings"
INSTEAD, INSTEAD_AND = "alternatives", "alternatives with one setting"
WAVES: Final = {SINGLES: 6, PAIRS: 18, INSTEAD: 6, INSTEAD_AND: 18}  # how many are run before one looks


class Ground(Protocol):
    """Where cells are run, and what is known of them."""

    def seen(self, version_set: VersionSet, case: Case) -> Verdicts:
        """What each run of the cell said, on this machine and with this case code; losses left out."""

    def modules(self, version_set: VersionSet, case: Case) -> str:
        """The modules of the case code that took part in the cell's last run, with their digests."""

    def measure(self, version_set: VersionSet, times: Mapping[Case, int]) -> None:
        """See each case so often, unless it cannot run there."""

    def hint(self, version_set: VersionSet, case: Case) -> bool:
        """Whether any result, of another machine or older case code too, says that the cell is green."""

    def moved(self, base: VersionSet, pins: Mapping[str, str]) -> VersionSet:
        """The set with some packages moved; that of the table, where there is one."""


@dataclass(kw_only=True)
class Search:
    """The fixes of several red cells at once, so that cells of one set are run together.

    ``table``: the sets that there are; ``cases``: those of the grid; ``advised``: by cell, other uses of the
    interface that a known problem puts beside it; ``environments``: how many further sets may be run for one set;
    ``radius``: how many settings are changed together, and what is given up counts as one.
    """

    ground: Ground
    quests: Sequence[Quest]
    table: Sequence[VersionSet]
    cases: Mapping[str, Case]
    advised: Mapping[str, Sequence[Case]] = field(default_factory=dict)
    environments: int = 6
    radius: int = neighbours.FARTHEST
    kinds: frozenset[Kind] = frozenset(Kind)
    note: Callable[[tuple[Fix, ...]], object] = tuple
    spent: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    closed: set[Quest] = field(default_factory=set)  # without a fix, and not to be looked for further
    free: dict[str, Case] = field(default_factory=dict)  # beside the grid, each once

    def run(self) -> tuple[Fix, ...]:
        """Every quest to its end; ``note`` gets what is known after every step, so that a cut leaves it."""
        stages: tuple[tuple[Kind, int, Callable[[list[Quest]], None]], ...] = (
            (Kind.SETTINGS, 1, self.one_setting),
            (Kind.SETTINGS, 2, self.two_settings),
            (Kind.VERSIONS, 1, self.versions),
            (Kind.ALTERNATIVE, 1, self.alternatives),
            (Kind.ALTERNATIVE, 2, self.alternatives_with_setting),
        )
        for kind, radius, stage in stages:
            for quests in self.open() if kind in self.kinds and radius <= self.radius else ():
                stage(quests)
                self.note(self.fixes)
        return self.fixes

    @property
    def fixes(self) -> tuple[Fix, ...]:
        return tuple(quest.record.model_copy(update={"modules": self.modules(quest)}) for quest in self.quests)

    def modules(self, quest: Quest) -> str:
        """The case code that took part in the red cell and, if there is one, the green cell of a fix."""
        green = [self.ground.modules(quest.way.to_set, quest.way.to_case)] if quest.way else []
        return code_digest.merged([self.ground.modules(quest.version_set, quest.case), *green])

    def open(self) -> list[list[Quest]]:
        """What has no fix yet, by set."""
        by_set: dict[str, list[Quest]] = defaultdict(list)
        for quest in self.still(self.quests):
            by_set[quest.version_set.key].append(quest)
        return list(by_set.values())

    def still(self, quests: Iterable[Quest]) -> list[Quest]:
        return [quest for quest in quests if quest.fix is None and quest not in self.closed]

    # By settings, and by giving something up: on the same set.

    def one_setting(self, quests: list[Quest]) -> None:
        self.reach(quests, Kind.SETTINGS, SINGLES, lambda start: neighbours.settings(start, 1))

    def two_settings(self, quests: list[Quest]) -> None:
        self.reach(quests, Kind.SETTINGS, PAIRS, lambda start: neighbours.settings(start, 2))

    def alternatives(self, quests: list[Quest]) -> None:
        self.reach(quests, Kind.ALTERNATIVE, INSTEAD, neighbours.alternatives)
        self.take_advice(self.still(quests))

    def alternatives_with_setting(self, quests: list[Quest]) -> None:
        self.reach(quests, Kind.ALTERNATIVE, INSTEAD_AND, neighbours.alternatives_with_setting)

    def reach(self, quests: list[Quest], kind: Kind, what: str, around: Callable[[Options], Iterable[Changes]]) -> None:
        """Wave by wave, so that what lies behind the first green cell is not run."""
        rest = {
            quest: [way for changes in around(quest.case.options) if (way := self.way(quest, changes))]
            for quest in quests
        }
        size = WAVES[what]
        while rest:
            self.look(kind, what, {quest: ways[:size] for quest, ways in rest.items()})
            rest = {quest: rest[quest][size:] for quest in self.still(rest) if rest[quest][size:]}

    def take_advice(self, quests: list[Quest]) -> None:
        ways = {quest: [advice(quest, case) for case in self.advised.get(quest.cell, ())] for quest in quests}
        self.look(Kind.ALTERNATIVE, "uses that known problems put beside it", {q: w for q, w in ways.items() if w})

    def way(self, quest: Quest, changes: Changes) -> Way | None:
        start = quest.case.options
        there = neighbours.moved(start, changes)
        if there is None:
            return None
        free = Case(BESIDE, f"one step from {quest.case.id}", there)
        said = tuple(Change(name=name, old=getattr(start, name), new=new) for name, new in changes.items())
        case = self.cases.get(free.id) or self.free.setdefault(free.id, free)
        return Way(to_set=quest.version_set, to_case=case, changes=said)

    # By versions: the same case on another set.

    def versions(self, quests: list[Quest]) -> None:
        """One package at a time towards the nearest set that is green; then that set itself, made as near as can be."""
        targets = {quest: self.green_sets(quest) for quest in quests}
        one_away = {
            quest: [other_set(quest, each) for each in sets if len(moves(quest.version_set, each)) == 1]
            for quest, sets in targets.items()
        }
        self.look(Kind.VERSIONS, "", self.affordable(one_away))
        for nth in range(len(ORDER)):
            towards = {
                quest: self.towards(quest, likely(quest.case.options)[nth], targets[quest])
                for quest in self.still(quests)
            }
            self.look(Kind.VERSIONS, "", self.affordable({q: [way] for q, way in towards.items() if way}))
        jumps = {q: [other_set(q, each) for each in targets[q][:JUMPS]] for q in self.still(quests)}
        self.look(Kind.VERSIONS, "", self.affordable(jumps))
        for quest in (each for each in quests if each not in self.closed):
            quest.notes.append(quest.other_sets(each.key for each in targets[quest]))

    def green_sets(self, quest: Quest) -> list[VersionSet]:
        """Sets of the table on which the case is green, those of the fewest moves first."""
        start = quest.version_set
        there = [each for each in self.table if each.key != start.key and self.ground.hint(each, quest.case)]
        return sorted(there, key=lambda each: distance(start, each))

    def towards(self, quest: Quest, name: str, targets: Sequence[VersionSet]) -> Way | None:
        """One package at the version that the nearest green set has."""
        start = quest.version_set
        if not targets or targets[0].pins[name] == start.pins[name]:
            return None
        return self.derived(quest, {name: targets[0].pins[name]})

    def derived(self, quest: Quest, pins: Mapping[str, str]) -> Way | None:
        """The case on its set with some packages moved; None where the index does not have them."""
        try:
            return other_set(quest, self.ground.moved(quest.version_set, pins))
        except UserError:
            quest.missed[moved_key(quest.version_set.key, pins)] = "cannot be made"
            return None

    def affordable(self, ways: Mapping[Quest, list[Way]]) -> dict[Quest, list[Way]]:
        """What is known, or can be run on a set that the budget still has room for."""
        return {quest: [way for way in each if self.affords(quest, way)] for quest, each in ways.items()}

    def affords(self, quest: Quest, way: Way) -> bool:
        spent = self.spent[quest.version_set.key]
        if self.ground.seen(way.to_set, way.to_case) or way.to_set.key in {quest.version_set.key, *spent}:
            return True
        if len(spent) < self.environments:
            spent.add(way.to_set.key)
            return True
        quest.missed[way.to_set.key] = "no environment left"
        return False

    # What is common to all: look, choose the nearest that is green, and prove it.

    def look(self, kind: Kind, what: str, ways: Mapping[Quest, list[Way]]) -> None:
        """Run all that the ways lead to, once; the red cells twice."""
        asked = [(quest.version_set, quest.case, SURE) for quest in ways]
        asked += [(way.to_set, way.to_case, 1) for each in ways.values() for way in each]
        self.measure(asked)
        for quest, each in ways.items():
            ran = {way.cell for way in each if self.ran(way)}
            quest.looked_at |= ran
            if kind is Kind.VERSIONS:
                quest.missed |= {way.to_set.key: self.why_not(way) for way in each if way.cell not in ran}
            if what:
                quest.tried[what] += len(ran)
        self.close_what_is_not_red(list(ways))
        self.settle(kind, {quest: list(each) for quest, each in ways.items() if quest not in self.closed})

    def measure(self, asked: Iterable[tuple[VersionSet, Case, int]]) -> None:
        """Set by set, in the order of asking."""
        sets: dict[str, VersionSet] = {}
        times: dict[str, dict[Case, int]] = defaultdict(dict)
        for version_set, case, often in asked:
            sets[version_set.key] = version_set
            times[version_set.key][case] = max(often, times[version_set.key].get(case, 0))
        for key, wanted in times.items():
            self.ground.measure(sets[key], wanted)

    def why_not(self, way: Way) -> str:
        """Of a way that did not run; losses leave no trace."""
        return ", ".join(dict.fromkeys(self.ground.seen(way.to_set, way.to_case))) or "lost"

    def ran(self, way: Way) -> bool:
        return any(verdict in RED or verdict is Verdict.PASS for verdict in self.ground.seen(way.to_set, way.to_case))

    def close_what_is_not_red(self, quests: Iterable[Quest]) -> None:
        for quest in quests:
            seen = self.ground.seen(quest.version_set, quest.case)
            if len(seen) < SURE or not is_red(seen):
                quest.tried.clear()
                quest.notes = [why_closed(seen)]
                self.closed.add(quest)

    def settle(self, kind: Kind, ways: Mapping[Quest, list[Way]]) -> None:
        """Choose for every quest the first way that holds."""
        while True:
            chosen = {quest: way for quest, each in ways.items() if quest.fix is None for way in self.green(each)[:1]}
            if not chosen:
                return
            parts = {quest: self.parts(kind, quest, way) for quest, way in chosen.items()}
            self.measure(
                [
                    *((way.to_set, way.to_case, SURE) for way in chosen.values()),
                    *((part.to_set, part.to_case, 1) for each in parts.values() for part in each if part),
                ]
            )
            for quest, way in chosen.items():
                self.prove(kind, quest, way, parts[quest], ways[quest])

    def green(self, ways: Iterable[Way]) -> list[Way]:
        return [way for way in ways if is_green(self.ground.seen(way.to_set, way.to_case))]

    def prove(self, kind: Kind, quest: Quest, way: Way, parts: Sequence[Way | None], ways: list[Way]) -> None:
        """A fix, if it is green every time and red without any one change; else no way, or a shorter one comes next."""
        ways.remove(way)
        seen = self.ground.seen(way.to_set, way.to_case)
        if len(seen) < SURE or not is_green(seen):
            return
        quest.looked_at |= {part.cell for part in parts if part and self.ran(part)}
        shorter = self.green(part for part in parts if part)
        if shorter:
            ways.insert(0, shorter[0])
            return
        shown = [part for part in parts if part and self.is_witness(kind, part)]
        minimal = len(shown) == len(parts)
        if minimal or kind is Kind.VERSIONS:  # of versions, the budget may have left parts untried
            witnesses = [part.cell for part in shown] or [quest.cell]
            blocked = [part.cell for part in shown if not self.ran(part)]
            quest.found(kind, way, runs=len(seen), witnesses=witnesses, blocked=blocked, minimal=minimal)

    def is_witness(self, kind: Kind, part: Way) -> bool:
        seen = self.ground.seen(part.to_set, part.to_case)
        return is_red(seen) or (kind is Kind.VERSIONS and bool(seen) and set(seen) == {Verdict.BLOCKED})

    def parts(self, kind: Kind, quest: Quest, way: Way) -> list[Way | None]:
        """The way without each of its changes; None where the budget has no room for it."""
        if len(way.changes) == 1:
            return []
        kept = [tuple(each for each in way.changes if each is not left) for left in way.changes]
        if kind is not Kind.VERSIONS:
            fewer = (self.way(quest, {each.name: each.new for each in changes}) for changes in kept)
            return [part for part in fewer if part]  # what has no meaning by itself leaves the red cell as it is
        return [self.part_of_move(quest, changes) for changes in kept]

    def part_of_move(self, quest: Quest, changes: Sequence[Change]) -> Way | None:
        pins = {each.name: str(each.new) for each in changes if each.name in PACKAGES}
        if len(pins) < len(changes):  # a requirement beside the six cannot be moved by itself
            return None
        part = self.derived(quest, pins)
        return part if part and self.affords(quest, part) else None


def is_red(seen: Verdicts) -> bool:
    return bool(seen) and all(verdict in RED for verdict in seen)


def why_closed(seen: Verdicts) -> str:
    """Why a cell is none to look for a fix of: what it said is not red twice, and nothing else."""
    said = ", ".join(seen)
    if not seen:
        return "it could not be run"
    if is_red(seen):
        return f"it ran only once to its end: {said}"
    ran = any(verdict in RED or verdict is Verdict.PASS for verdict in seen)
    return f"it is not red every time: {said}" if ran else f"it cannot be run on this machine: {said}"


def is_green(seen: Verdicts) -> bool:
    return bool(seen) and all(verdict is Verdict.PASS for verdict in seen)
