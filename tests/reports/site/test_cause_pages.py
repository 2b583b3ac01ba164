"""The page of a cause says since and until which set it shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cases.space.verdict import Verdict
from reports.answers.diagnosis.signatures import CauseKind, Signature
from reports.results.loading import results
from reports.site.cause_pages import CausePage, span
from reports.site.columns import columns_of
from reports.site.published_data import PublishedData

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from matrix.run.outcome import Outcome, RunRecord, SetRecord

    Show = Callable[[str], tuple[str, str]]

YEARS = (2024, 2025, 2026)


@pytest.fixture
def show(
    tmp_path: Path,
    build_outcome: Callable[..., Outcome],
    build_set: Callable[..., SetRecord],
    build_run: Callable[..., RunRecord],
) -> Show:
    """Return since and until when a cause shows, for the verdicts of one case on sets of three years."""

    def shown(verdicts: str) -> tuple[str, str]:
        words = [{"p": "pass", "f": "fail", "s": "skip"}[letter] for letter in verdicts]
        cells = [build_outcome("a", f"{year}-06", word) for year, word in zip(YEARS, words, strict=True)]
        grid = results(build_run(), [build_set(f"{year}-06") for year in YEARS], cells).matrix
        grids = {"cpu": grid}
        published = PublishedData(
            folder=tmp_path,
            answers=grids,
            grids=grids,
            columns=columns_of(grids),
            groups=grid.groups,
            measurements=(),
            sources=(),
        )
        red = [each for each in cells if each.verdict is Verdict.FAIL]
        signature = Signature(id="a", pattern="a", cause="because", kind=CauseKind.BUG)
        found = span(CausePage(signature=signature, red={"cpu": red}, problems=()), "cpu", published)
        assert found is not None
        return found.since, found.until

    return shown


def test_a_cause_that_came_and_went_names_the_green_neighbours(show: Show) -> None:
    since, until = show("pfp")
    assert since.startswith("2025-06 (torch 2.3.1, transformers 4.41.2, peft 0.11.1, bitsandbytes 0.43.1)")
    assert since.endswith("; 1 of 1 case green on 2024-06")
    assert until.endswith("; 1 of 1 case green on 2026-06")


def test_a_cause_of_all_sets_has_no_beginning_and_no_end(show: Show) -> None:
    since, until = show("fff")
    assert since.startswith("2024-06")
    assert since.endswith("; no older set was measured")
    assert until.startswith("2026-06")
    assert until.endswith(", the newest set")


def test_a_neighbour_that_could_not_run_the_case_shows_nothing(show: Show) -> None:
    since, until = show("sfs")
    assert since.endswith("bitsandbytes 0.43.1)")
    assert since == until
