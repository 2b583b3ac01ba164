"""Draws ``findings.md`` and ``by_design.md``: each finding with its threads or the search for them, and its cells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cases.space.plural import counted
from matrix.known.findings import Finding, ThreadStatus
from matrix.known.script_runs import Answer, ScriptRecord, place
from reports.render.known_page import cells, linked
from reports.render.markdown import code, text, warnings
from reports.results.known_results import Reproduction

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from matrix.known.error_size import Size
    from matrix.known.findings import Search, Thread
    from matrix.known.script_runs import ScriptRun
    from matrix.run.outcome import RunRecord
    from reports.results.known_results import ProblemResult

SILENT: Final = "nothing is raised or logged"
NOT_STOCK: Final = "Not measured with the stock API; see the last line."
SCRIPTS: Final = "../../matrix/known/reproducers"  # from the published page
SIZES: Final = "../../matrix/known/sizes"
ANSWERS: Final = {
    Answer.SHOWN: "shown on",
    Answer.RIGHT: "right on",
    Answer.CANNOT_RUN: "cannot run on",
    Answer.UNCLEAR: "another result on",
}


def bugs(record: RunRecord, results: Sequence[ProblemResult], scripts: ScriptRecord | None = None) -> str:
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
        scripts=scripts or ScriptRecord(),
    )


def by_design(record: RunRecord, results: Sequence[ProblemResult], scripts: ScriptRecord | None = None) -> str:
    """Return ``by_design.md``: behaviour that its authors chose, documented or deprecated."""
    chosen = [(row, each) for row, each in rows(results) if not row.is_bug]
    kinds = dict.fromkeys(row.kind for row, _ in chosen)
    return page(
        "By design, documented, deprecated",
        record,
        introduction="These cells are red, because the result differs from what the options request, but the packages "
        "state the behaviour. Each row links to the code or the page that does. [Findings](findings.md) are errors.",
        sections={kind.value.capitalize(): [each for each in chosen if each[0].kind is kind] for kind in kinds},
        scripts=scripts or ScriptRecord(),
    )


def page(
    title: str,
    record: RunRecord,
    *,
    introduction: str,
    sections: dict[str, list[tuple[Finding, ProblemResult]]],
    scripts: ScriptRecord,
) -> str:
    parts = [
        f"# {title}",
        *warnings(record.device),
        introduction,
        (
            "Each row has the smallest cases that show the behaviour, the failed check with its bound, and similar "
            f"green cases if any. {text(record.hardware)}, run {record.started:%Y-%m-%d %H:%M}, "
            f"ftmatrix {record.harness}."
        ),
        *introduction_of(scripts),
        *(part for name, found in sections.items() for part in section(name, found, scripts)),
    ]
    return "\n\n".join(parts) + "\n"


def rows(results: Iterable[ProblemResult]) -> Iterator[tuple[Finding, ProblemResult]]:
    yield from ((each.problem, each) for each in results if isinstance(each.problem, Finding))


def introduction_of(scripts: ScriptRecord) -> Iterator[str]:
    """Yield a paragraph about the scripts, if any were run."""
    if scripts.runs:
        machines = ", ".join(dict.fromkeys(text(each.hardware) for each in scripts.runs))
        first, last = (choose(each.on for each in scripts.runs).date() for choose in (min, max))
        days = f"on {first}" if first == last else f"from {first} to {last}"
        yield (
            "Each row also has a script of less than 60 lines that uses only the libraries. It computes the expected "
            "value by itself, and was run with the stock packages of the dated version sets: exit code 0 means right, "
            f"1 that the error shows, 77 that it cannot run there. {machines}, {days}."
        )


def section(name: str, found: Sequence[tuple[Finding, ProblemResult]], scripts: ScriptRecord) -> Iterator[str]:
    """Yield a section of rows, the silent ones first."""
    if found:
        yield f"## {name}"
        yield "\n".join(drawn(row, each, scripts) for row, each in sorted(found, key=lambda each: not each[0].silent))


def searches(unreported: Iterable[Finding]) -> str:
    """Return how the threads were searched, and what that does not show."""
    days: dict[str, set[str]] = {}
    for each in unreported:
        if each.searched:
            days.setdefault(each.searched.threads_to, set()).add(str(each.searched.on))
    if not days:
        return ""
    made = " and ".join(f"GitHub threads up to {last} on {listed(sorted(on))}" for last, on in sorted(days.items()))
    return (
        f"We searched {made}; each row has the words, and those after `docs:` searched documentation. Other words may "
        "find a thread, and later threads were not searched."
    )


def listed(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else "".join(words)


def drawn(row: Finding, each: ProblemResult, scripts: ScriptRecord) -> str:
    silent = f" ({SILENT})" if row.silent else ""
    lines = details(row, each, scripts.of(row.id))
    return "\n".join([f"- **{text(row.title)}**{silent}", *(f"  - {line}" for line in lines)])


def details(row: Finding, each: ProblemResult, runs: Sequence[ScriptRun]) -> Iterator[str]:
    yield f"To meet it: {text(row.meet)}"
    if row.documented:
        yield f"{row.kind.value.capitalize()}: {row.documented}"
    yield from (thread(each) for each in row.threads)
    if row.searched and not row.is_reported:
        yield search(row.searched)
    if not row.stock_api:
        shown = any(run.answer is Answer.SHOWN for run in runs)
        yield "The cells replace a part of a library; see the last line." if shown else NOT_STOCK
    yield from cells(each)
    if runs:
        yield script(row, runs)
    if row.size:
        yield size(row.size)
    if row.note:
        yield text(row.note)


def size(each: Size) -> str:
    """Return how large the error is on released sizes, with the script that measured it."""
    if each.same:
        return f"Size, for any model: {text(each.same)}"
    if each.unmeasured:
        return f"Size not measured: {text(each.unmeasured)}"
    link = f"[{text(each.script.removeprefix('sizes/'))}]({SIZES}/{each.path})"
    return f"Size: {text(each.shows)}. {text(each.setting)}; {link}, {text(each.versions)}, {each.day}"


def script(row: Finding, runs: Sequence[ScriptRun]) -> str:
    """Return the link to the script, the sets by its answer, and the line that it printed on the newest set."""
    answers = {answer: [each for each in runs if each.answer is answer] for answer in Answer}
    parts = [
        f"{ANSWERS[answer]} {', '.join(code(each.set) for each in answers[answer])}"
        for answer in ANSWERS
        if answers[answer]
    ]
    telling = max(answers[Answer.SHOWN] or runs, key=lambda each: each.set)
    link = f"[{text(row.id)}.py]({SCRIPTS}/{place(row.id)})"
    return f"Script {link}: {'; '.join(parts)}. On {code(telling.set)}: {code(telling.line)}"


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
