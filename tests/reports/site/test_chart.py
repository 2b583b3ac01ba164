"""The curves of a job and its twin as small charts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from cases.space.verdict import Verdict
from matrix.run.outcome import CheckRecord
from reports.site.chart import HEIGHT, MARGIN, MOST, WIDTH, chart, charted

if TYPE_CHECKING:
    from collections.abc import Callable

    from matrix.run.outcome import Outcome

TOGETHER = {"loss": (5.0, 4.0, 3.0), "twin loss": (5.0, 4.0, 3.0)}
APART = {"loss": (5.0, 4.5, 4.4), "twin loss": (5.0, 4.0, 3.0)}
BOUND = CheckRecord(name="loss", value=0.4, op="<=", bound=0.01, ok=False)


def test_curves_part_at_the_first_step_beyond_the_bound_of_the_check() -> None:
    found = chart("loss", (5.0, 4.01, 3.2), (5.0, 4.0, 3.0), 0.01)
    assert found.parts_at == 3
    assert found.words == "loss: leaves the twin's at step 3, with 3.2 instead of 3"


def test_curves_within_the_bound_stay_together() -> None:
    found = chart("loss", (5.0, 4.01), (5.0, 4.0), 0.01)
    assert (found.parts_at, found.words) == (0, "loss: 5, 4.01; the twin's: 5, 4")


def test_a_long_series_is_shortened_in_words() -> None:
    values = tuple(map(float, range(20, 0, -1)))
    assert chart("loss", values, values, 0.1).words == "loss: 20, 19, 18 … 1; the twin's: 20, 19, 18 … 1"


def test_a_value_that_is_not_finite_parts_the_curves_and_leaves_a_gap() -> None:
    found = chart("loss", (5.0, math.nan, 3.0), (5.0, 4.0, 3.0), 0.5)
    assert found.parts_at == 2
    assert len(found.lines(found.found)) == 2
    assert len(found.dots(found.found)) == 2


def test_points_lie_within_the_chart() -> None:
    for values in ((5.0, 4.0, 3.0), (2.0, 2.0), (0.0,), (math.inf, math.inf), (-1.0, 1e30)):
        for x, y in (found := chart("loss", values, values, 0.1)).dots(found.found):
            assert MARGIN <= float(x) <= WIDTH - MARGIN
            assert MARGIN <= float(y) <= HEIGHT - MARGIN


def test_the_curves_of_a_check_that_holds_do_not_part(build_outcome: Callable[..., Outcome]) -> None:
    holds = BOUND.model_copy(update={"ok": True})
    (cell,) = charted([("cpu", build_outcome(series=APART, checks=(holds,)))])
    assert cell.charts[0].parts_at == 0


def test_a_cell_without_series_has_no_chart(build_outcome: Callable[..., Outcome]) -> None:
    assert charted([("cpu", build_outcome())]) == []


def test_wrong_cells_come_first_and_then_the_newest_of_each_device(build_outcome: Callable[..., Outcome]) -> None:
    cells = [
        ("cpu", build_outcome(on="2024-06", verdict="wrong", series=APART, checks=(BOUND,))),
        ("cpu", build_outcome(on="2025-06", series=TOGETHER)),
        ("cpu", build_outcome(on="2026-06", series=TOGETHER)),
        ("cuda", build_outcome(on="2026-06", series=TOGETHER)),
    ]
    shown = charted(cells)
    assert [(each.device, each.set) for each in shown] == [("cpu", "2024-06"), ("cpu", "2026-06"), ("cuda", "2026-06")]
    assert shown[0].charts[0].parts_at == 2


def test_a_case_shows_few_cells(build_outcome: Callable[..., Outcome]) -> None:
    cells = [("cpu", build_outcome(on=f"{year}-06", verdict="wrong", series=APART)) for year in range(2000, 2030)]
    shown = charted(cells)
    assert [each.set for each in shown] == [f"{2029 - number}-06" for number in range(MOST)]


def test_the_numbers_are_rows_of_a_table(build_outcome: Callable[..., Outcome]) -> None:
    (cell,) = charted([("cpu", build_outcome(verdict=Verdict.WRONG.value, series=APART))])
    assert cell.heads == ["Loss", "Twin's loss"]
    assert cell.rows == [["5", "5"], ["4.5", "4"], ["4.4", "3"]]


def test_series_of_different_lengths_leave_empty_places(build_outcome: Callable[..., Outcome]) -> None:
    series = {**TOGETHER, "gradient norm": (1.0, 2.0), "twin gradient norm": (1.0, 2.0)}
    (cell,) = charted([("cpu", build_outcome(series=series))])
    assert cell.rows[1:] == [["4", "4", "2", "2"], ["3", "3", "", ""]]


def test_the_data_of_a_chart_are_what_the_page_draws(build_outcome: Callable[..., Outcome]) -> None:
    (cell,) = charted([("cpu", build_outcome(verdict="wrong", series=APART, checks=(BOUND,)))])
    (drawn,), (chart,) = cell.data["charts"], cell.charts
    assert drawn["words"] == "Loss: leaves the twin's at step 2, with 4.5 instead of 4"
    assert (drawn["found"], drawn["twin"]) == (chart.lines(chart.found), chart.lines(chart.twin))
    assert float(drawn["apart"]) == WIDTH / 2
