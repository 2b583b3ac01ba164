"""A plan in words."""

from __future__ import annotations

from dataclasses import replace

from matrix.run.request import Asked, plan_of
from reports.render.plan_text import lines

PLAN = plan_of(Asked(profile="quick"))


def test_a_plan_ends_with_its_size_its_time_and_what_it_leaves_out() -> None:
    *_, size, time, rest = lines(replace(PLAN, seconds=75.0))
    assert "1 sets, 15 cases, 1 times each: 15 cells" in size
    assert time.startswith("about 1 min 15 s by past timings")
    assert rest.startswith("leaves out ")


def test_without_past_timings_no_time_is_claimed() -> None:
    assert any("there is no telling how long it takes" in line for line in lines(replace(PLAN, seconds=None)))
