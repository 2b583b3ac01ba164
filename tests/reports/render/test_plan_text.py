"""A plan as text."""

from __future__ import annotations

from dataclasses import replace

from matrix.run.request import RunRequest
from matrix.run.run_plan import plan_of
from matrix.run.staleness import Staleness
from reports.render.plan_text import lines, stale_lines

PLAN = plan_of(RunRequest(profile="quick"))


def test_a_plan_ends_with_its_size_its_time_and_the_cases_left_out() -> None:
    *_, size, time, rest = lines(replace(PLAN, seconds=75.0))
    assert "1 set, 15 cases, 1 repeat each: 15 cells" in size
    assert time.startswith("about 1 min 15 s by past timings")
    assert rest.startswith("leaves out ")


def test_without_past_timings_no_time_is_claimed() -> None:
    assert any("no estimate" in line for line in lines(replace(PLAN, seconds=None)))


def test_stale_cells_are_counted_with_the_modules_that_changed() -> None:
    found = Staleness(current=3, unknown=1, stale={"s__a": ("cases.x", "cases.y"), "s__b": ("cases.x",)})
    assert list(stale_lines(found)) == [
        "3 cells current, 2 stale, 1 of unknown code",
        "  cases.x changed: 2",
        "  cases.y changed: 1",
    ]
