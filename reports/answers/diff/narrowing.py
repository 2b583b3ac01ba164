"""Narrows down which of the moved packages a regression involves, by what other results say about its cell.

In this order: a recorded bisection between the same two sets; published sets on which the cell is green, and which
differ from the red set in one package of the stack; the package of a finding with this cell; the package that moved
into the versions with the known cause of the failure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from cases.space.verdict import Verdict
from matrix.versions.sets import PACKAGES
from reports.answers.diff.changes import ChangeKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from packaging.specifiers import SpecifierSet

    from matrix.bisect.answer import BisectAnswer
    from matrix.known.findings import Finding
    from matrix.run.outcome import Outcome
    from matrix.versions.moved_packages import MovedPackage
    from reports.answers.diff.changes import CellChange, ResultDiff
    from reports.results.grid import Grid

NARROWED: Final = frozenset({ChangeKind.REGRESSED, ChangeKind.OTHER_REASON})


@dataclass(frozen=True, kw_only=True)
class OtherResults:
    """What is known beside a comparison: a grid of the same device, findings, and answers of bisections."""

    matrix: Grid
    findings: Sequence[Finding] = ()
    bisected: Sequence[BisectAnswer] = ()


@dataclass(frozen=True, kw_only=True)
class KnownSuspects:
    """The packages that a cell involves, and the sentence that says how that is known."""

    names: tuple[str, ...]
    proof: str


def narrowed(diff: ResultDiff, other: OtherResults) -> ResultDiff:
    """Return a comparison whose regressions name only the packages that other results leave as suspects."""
    moved = {(pair.base, pair.new): pair.moves for pair in diff.pairs}

    def change(each: CellChange) -> CellChange:
        moves = moved[each.base_set, each.new_set]
        found = known_suspects(each, moves, diff, other) if each.kind in NARROWED else None
        return each if found is None else replace(each, suspects=found.names, proof=found.proof)

    return replace(diff, changes=tuple(map(change, diff.changes)))


def known_suspects(
    change: CellChange, moves: Sequence[MovedPackage], diff: ResultDiff, other: OtherResults
) -> KnownSuspects | None:
    """Return what is known of a cell; None if nothing is."""
    moved = frozenset(each.name for each in moves)
    for found in (
        *of_bisections(change, diff.new.device, other.bisected),
        *of_neighbours(change, new_pins(change, diff), other.matrix),
        *of_findings(change, other.findings),
        *of_cause(change, moves),
    ):
        if moved.issuperset(found.names):
            return found
    return None


def new_pins(change: CellChange, diff: ResultDiff) -> Mapping[str, str]:
    return next((each.pins for each in diff.new.matrix.sets if each.key == change.new_set), {})


def of_bisections(change: CellChange, device: str, answers: Iterable[BisectAnswer]) -> Iterator[KnownSuspects]:
    for each in answers:
        if (each.case, each.good, each.bad, each.device) == (change.case, change.base_set, change.new_set, device):
            names = tuple(culprit.package for culprit in each.culprits)
            moves = " together with ".join(str(culprit.move) for culprit in each.culprits)
            yield KnownSuspects(names=names, proof=f"A bisection between these sets found {moves}.")


def of_neighbours(change: CellChange, pins: Mapping[str, str], matrix: Grid) -> Iterator[KnownSuspects]:
    """Yield each package that is all of the stack by which a set differs on which the cell is green."""
    for column in matrix.sets:
        outcome = matrix.lookup(change.case, column.key)
        differing = [name for name in PACKAGES if column.pins.get(name) != pins.get(name)]
        if outcome is not None and len(differing) == 1 and is_comparable_green(outcome, change):
            (name,) = differing
            words = f"`{column.key}`, which has {name} {column.pins[name]} and otherwise the same stack, is green."
            yield KnownSuspects(names=(name,), proof=words)


def is_comparable_green(outcome: Outcome, change: CellChange) -> bool:
    """Tell if a cell is green with the case code of the red one: another check may be what is red."""
    red = change.new.outcome if change.new else None
    return outcome.verdict is Verdict.PASS and red is not None and outcome.has_same_code(red)


def of_findings(change: CellChange, findings: Iterable[Finding]) -> Iterator[KnownSuspects]:
    for each in findings:
        if any(cells.case == change.case and change.new_set in cells.sets for cells in each.red):
            yield KnownSuspects(names=(each.package,), proof=f"The finding {each.id} is an error of {each.package}.")


def of_cause(change: CellChange, moves: Iterable[MovedPackage]) -> Iterator[KnownSuspects]:
    """Yield the one package that moved into the versions that the known cause of a failure requires."""
    if change.cause is None or change.cause.signature is None:
        return
    bounds = change.cause.signature.specifiers
    entered = [
        each
        for each in moves
        if each.name in bounds and each.old and each.new and is_entered(bounds[each.name], each.old, each.new)
    ]
    if len(entered) == 1:
        (found,) = entered
        words = f"Only {found.name} moved into the versions of this cause, {found.name}{bounds[found.name]}."
        yield KnownSuspects(names=(found.name,), proof=words)


def is_entered(bound: SpecifierSet, old: str, new: str) -> bool:
    return not bound.contains(old, prereleases=True) and bound.contains(new, prereleases=True)
