from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from cases.space.verdict import Verdict
from matrix.errors import UserError
from matrix.run.outcome import CheckRecord
from reports.results.grid import grid

if TYPE_CHECKING:
    from collections.abc import Callable

    from matrix.run.outcome import Outcome, RunRecord, SetRecord

    Run = tuple[RunRecord, list[SetRecord], list[Outcome]]
    BuildOutcome = Callable[..., Outcome]
    BuildSet = Callable[..., SetRecord]
    BuildRun = Callable[..., RunRecord]


def test_sets_are_ordered_by_date(build_set: BuildSet, build_run: BuildRun) -> None:
    sets = [build_set("2025-09"), build_set("2024-06"), build_set("2024-09")]
    assert [column.key for column in grid(build_run(), sets, []).sets] == ["2024-06", "2024-09", "2025-09"]


def test_cases_are_in_planned_order_by_feature(
    build_outcome: BuildOutcome, build_set: BuildSet, build_run: BuildRun
) -> None:
    outcomes = [build_outcome("c", group="Y"), build_outcome("b", group="X"), build_outcome("a", group="Y")]
    matrix = grid(build_run("2024-06__a", "2024-06__b", "2024-06__c"), [build_set()], outcomes)
    assert [(group.name, group.cases) for group in matrix.groups] == [("Y", ("a", "c")), ("X", ("b",))]


def test_a_planned_case_that_never_ran_is_a_row_of_unknown_cells(build_set: BuildSet, build_run: BuildRun) -> None:
    matrix = grid(build_run("2024-06__a"), [build_set()], [])
    assert matrix.verdict("a", "2024-06") is None
    assert matrix.counts() == {None: 1}


def test_the_last_attempt_counts(build_outcome: BuildOutcome, build_set: BuildSet, build_run: BuildRun) -> None:
    first = build_outcome("a", verdict="lost")
    again = build_outcome("a", attempt=2)
    assert grid(build_run(), [build_set()], [first, again]).lookup("a", "2024-06") == again


def test_a_resumed_run_wins_over_more_attempts(
    build_outcome: BuildOutcome, build_set: BuildSet, build_run: BuildRun
) -> None:
    old = build_outcome("a", verdict="fail", attempt=3)
    new = build_outcome("a", started=old.started + timedelta(days=1))
    assert grid(build_run(), [build_set()], [old, new]).lookup("a", "2024-06") == new


def test_the_outcome_that_was_stored_last_wins_if_the_clock_went_back(
    build_outcome: BuildOutcome, build_set: BuildSet, build_run: BuildRun
) -> None:
    old = build_outcome("a", verdict="fail")
    new = build_outcome("a", started=old.started - timedelta(days=1))
    assert grid(build_run(), [build_set()], [old, new]).lookup("a", "2024-06") == new


def test_a_set_that_cannot_be_installed_blocks_its_cells(build_set: BuildSet, build_run: BuildRun) -> None:
    matrix = grid(build_run("2024-06__a"), [build_set(blocked="no such version")], [])
    assert matrix.verdict("a", "2024-06") is Verdict.BLOCKED


def test_the_grid_shows_the_worst_repeat_and_marks_the_cell_flaky(
    build_outcome: BuildOutcome, build_set: BuildSet, build_run: BuildRun
) -> None:
    outcomes = [build_outcome("a", verdict=each, repeat=n) for n, each in enumerate(("pass", "wrong", "pass"), 1)]
    matrix = grid(build_run(), [build_set()], outcomes)
    assert matrix.verdict("a", "2024-06") is Verdict.WRONG
    assert matrix.flaky == {("a", "2024-06"): {Verdict.PASS: 2, Verdict.WRONG: 1}}


def test_repeats_that_agree_are_not_flaky(
    build_outcome: BuildOutcome, build_set: BuildSet, build_run: BuildRun
) -> None:
    outcomes = [build_outcome("a", verdict="fail", repeat=n) for n in (1, 2)]
    assert grid(build_run(), [build_set()], outcomes).flaky == {}


def test_a_loss_that_was_run_again_does_not_make_a_cell_flaky(
    build_outcome: BuildOutcome, build_set: BuildSet, build_run: BuildRun
) -> None:
    outcomes = [build_outcome("a", verdict="lost"), build_outcome("a", attempt=2)]
    assert grid(build_run(), [build_set()], outcomes).flaky == {}


def test_an_unplanned_cell_is_not_unknown(
    build_outcome: BuildOutcome, build_set: BuildSet, build_run: BuildRun
) -> None:
    outcomes = [build_outcome("a"), build_outcome("b", "2024-09")]
    matrix = grid(build_run(), [build_set(), build_set("2024-09")], outcomes)
    assert matrix.counts().total() == 2


def test_every_cell_is_counted_once(small: Run) -> None:
    matrix = grid(*small)
    assert matrix.counts().total() == len(matrix.cases) * len(matrix.sets)
    assert matrix.counts("2024-06").total() == len(matrix.cases)


def test_the_same_failure_on_several_sets_is_one_finding(small: Run) -> None:
    found = {finding.case: finding.sets for finding in grid(*small).findings if finding.verdict is Verdict.FAIL}
    assert found == {"train-lora-fsdp1-bf16": ("2024-06", "2024-09")}


def test_the_same_missed_check_is_one_finding_whatever_was_measured(
    build_outcome: BuildOutcome, build_set: BuildSet, build_run: BuildRun
) -> None:
    outcomes = [
        build_outcome("a", key, "wrong", checks=(CheckRecord(name="loss", value=value, op="<=", bound=0.1, ok=False),))
        for key, value in {"2024-06": 0.2, "2024-09": 0.3}.items()
    ]
    matrix = grid(build_run(), [build_set("2024-06"), build_set("2024-09")], outcomes)
    assert len(matrix.findings) == 1


def test_lost_skipped_and_blocked_cells_are_no_findings(small: Run) -> None:
    verdicts = {finding.verdict for finding in grid(*small).findings}
    assert not verdicts & {Verdict.LOST, Verdict.SKIP, Verdict.BLOCKED}


def test_skips_are_counted_by_reason(small: Run) -> None:
    assert grid(*small).skips == {"bitsandbytes 0.43 quantises only on GPUs": 1}


def test_an_outcome_of_an_undescribed_set_is_refused(build_outcome: BuildOutcome, build_run: BuildRun) -> None:
    with pytest.raises(UserError, match="outcomes of 2024-06"):
        grid(build_run(), [], [build_outcome()])


def test_a_grid_computes_each_derived_value_once(
    build_run: Callable[..., RunRecord], build_set: Callable[..., SetRecord], build_outcome: Callable[..., Outcome]
) -> None:
    """Reports ask for these once for every cell."""
    matrix = grid(build_run(), [build_set()], [build_outcome("a"), build_outcome("a", verdict="fail", repeat=2)])
    names = ("cases", "outcomes", "flaky", "blocked", "findings", "skips", "counts_by_set")
    assert [name for name in names if getattr(matrix, name) is not getattr(matrix, name)] == []


def test_counts_are_those_of_all_sets_together(small: Run) -> None:
    matrix = grid(*small)
    columns = [column.key for column in matrix.sets]
    assert matrix.counts() == sum((matrix.counts(key) for key in columns), Counter())


def test_counts_can_be_changed_without_changing_the_grid(small: Run) -> None:
    matrix = grid(*small)
    matrix.counts("2024-06").clear()
    assert matrix.counts("2024-06").total()
