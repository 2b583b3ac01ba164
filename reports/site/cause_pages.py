"""A page per cause: how a failure looks, who meets it, on which sets, and what turns it green."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cases.space.plural import counted
from cases.space.verdict import Verdict
from reports.answers.diagnosis import signatures
from reports.results.grid import findings
from reports.results.known_results import address
from reports.site.columns import IN_HEAD
from reports.site.names import device_name
from reports.site.writer import file_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matrix.run.outcome import Outcome, SetRecord
    from reports.answers.diagnosis.signatures import Signature
    from reports.results.grid import CaseFailure
    from reports.site.case_fixes import CellFix
    from reports.site.problem_pages import ProblemPage
    from reports.site.published_data import PublishedData
    from reports.site.writer import SiteWriter

MOST_CASES = 60  # on the page; the matrix shows all of them


@dataclass(frozen=True, kw_only=True)
class CausePage:
    """A signature with the red cells that it explains, by device."""

    signature: Signature
    red: Mapping[str, Sequence[Outcome]]
    problems: tuple[ProblemPage, ...]

    @property
    def id(self) -> str:
        return self.signature.id

    @property
    def cause(self) -> str:
        return self.signature.cause

    @property
    def path(self) -> str:
        return f"cause/{file_name(self.id)}.html"

    @property
    def cells(self) -> int:
        return sum(map(len, self.red.values()))

    @property
    def silent(self) -> bool:
        return bool(self.signature.checks) and not self.signature.pattern

    @property
    def links(self) -> list[str]:
        own = (address(link) for link in self.signature.links)
        return list(dict.fromkeys([*own, *(link for each in self.problems for link in each.row["links"])]))

    def sets(self, device: str) -> list[str]:
        return list(dict.fromkeys(each.set for each in self.red.get(device, ())))

    @property
    def example(self) -> str:
        """A message or a failed check as a user sees it."""
        failures = [each for outcomes in self.red.values() for each in findings(outcomes)]
        return failures[0].headline if failures else ""


def pages(published: PublishedData, problems: Sequence[ProblemPage]) -> tuple[CausePage, ...]:
    """Return a page for every signature, those that raise nothing first, then those with the most cells."""
    red: dict[str, dict[str, list[Outcome]]] = {}
    for device, causes in published.causes.items():
        for cause in causes:
            if cause.signature is not None:
                red.setdefault(cause.signature.id, {}).setdefault(device, []).extend(cause.cells)
    named = {each.id: each for each in problems}
    rows = (
        CausePage(
            signature=row,
            red=red.get(row.id, {}),
            problems=tuple(named[name] for name in row.problems if name in named),
        )
        for row in signatures.load()
    )
    return tuple(sorted(rows, key=lambda each: (not each.silent, -each.cells, each.id)))


def write(
    site: SiteWriter,
    causes: Sequence[CausePage],
    published: PublishedData,
    fixes: Mapping[tuple[str, str, str], CellFix],
) -> None:
    unexplained = [
        (device, cause) for device, of_device in published.causes.items() for cause in of_device if not cause.signature
    ]
    site.page(
        "causes.html",
        "causes.html.j2",
        silent=[each for each in causes if each.silent and each.cells],
        loud=[each for each in causes if not each.silent and each.cells],
        rest=[each for each in causes if not each.cells],
        unexplained=unexplained,
        device_name=device_name,
    )
    for each in causes:
        site.page(
            each.path,
            "cause.html.j2",
            cause=each,
            failures={device: failures(outcomes) for device, outcomes in each.red.items()},
            fixes=common_fixes(each, fixes),
            spans=spans(each, published),
            device_name=device_name,
            most=MOST_CASES,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseSpan:
    """The oldest and the newest set with many cells on which a cause shows, in words."""

    device: str
    since: str
    until: str


def spans(cause: CausePage, published: PublishedData) -> list[CauseSpan]:
    return [each for device in cause.red if (each := span(cause, device, published)) is not None]


def span(cause: CausePage, device: str, published: PublishedData) -> CauseSpan | None:
    """Return since and until which set the cause shows; None if it shows only on sets with few cells."""
    known = [record for column in published.columns if column.is_main and (record := column.sets.get(device))]
    red: dict[str, set[str]] = {}
    for outcome in cause.red[device]:
        red.setdefault(outcome.set, set()).add(outcome.case)
    places = [place for place, each in enumerate(known) if each.key in red]
    if not places:
        return None
    oldest, newest = known[places[0]], known[places[-1]]
    verdicts = published.grids[device].verdicts

    def green(neighbour: SetRecord, cases: set[str]) -> str:
        count = sum(verdicts.get((case, neighbour.key)) is Verdict.PASS for case in cases)
        return f"; {count} of {counted(len(cases), 'case')} green on {neighbour.key}" if count else ""

    before = green(known[places[0] - 1], red[oldest.key]) if places[0] else "; no older set was measured"
    is_last = places[-1] == len(known) - 1
    after = ", the newest set" if is_last else green(known[places[-1] + 1], red[newest.key])
    return CauseSpan(device=device, since=stated(oldest) + before, until=stated(newest) + after)


def stated(record: SetRecord) -> str:
    """Return a set with its versions."""
    return f"{record.key} ({', '.join(f'{name} {record.pins[name]}' for name in IN_HEAD if name in record.pins)})"


def failures(outcomes: Sequence[Outcome]) -> tuple[CaseFailure, ...]:
    return findings(outcomes)


def common_fixes(cause: CausePage, fixes: Mapping[tuple[str, str, str], CellFix]) -> list[tuple[CellFix, int]]:
    """Return the proven fixes of the cells, the commonest first, each with the number of its cells."""
    found = [
        fixes[device, each.case, each.set]
        for device, outcomes in cause.red.items()
        for each in outcomes
        if (device, each.case, each.set) in fixes
    ]
    first = {each.words: each for each in reversed(found) if each.proven and each.green}
    return [
        (first[words], count) for words, count in Counter(each.words for each in found).most_common() if words in first
    ][:6]
