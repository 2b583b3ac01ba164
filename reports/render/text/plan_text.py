"""Draws a plan as text: the cells by group, the estimated time, and the cases left out."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from cases.space.plural import counted
from reports.results.wording import seconds_words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matrix.run.run_plan import RunPlan
    from matrix.run.staleness import Staleness


def lines(plan: RunPlan) -> Iterator[str]:
    for group in dict.fromkeys(case.group for case in plan.cases):
        yield group
        for case in (case for case in plan.cases if case.group == group):
            yield f"  {case.id}: {case.why}"
    yield ""
    yield (
        f"{plan.profile.name or 'chosen'}: {plan.profile.why}\n"
        f"{counted(len(plan.sets), 'set')}, {counted(len(plan.cases), 'case')}, "
        f"{counted(plan.repeats, 'repeat')} each: {counted(plan.cells, 'cell')}"
    )
    yield time_words(plan.seconds)
    for name, limit in plan.untimed.items():
        yield f"{name} never ran here: the estimate has its time limit, {seconds_words(limit)}"
    yield left_out_words(plan)


def stale_lines(result: Staleness) -> Iterator[str]:
    """Yield the number of stale cells, and the number that each changed module made stale."""
    yield f"{counted(result.current, 'cell')} current, {len(result.stale)} stale, {result.unknown} of unknown code"
    for name, count in result.changed_modules.most_common():
        yield f"  {name} changed: {count}"


def time_words(seconds: float | None) -> str:
    if seconds is None:
        return "no estimate: no cell was timed on this machine yet"
    return f"about {seconds_words(seconds)} by past timings, without downloads"


def left_out_words(plan: RunPlan) -> str:
    if not plan.left_out:
        return "leaves out no case"
    groups = Counter(case.group for case in plan.left_out)
    return f"leaves out {counted(len(plan.left_out), 'case')}: " + ", ".join(
        f"{n} of {group}" for group, n in groups.items()
    )
