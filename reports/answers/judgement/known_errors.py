"""Finds the errors of released versions that a job meets: by the package's version, and by the facts of the job.

A condition does not name every option, so an error applies whatever quantisation or precision the job has beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any

from packaging.specifiers import SpecifierSet

from cases.space.verdict import RED, Verdict
from matrix.known import findings
from matrix.known.conditions import any_holds
from reports.answers.judgement.nearest_sets import public
from reports.results.known_results import address, is_shown

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

    from packaging.version import Version

    from matrix.known.conditions import Facts
    from matrix.known.findings import Finding
    from matrix.run.outcome import Outcome
    from reports.results.grid import Grid


class Affected(StrEnum):
    """The relation of a version to an error."""

    YES = "yes"
    BETWEEN = "between"  # versions on both sides have it
    OPEN = "open"  # a version on one side has it
    NO = "no"


@dataclass(frozen=True, kw_only=True)
class KnownError:
    """An error that a job meets. It is not ``certain`` if that depends on unknown facts or on the version."""

    finding: Finding
    affected: Affected
    certain: bool
    in_code: bool  # only the user's code can meet it
    cells: tuple[Outcome, ...]

    @property
    def is_failure(self) -> bool:
        """Tell if the job trains, saves or infers wrongly by it, against its authors' intention."""
        return self.finding.is_bug and not self.finding.numbers_only

    @property
    def links(self) -> tuple[str, ...]:
        return tuple(map(address, self.finding.references))


class MeasuredErrors:
    """The findings with the cells that show them. ``matrix`` has the results of a CPU, where all rows were run."""

    def __init__(self, matrix: Grid, rows: Sequence[Finding] | None = None) -> None:
        self.rows = packaged() if rows is None else tuple(rows)
        self.matrix = matrix
        self.reds = {row.id: tuple(red_cells(row, matrix)) for row in self.rows}
        self.measured: dict[str, dict[Version, bool]] = {}
        self.by_versions: dict[frozenset[tuple[str, str]], list[tuple[Finding, Affected]]] = {}
        self.by_facts: dict[frozenset[tuple[str, Any]], dict[str, bool | None]] = {}
        self.by_version_of: dict[tuple[str, str], tuple[Outcome, ...]] = {}

    def met_by(self, facts: Facts, versions: Mapping[str, str], assumed: Container[str] = ()) -> Iterator[KnownError]:
        """Yield the errors that a job with these facts and versions meets, or may meet.

        An error that depends on an ``assumed`` fact is not certain.
        """
        met = self.conditions(facts)
        stated = self.conditions({name: value for name, value in facts.items() if name not in assumed})
        for row, affected in self.affecting(versions):
            if met[row.id] is not False:
                yield KnownError(
                    finding=row,
                    affected=affected,
                    certain=stated[row.id] is True and affected in (Affected.YES, Affected.BETWEEN),
                    in_code=met[row.id] is None and any_holds(row.when, {**facts, "own_code": False}) is False,
                    cells=self.shown(row, versions),
                )

    def affecting(self, versions: Mapping[str, str]) -> list[tuple[Finding, Affected]]:
        """Return the rows that these versions have or may have; many jobs ask for the same versions."""
        key = frozenset(versions.items())
        if key not in self.by_versions:
            known = (row for row in self.rows if row.package in versions)
            placed_rows = ((row, self.affects(row, public(versions[row.package]))) for row in known)
            self.by_versions[key] = [(row, affected) for row, affected in placed_rows if affected is not Affected.NO]
        return self.by_versions[key]

    def conditions(self, facts: Facts) -> Mapping[str, bool | None]:
        """Tell which rows' conditions a job with these facts meets; the same job is judged with many versions."""
        key = frozenset(facts.items())
        if key not in self.by_facts:
            self.by_facts[key] = {row.id: any_holds(row.when, facts) for row in self.rows}
        return self.by_facts[key]

    def shown(self, row: Finding, versions: Mapping[str, str]) -> tuple[Outcome, ...]:
        """Return the red cells with this version of the package, or else all of them; many jobs ask for the same."""
        key = row.id, versions[row.package]
        if key not in self.by_version_of:
            self.by_version_of[key] = self.with_version(row, versions)
        return self.by_version_of[key]

    def with_version(self, row: Finding, versions: Mapping[str, str]) -> tuple[Outcome, ...]:
        pins = {column.key: column.pins for column in self.matrix.sets}
        version = public(versions[row.package])
        same = [each for each in self.reds[row.id] if public(pins[each.set][row.package]) == version]
        return tuple(same) or self.reds[row.id]

    def affects(self, row: Finding, version: Version) -> Affected:
        """Tell if a version has an error: by the releases that the row states, or else by its measured neighbours."""
        stated = has_error(row, version)
        if stated is not None:
            return Affected.YES if stated else Affected.NO
        if row.id not in self.measured:
            self.measured[row.id] = self.by_version(row)
        return placed(version, self.measured[row.id])

    def by_version(self, row: Finding) -> dict[Version, bool]:
        """Return for each measured version of the package if a cell of the row was red with it."""
        pins = {column.key: column.pins for column in self.matrix.sets}
        red = {public(pins[each.set][row.package]) for each in self.reds[row.id]}
        cases = {cells.case for cells in row.red}
        green = {
            public(column.pins[row.package])
            for column in self.matrix.sets
            if all(self.matrix.verdict(case, column.key) in (Verdict.PASS, None) for case in cases)
            and any(self.matrix.verdict(case, column.key) is Verdict.PASS for case in cases)
        }
        return {**dict.fromkeys(green, False), **dict.fromkeys(red, True)}


def placed(version: Version, measured: Mapping[Version, bool]) -> Affected:
    """Place a version among measured ones, of which some are red."""
    if version in measured:
        return Affected.YES if measured[version] else Affected.NO
    older = max((each for each in measured if each < version), default=None)
    newer = min((each for each in measured if each > version), default=None)
    around = [measured[each] for each in (older, newer) if each is not None]
    if not any(around):
        return Affected.NO
    return Affected.BETWEEN if all(around) and older is not None and newer is not None else Affected.OPEN


def red_cells(row: Finding, matrix: Grid) -> Iterator[Outcome]:
    for cells in row.red:
        for column in matrix.sets:
            if matrix.verdicts.get((cells.case, column.key)) not in RED | {Verdict.BLOCKED}:
                continue
            stated = column.key in cells.sets or has_error(row, public(column.pins[row.package])) is not False
            outcome = matrix.cells[cells.case, column.key]
            if stated and is_shown(outcome, cells.shows):
                yield outcome


def has_error(row: Finding, version: Version) -> bool | None:
    """Tell if the row states that a version has the error; None if it states no versions."""
    return specifiers(row.versions).contains(version, prereleases=True) if row.versions else None


@cache
def specifiers(text: str) -> SpecifierSet:
    return SpecifierSet(text)


@cache
def packaged() -> tuple[Finding, ...]:
    return findings.load()


def cases_of(rows: Iterable[Finding]) -> frozenset[str]:
    """Return the cases that decide which versions have the errors."""
    return frozenset(cells.case for row in rows for cells in (*row.red, *row.green))
