"""Draws ``findings.md`` and ``by_design.md``: each finding with its threads or the search for them, and its cells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cases.space.plural import counted
from matrix.known.findings import Finding, ThreadStatus
from reports.render.known_page import cells, linked
from reports.render.markdown import CPU_WARNING, code, text
from reports.results.known_results import Reproduction

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from matrix.known.findings import Search, Thread
    from matrix.run.outcome import RunRecord
    from reports.results.known_results import ProblemResult

SILENT: Final = "nothing is raised or logged"


def bugs(record: RunRecord, results: Sequence[ProblemResult]) -> str:
    """Return ``findings.md``: the bugs, those without a known thread first."""
    chosen = [(row, each) for row, each in rows(results) if row.is_bug]
    shown = [(row, each) for row, each in chosen if each.status is Reproduction.REPRODUCED]
    reported = [each for each in shown if each[0].is_reported]
    unreported = [each for each in shown if not each[0].is_reported]
    return page(
        "Findings",
        record,
        introduction=f"{counted(len(shown), 'error')} of released versions: {len(reported)} with an upstream thread, "
        f"and {len(unreported)} without one that we found. {searches(row for row, _ in unreported)} Behaviour that is "
        "by design, documented or deprecated is on [a page of its own](by_design.md).",
        sections={
            "No thread found": unreported,
            "Reported upstream": reported,
            "Not reproduced by this run": [each for each in chosen if each not in shown],
        },
    )


def by_design(record: RunRecord, results: Sequence[ProblemResult]) -> str:
    """Return ``by_design.md``: behaviour that its authors chose, documented or deprecated."""
    chosen = [(row, each) for row, each in rows(results) if not row.is_bug]
    kinds = dict.fromkeys(row.kind for row, _ in chosen)
    return page(
        "By design, documented, deprecated",
        record,
        introduction="These cells are red, because the result differs from what the options request, but the packages "
        "state the behaviour. Each row links to the code or the page that does. [Findings](findings.md) are errors.",
        sections={kind.value.capitalize(): [each for each in chosen if each[0].kind is kind] for kind in kinds},
    )


def page(
    title: str, record: RunRecord, *, introduction: str, sections: dict[str, list[tuple[Finding, ProblemResult]]]
) -> str:
    parts = [
        f"# {title}",
        *([CPU_WARNING] if record.device == "cpu" else []),
        introduction,
        (
            "Each row has the smallest cases that show the behaviour, the failed check with its bound, and similar "
            f"green cases if any. {text(record.hardware)}, run {record.started:%Y-%m-%d %H:%M}, "
            f"ftmatrix {record.harness}."
        ),
        *(part for name, found in sections.items() for part in section(name, found)),
    ]
    return "\n\n".join(parts) + "\n"


def rows(results: Iterable[ProblemResult]) -> Iterator[tuple[Finding, ProblemResult]]:
    yield from ((each.problem, each) for each in results if isinstance(each.problem, Finding))


def section(name: str, found: Sequence[tuple[Finding, ProblemResult]]) -> Iterator[str]:
    """Yield a section of rows, the silent ones first."""
    if found:
        yield f"## {name}"
        yield "\n".join(drawn(row, each) for row, each in sorted(found, key=lambda each: not each[0].silent))


def searches(unreported: Iterable[Finding]) -> str:
    """Return how the threads were searched, and what that does not show."""
    made = dict.fromkeys((each.searched.on, each.searched.threads_to) for each in unreported if each.searched)
    days = " and ".join(f"on {on} among GitHub threads up to {threads_to}" for on, threads_to in made)
    if not days:
        return ""
    return (
        f"We searched {days}; each row has the words, and those after `docs:` searched documentation. Other words may "
        "find a thread, and later threads were not searched."
    )


def drawn(row: Finding, each: ProblemResult) -> str:
    silent = f" ({SILENT})" if row.silent else ""
    return "\n".join([f"- **{text(row.title)}**{silent}", *(f"  - {line}" for line in details(row, each))])


def details(row: Finding, each: ProblemResult) -> Iterator[str]:
    yield f"To meet it: {text(row.meet)}"
    if row.documented:
        yield f"{row.kind.value.capitalize()}: {row.documented}"
    yield from (thread(each) for each in row.threads)
    if row.searched and not row.is_reported:
        yield search(row.searched)
    if not row.stock_api:
        yield "Not measured with the stock API; see the last line."
    yield from cells(each)
    if row.note:
        yield text(row.note)


def thread(each: Thread) -> str:
    link, about = linked(each.link), text(each.about)
    match each.status:
        case ThreadStatus.OPEN:
            line = f"reported in {link}, not fixed"
        case ThreadStatus.REPORTED:
            line = f"reported in {link}"
        case ThreadStatus.FIXED:
            line = f"fixed in {text(each.release)} by {link}"
        case ThreadStatus.RELATED:
            line = f"related, not the same: {link}"
    return f"{line} ({about})" if about else line


def search(made: Search) -> str:
    words = ", ".join(code(each) for each in made.words)
    return f"no thread found on {made.on} among GitHub threads up to {made.threads_to} with these words: {words}"
