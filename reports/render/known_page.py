"""Draws ``known_problems.md``: each problem with its cells, and the tested advice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cases.space.plural import counted
from cases.space.verdict import Verdict
from reports.render.markdown import code, table, text, warnings
from reports.results.known_results import AdviceResult, Reproduction, address, counts, entries
from reports.results.verdict_style import LOOKS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matrix.run.outcome import RunRecord
    from reports.results.known_results import CellResult, JudgedAdvice, ProblemResult


def markdown(record: RunRecord, results: Sequence[ProblemResult]) -> str:
    families = [each for each in results if each.problem.family]
    sections = [
        "# Known problems",
        *warnings(record.device),
        summary(record, results),
        *(["## Families of failures", *(family(each) for each in families)] if families else []),
        *(part(status, [each for each in results if each.status is status]) for status in Reproduction),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def summary(record: RunRecord, results: Sequence[ProblemResult]) -> str:
    rows, reports = counts(results), entries(results)
    statuses = ", ".join(f"{reports[each]} {each.value}" for each in Reproduction)
    shown = sum(each.has_green_cell for each in results if each.status is Reproduction.REPRODUCED)
    with_remedy = sum(bool(each.problem.green) for each in results if each.status is Reproduction.REPRODUCED)
    return (
        f"{counted(rows.total(), 'problem')} from {counted(reports.total(), 'upstream report')}: {statuses}. "
        f"{shown} of {counted(with_remedy, 'reproduced problem')} with a known remedy "
        f"{'has' if with_remedy == 1 else 'have'} a green cell that shows it. {text(record.hardware)}, "
        f"run {record.started:%Y-%m-%d %H:%M}, ftmatrix {record.harness}."
    )


def family(each: ProblemResult) -> str:
    claims = table(
        ("advice", "result", "holds on", "fails on", ""),
        [claim(advice) for advice in each.advice],
    )
    return f"### {text(each.problem.title)}\n\n{row(each)}" + (f"\n\n{claims}" if each.advice else "")


def claim(advice: JudgedAdvice) -> tuple[str, ...]:
    holding = f"**{advice.holding.value}**" if advice.holding is not AdviceResult.UNKNOWN else advice.holding.value
    return text(advice.says), holding, sets(advice.holds_on), sets(advice.fails_on), text(advice.note)


def sets(keys: Sequence[str]) -> str:
    return ", ".join(code(key) for key in keys)


def part(status: Reproduction, results: Sequence[ProblemResult]) -> str:
    if not results:
        return ""
    return f"## {status.value.capitalize()}\n\n" + "\n".join(row(each) for each in results)


def row(each: ProblemResult) -> str:
    links = ", ".join(linked(link) for link in each.problem.links)
    threads = f" ({links})" if links else ""
    lines = [f"- **{text(each.problem.title)}**{threads}", *(f"  - {line}" for line in details(each))]
    return "\n".join(lines)


def linked(link: str) -> str:
    return f"[{text(link)}]({address(link)})"


def details(each: ProblemResult) -> Iterator[str]:
    yield from cells(each)
    if each.problem.needs:
        yield f"needs {text(each.problem.needs)}"
    if each.problem.note:
        yield text(each.problem.note)


def cells(each: ProblemResult) -> Iterator[str]:
    """Yield the red cells, and the green ones with why they are green."""
    yield from (cell(shown) for shown in each.red)
    for shown, why in zip(each.green, reasons(each), strict=True):
        yield cell(shown) + (f" ({text(why)})" if why else "")


def reasons(each: ProblemResult) -> Iterator[str]:
    for named in each.problem.green:
        yield from (named.because for _ in named.sets)


def cell(shown: CellResult) -> str:
    signs = {verdict.value: look.sign for verdict, look in LOOKS.items()}
    reason = f": {code(shown.headline)}" if shown.headline else ""
    doubt = (
        ""
        if shown.as_said or shown.verdict in (Verdict.SKIP.value, Reproduction.NOT_RUN.value)
        else " (not as expected)"
    )
    result = f"{shown.verdict}{doubt}{reason}"
    measured = f"; {text(shown.measured)}" if shown.measured else ""
    return f"{signs.get(shown.verdict, '')} {code(shown.case)} on {code(shown.set)}: {result}{measured}".strip()
