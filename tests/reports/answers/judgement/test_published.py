"""The judgement of all published cells: a job that is a red cell is red, and one that is a green cell is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cases.space.options import OWN_CODE
from cases.space.verdict import RED, Verdict
from reports.answers import knowledge
from reports.answers.judgement.coverage import MeasuredCells, recorded_options
from reports.answers.judgement.facts import facts_of
from reports.answers.judgement.flows import JobFlows
from reports.answers.judgement.judge import JobStatus, JudgedJob, judge
from reports.answers.judgement.known_errors import MeasuredErrors
from reports.answers.judgement.nearest_sets import is_plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.space.options import Options
    from matrix.run.outcome import Outcome
    from reports.results.grid import Grid

FEWEST = {"cpu": 3000, "cuda": 1500}


def jobs(matrix: Grid) -> Iterator[tuple[Outcome, Options]]:
    """Yield the red and green cells that are a part of a job; sets with a seventh package are never answered from."""
    plain = {column.key for column in matrix.sets if is_plain(column)}
    for outcome in matrix.outcomes:
        options = recorded_options(tuple(outcome.options.items()))
        ran = outcome.verdict in RED | {Verdict.PASS} and outcome.set in plain
        if ran and options is not None and options.flow not in OWN_CODE:
            yield outcome, options


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_published_cell_is_judged_as_it_is(device: str) -> None:
    grids = knowledge.by_device()
    matrix, known = grids[device], MeasuredErrors(grids["cpu"])
    evidence, pins = MeasuredCells(matrix, on_cpu=device == "cpu"), {each.key: each.pins for each in matrix.sets}
    wrong, judged = [], 0
    for outcome, options in jobs(matrix):
        flows = JobFlows(certain=(options.flow,), possible=())
        facts = facts_of(options, flows, device=device)
        found = judge(JudgedJob(options=options, flows=flows, facts=facts), pins[outcome.set], evidence, known)
        red = outcome.verdict in RED and not found.training.machine_reds  # other machines may run it
        if (red and found.status is not JobStatus.RED) or (
            outcome.verdict is Verdict.PASS and found.status is not JobStatus.GREEN
        ):
            wrong.append((outcome.cell, outcome.verdict.value, found.status.value))
        judged += 1
    assert wrong == []
    assert judged >= FEWEST[device]
