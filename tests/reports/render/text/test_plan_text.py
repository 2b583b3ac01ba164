"""A plan as text."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from matrix.run.execute import Suite
from matrix.run.request import RunRequest
from matrix.run.run_plan import plan_of
from matrix.run.scripts import user_scripts
from matrix.run.staleness import Staleness
from reports.render.text.plan_text import lines, stale_lines

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

PLAN = plan_of(RunRequest(profile="quick"))


def test_a_plan_ends_with_its_size_its_time_and_the_cases_left_out() -> None:
    *_, size, time, rest = lines(replace(PLAN, seconds=75.0))
    assert "1 set, 15 cases, 1 repeat each: 15 cells" in size
    assert time.startswith("about 1 min 15 s by past timings")
    assert rest.startswith("leaves out ")


def test_without_past_timings_no_time_is_claimed() -> None:
    assert any("no estimate" in line for line in lines(replace(PLAN, seconds=None)))


def test_a_script_that_never_ran_here_is_estimated_by_its_time_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FTMATRIX_CACHE", str(tmp_path / "cache"))
    (tmp_path / "train.py").write_text("# /// script\n# [tool.ftmatrix]\n# timeout_s = 90\n# ///\n")
    suite = Suite(scripts=user_scripts.load(tmp_path / "train.py"))
    plan = plan_of(RunRequest(sets="newest", device="cpu", workers=1, suite=suite))
    assert (plan.untimed, plan.cells) == ({"script-train": 90.0}, 1)
    assert plan.seconds is not None
    assert plan.seconds >= 90.0
    expected = "script-train never ran here: the estimate has its time limit, 1 min 30 s"
    assert expected in list(lines(plan))


def test_stale_cells_are_counted_with_the_modules_that_changed() -> None:
    found = Staleness(current=3, unknown=1, stale={"s__a": ("cases.x", "cases.y"), "s__b": ("cases.x",)})
    assert list(stale_lines(found)) == [
        "3 cells current, 2 stale, 1 of unknown code",
        "  cases.x changed: 2",
        "  cases.y changed: 1",
    ]
