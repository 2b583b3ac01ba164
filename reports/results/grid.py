"""The matrix as a value: version sets as columns, cases as rows, and the outcome of each cell."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from cases.space.verdict import RED, Phase, Verdict
from matrix.errors import UserError
from matrix.keys import CellKey
from reports.results.location_words import location_words
from reports.results.outcome_rows import LazyOutcomes, OutcomeRow, last_attempts
from reports.results.wording import first_line, gist, headline

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from matrix.run.outcome import Outcome, RunRecord, SetRecord
    from reports.results.outcome_rows import AnyOutcome

NOT_RUN = "not run"
RANKING = (
    *(Verdict.SKIP, Verdict.BLOCKED, Verdict.PASS, Verdict.LOST),
    *(Verdict.FAIL, Verdict.HANG, Verdict.CRASH, Verdict.WRONG),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The cases of one feature, in planned order."""

    name: str
    cases: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseFailure:
    """A case with one failure, on one or more sets."""

    case: str
    verdict: Verdict
    phase: Phase | None
    headline: str
    sets: tuple[str, ...]
    location: str = ""  # where the first of them deviates, if a run looked for it


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Sets are columns, oldest first; cases are rows.

    A cell that was run again after a loss has the outcome of its last attempt; a repeated cell that of its worst
    repeat. ``verdicts`` and ``options`` are those of the outcomes, by case and set: questions about many cells need no
    more, and an outcome may be read at its first use. Derived values are computed once: a page asks for them for every
    cell.
    """

    sets: tuple[SetRecord, ...]
    groups: tuple[Group, ...]
    cells: Mapping[tuple[str, str], Outcome]
    verdicts: Mapping[tuple[str, str], Verdict]
    options: Mapping[tuple[str, str], Mapping[str, Any]]
    planned: frozenset[tuple[str, str]]
    repeats: Mapping[tuple[str, str], tuple[Verdict, ...]]

    @cached_property
    def cases(self) -> tuple[str, ...]:
        return tuple(case for group in self.groups for case in group.cases)

    @property
    def rows(self) -> Mapping[tuple[str, str], AnyOutcome]:
        """The outcomes by case and set, unread as far as they are still in their file."""
        return self.cells.rows if isinstance(self.cells, LazyOutcomes) else self.cells

    def measured(self) -> Iterator[tuple[str, str]]:
        """Yield the case and set of every cell that was run, row by row."""
        pairs = ((case, column.key) for case in self.cases for column in self.sets)
        yield from (pair for pair in pairs if pair in self.cells)

    def each_outcome(self) -> Iterator[Outcome]:
        """Read the outcome of every cell that was run, row by row, without keeping it."""
        yield from (self.cells[pair] for pair in self.measured())

    @cached_property
    def outcomes(self) -> tuple[Outcome, ...]:
        """The outcome of every cell that was run, row by row."""
        return tuple(self.each_outcome())

    @cached_property
    def red(self) -> tuple[Outcome, ...]:
        """The outcome of every red cell, row by row."""
        return tuple(self.cells[pair] for pair in self.measured() if self.verdicts[pair] in RED)

    def lookup(self, case: str, version_set: str) -> Outcome | None:
        return self.cells.get((case, version_set))

    def verdict(self, case: str, version_set: str) -> Verdict | None:
        """Return the verdict of a cell; None if it was not run.

        A set that could not be installed blocks its cells, recorded or not.
        """
        blocked = Verdict.BLOCKED if version_set in self.blocked else None
        return self.verdicts.get((case, version_set), blocked)

    @cached_property
    def blocked(self) -> Mapping[str, str]:
        """The reason why a set is blocked, by its key."""
        return {column.key: column.blocked for column in self.sets if column.blocked}

    def belongs(self, case: str, version_set: str) -> bool:
        """Tell whether the cell exists: a run need not have every case on every set."""
        return (case, version_set) in self.planned or (case, version_set) in self.cells

    @cached_property
    def flaky(self) -> Mapping[tuple[str, str], Counter[Verdict]]:
        """The number of repeats with each verdict, by case and set, for cells whose repeats disagree."""
        ran = RED | {Verdict.PASS}
        return {cell: Counter(each) for cell, each in self.repeats.items() if len(ran & set(each)) > 1}

    def counts(self, version_set: str | None = None) -> Counter[Verdict | None]:
        """Count the cells of one set, or of all, by verdict; None counts the cells that were not run."""
        if version_set is not None:
            return Counter(self.counts_by_set.get(version_set))
        return sum(self.counts_by_set.values(), Counter())

    @cached_property
    def counts_by_set(self) -> Mapping[str, Counter[Verdict | None]]:
        counts: dict[str, Counter[Verdict | None]] = {column.key: Counter() for column in self.sets}
        for case in self.cases:
            for key, counter in counts.items():
                if self.belongs(case, key):
                    counter[self.verdict(case, key)] += 1
        return counts

    @cached_property
    def findings(self) -> tuple[CaseFailure, ...]:
        """The red cells in row order, each failure of a case once."""
        return findings(self.red)

    @cached_property
    def skips(self) -> Counter[str]:
        """The number of cells skipped for each reason, the commonest reason first."""
        reasons = Counter(first_line(o.reason) for o in self.outcomes if o.verdict is Verdict.SKIP)
        return Counter(dict(reasons.most_common()))


def findings(red: Iterable[Outcome]) -> tuple[CaseFailure, ...]:
    """Group red outcomes: one finding for each case and failure."""
    alike: dict[tuple[str, Verdict, Phase | None, str], list[Outcome]] = {}
    for outcome in red:
        alike.setdefault((outcome.case, outcome.verdict, outcome.phase, gist(outcome)), []).append(outcome)
    return tuple(finding(outcomes) for outcomes in alike.values())


def finding(outcomes: Sequence[Outcome]) -> CaseFailure:
    first = outcomes[0]
    return CaseFailure(
        case=first.case,
        verdict=first.verdict,
        phase=first.phase,
        headline=headline(first),
        sets=tuple(outcome.set for outcome in outcomes),
        location=next((words for each in outcomes if (words := location_words(each.location))), ""),
    )


def grid(record: RunRecord, sets: Iterable[SetRecord], outcomes: Iterable[AnyOutcome]) -> Grid:
    """Build the grid of a run, whose outcomes come in the order in which they were stored.

    Raises:
        UserError: an outcome belongs to none of the sets.
    """
    columns = tuple(sorted(sets, key=lambda column: (column.as_of, column.key)))
    repeats: dict[tuple[str, str], list[AnyOutcome]] = {}
    for each in last_attempts(outcomes):
        repeats.setdefault((each.case, each.set), []).append(each)
    last = {cell: max(reversed(of_cell), key=severity) for cell, of_cell in repeats.items()}
    strangers = {key for _, key in last} - {column.key for column in columns}
    if strangers:
        raise UserError(
            f"outcomes of {', '.join(sorted(strangers))}, but no record of this set; render the whole run directory"
        )
    return Grid(
        sets=columns,
        groups=tuple(grouped(list(rows(record, last.values())), last.values())),
        cells=LazyOutcomes(last),
        verdicts={cell: outcome.verdict for cell, outcome in last.items()},
        options={cell: outcome.options for cell, outcome in last.items()},
        planned=frozenset((case, key) for key, case in map(CellKey.parse, record.planned)),
        repeats={cell: tuple(outcome.verdict for outcome in of_cell) for cell, of_cell in repeats.items()},
    )


def severity(outcome: AnyOutcome) -> tuple[int, bool]:
    """Return the sort key that chooses the repeat to show: red before lost before green, so that no failure is hidden.

    Among repeats with the same verdict, one published in full wins over a shortened one; then the latest wins.
    """
    has_facts = outcome.has_facts if isinstance(outcome, OutcomeRow) else bool(outcome.facts)
    return RANKING.index(outcome.verdict), has_facts


def rows(record: RunRecord, outcomes: Iterable[AnyOutcome]) -> Iterator[str]:
    """Yield every case once, the planned ones first, in planned order."""
    planned = [CellKey.parse(key).case for key in record.planned]
    yield from dict.fromkeys([*planned, *(outcome.case for outcome in outcomes)])


def grouped(cases: Sequence[str], outcomes: Iterable[AnyOutcome]) -> Iterator[Group]:
    """Yield the cases by feature; a case that never ran has no known feature and comes last."""
    feature = {outcome.case: outcome.group for outcome in outcomes}
    cases_by_group: dict[str, list[str]] = {}
    for case in cases:
        cases_by_group.setdefault(feature.get(case, NOT_RUN), []).append(case)
    for name in sorted(cases_by_group, key=lambda name: name == NOT_RUN):
        yield Group(name=name, cases=tuple(cases_by_group[name]))
