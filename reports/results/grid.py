"""The matrix as a value: columns, rows and what is known of each cell. It decides nothing about looks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cases.space.verdict import RED, Phase, Verdict
from matrix.errors import UserError
from reports.results.wording import first_line, gist, headline

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from matrix.run.outcome import Outcome, RunRecord, SetRecord

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
class Finding:
    """A case that went wrong in one way, on one or more sets."""

    case: str
    verdict: Verdict
    phase: Phase | None
    headline: str
    sets: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Sets are columns, oldest first; cases are rows.

    Of a cell that was run again after a loss, the last attempt counts; of one that was repeated, the worst verdict.
    """

    sets: tuple[SetRecord, ...]
    groups: tuple[Group, ...]
    cells: Mapping[tuple[str, str], Outcome]
    planned: frozenset[tuple[str, str]]
    repeats: Mapping[tuple[str, str], tuple[Verdict, ...]]

    @property
    def cases(self) -> tuple[str, ...]:
        return tuple(case for group in self.groups for case in group.cases)

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """Every known cell, row by row."""
        pairs = ((case, column.key) for case in self.cases for column in self.sets)
        return tuple(self.cells[pair] for pair in pairs if pair in self.cells)

    def lookup(self, case: str, version_set: str) -> Outcome | None:
        return self.cells.get((case, version_set))

    def verdict(self, case: str, version_set: str) -> Verdict | None:
        """None is unknown: not run. A set that could not be installed blocks its cells, recorded or not."""
        outcome = self.lookup(case, version_set)
        if outcome is not None:
            return outcome.verdict
        return Verdict.BLOCKED if version_set in self.blocked else None

    @property
    def blocked(self) -> Mapping[str, str]:
        """Why, by set."""
        return {column.key: column.blocked for column in self.sets if column.blocked}

    def belongs(self, case: str, version_set: str) -> bool:
        """Whether there is such a cell: a run need not have every case on every set."""
        return (case, version_set) in self.planned or (case, version_set) in self.cells

    @property
    def flaky(self) -> Mapping[tuple[str, str], Counter[Verdict]]:
        """How often each verdict came out, by case and set, where repeats disagree; a loss says nothing."""
        ran = RED | {Verdict.PASS}
        return {cell: Counter(each) for cell, each in self.repeats.items() if len(ran & set(each)) > 1}

    def counts(self, version_set: str | None = None) -> Counter[Verdict | None]:
        """How many cells have each verdict, of one set or of all; None counts the unknown ones."""
        columns = [version_set] if version_set is not None else [column.key for column in self.sets]
        return Counter(self.verdict(case, key) for case in self.cases for key in columns if self.belongs(case, key))

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The red cells in row order."""
        return findings(outcome for outcome in self.outcomes if outcome.verdict in RED)

    @property
    def skips(self) -> Counter[str]:
        """Why cells were skipped, with how many, the commonest first."""
        reasons = Counter(first_line(o.reason) for o in self.outcomes if o.verdict is Verdict.SKIP)
        return Counter(dict(reasons.most_common()))


def findings(red: Iterable[Outcome]) -> tuple[Finding, ...]:
    """What went wrong; the same case gone wrong in the same way is told once."""
    alike: dict[tuple[str, Verdict, Phase | None, str], list[Outcome]] = {}
    for outcome in red:
        alike.setdefault((outcome.case, outcome.verdict, outcome.phase, gist(outcome)), []).append(outcome)
    return tuple(finding(outcomes) for outcomes in alike.values())


def finding(outcomes: Sequence[Outcome]) -> Finding:
    first = outcomes[0]
    return Finding(
        case=first.case,
        verdict=first.verdict,
        phase=first.phase,
        headline=headline(first),
        sets=tuple(outcome.set for outcome in outcomes),
    )


def grid(record: RunRecord, sets: Iterable[SetRecord], outcomes: Iterable[Outcome]) -> Grid:
    """The grid of a run.

    Raises:
        UserError: an outcome of a set that is not among the sets.
    """
    columns = tuple(sorted(sets, key=lambda column: (column.as_of, column.key)))
    attempts = {(outcome.case, outcome.set, outcome.repeat): outcome for outcome in sorted(outcomes, key=age)}
    repeats: dict[tuple[str, str], list[Outcome]] = {}
    for (case, key, _), outcome in attempts.items():
        repeats.setdefault((case, key), []).append(outcome)
    last = {cell: max(each, key=severity) for cell, each in repeats.items()}
    strangers = {key for _, key in last} - {column.key for column in columns}
    if strangers:
        raise UserError(
            f"there are outcomes of {', '.join(sorted(strangers))}, but no record of that set; render the whole run"
        )
    return Grid(
        sets=columns,
        groups=tuple(grouped(list(rows(record, last.values())), last.values())),
        cells=last,
        planned=frozenset((case, key) for key, _, case in (cell.partition("__") for cell in record.planned)),
        repeats={cell: tuple(outcome.verdict for outcome in each) for cell, each in repeats.items()},
    )


def severity(outcome: Outcome) -> tuple[int, bool, float]:
    """What of several repeats is shown: red before lost before green, so that nothing is covered.

    Of those that ended alike, one that was published in full before one that was shortened; then the latest.
    """
    return RANKING.index(outcome.verdict), bool(outcome.facts), outcome.started.timestamp()


def age(outcome: Outcome) -> tuple[float, int]:
    """Time first: merged runs number their attempts independently."""
    return outcome.started.timestamp(), outcome.attempt


def rows(record: RunRecord, outcomes: Iterable[Outcome]) -> Iterator[str]:
    """Every case once, the planned ones first, in planned order."""
    planned = [key.partition("__")[2] for key in record.planned]
    yield from dict.fromkeys([*planned, *(outcome.case for outcome in outcomes)])


def grouped(cases: Sequence[str], outcomes: Iterable[Outcome]) -> Iterator[Group]:
    """The cases by feature; a case that never ran has no known feature and comes last."""
    feature = {outcome.case: outcome.group for outcome in outcomes}
    names = dict.fromkeys(feature.get(case, NOT_RUN) for case in cases)
    for name in sorted(names, key=lambda name: name == NOT_RUN):
        yield Group(name=name, cases=tuple(case for case in cases if feature.get(case, NOT_RUN) == name))
