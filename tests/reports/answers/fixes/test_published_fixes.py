"""The published results confirm each published fix, cell by cell."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import TYPE_CHECKING

from cases.space.verdict import RED, Verdict
from matrix.keys import CellKey
from matrix.search import fixes
from matrix.search.fixes import Kind
from matrix.versions import sets
from reports.answers import knowledge
from reports.answers.fixes import remedies
from reports.results.loading import load
from reports.results.outcome_rows import whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matrix.run.outcome import Outcome

FOUND = fixes.read(knowledge.PUBLISHED / remedies.PUBLISHED_FIXES)
SURE = 2


@cache
def measured() -> Mapping[str, tuple[Outcome, ...]]:
    """Return the runs of each cell with the case code and machine of the search; the last of equal repeats."""
    runs: dict[str, dict[object, Outcome]] = defaultdict(dict)
    for each in knowledge.outcomes(knowledge.PUBLISHED):
        if (each.code, each.hardware) == (FOUND.code, FOUND.hardware):
            runs[each.cell][each.started] = whole(each)
    return {cell: tuple(each.values()) for cell, each in runs.items()}


def times(cell: str) -> int:
    """Return the number of runs. Of equal repeats only the last is published."""
    return sum(each.repeat for each in measured()[cell])


def is_red(cell: str) -> bool:
    return all(each.verdict in RED for each in measured()[cell])


def is_green(cell: str) -> bool:
    return all(each.verdict is Verdict.PASS for each in measured()[cell])


def test_every_red_cell_of_the_default_profile_was_searched() -> None:
    red = {each.cell for each in load(knowledge.PUBLISHED).matrix.red}
    assert red
    assert red - {str(CellKey(each.set, each.case)) for each in FOUND.fixes} == set()


def test_every_red_cell_is_red_twice_and_every_green_one_green_twice() -> None:
    found = [each for each in FOUND.fixes if each.kind is not Kind.NONE]
    red = {str(CellKey(each.set, each.case)) for each in found}
    green = {str(CellKey(each.to_set, each.to_case)) for each in found}
    assert [cell for cell in red if not is_red(cell) or times(cell) < SURE] == []
    assert [cell for cell in green if not is_green(cell) or times(cell) < SURE] == []


def test_every_witness_is_red() -> None:
    assert [cell for each in FOUND.fixes for cell in each.witnesses if not is_red(cell)] == []


def test_a_fix_without_a_version_move_stays_on_its_set() -> None:
    moved = [each for each in FOUND.fixes if each.kind in {Kind.SETTINGS, Kind.ALTERNATIVE} and each.set != each.to_set]
    assert moved == []


def test_every_set_that_a_fix_leads_to_is_known() -> None:
    known = {each.key for each in sets.load()}
    assert {each.to_set for each in FOUND.fixes if each.to_set} - known == set()


def test_every_cell_that_a_fix_names_was_tried() -> None:
    named = {
        (each.set, each.case, each.tried): {str(CellKey(each.to_set, each.to_case)), *each.witnesses}
        - {str(CellKey(each.set, each.case)), str(CellKey("", ""))}
        for each in FOUND.fixes
    }
    assert any(len(cells) > 1 for cells in named.values())
    assert {start: cells for start, cells in named.items() if len(cells) > start[2]} == {}


def test_a_fix_does_not_claim_more_green_runs_than_are_published() -> None:
    found = [each for each in FOUND.fixes if each.kind is not Kind.NONE]
    assert [each for each in found if not SURE <= each.runs <= times(str(CellKey(each.to_set, each.to_case)))] == []
