"""Tests ``ftmatrix nightly`` without a measurement: bad input, and what a past night would have filed."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

import pytest
import typer

from matrix.errors import UserError
from reports.answers import knowledge
from reports.commands import baseline, nightly
from reports.commands.nights import base_set

if TYPE_CHECKING:
    from pathlib import Path


def test_without_a_baseline_the_newest_packaged_set_is_the_base(tmp_path: Path) -> None:
    found = base_set.find(tmp_path, "cpu")
    assert found.lock.version_set.default
    assert "no baseline of cpu was accepted" in found.source


def test_the_base_set_of_a_baseline_is_its_newest_slice_with_its_outcomes(tmp_path: Path) -> None:
    baseline.accept(knowledge.PUBLISHED, tmp_path / "baseline", tmp_path / "history")
    found = base_set.find(tmp_path / "baseline", "cpu")
    key = found.lock.version_set.key
    assert key in found.source
    assert found.outcomes
    assert {each.set for each in found.outcomes} == {key}
    assert found.lock.versions["peft"] == found.lock.version_set.pins["peft"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"pre": ["numpy"]}, "--pre numpy: not one of the packages"),
        ({"on": "yesterday"}, "--night yesterday: expected a day such as 2026-11-25"),
        ({"results_to_compare": ["2026-09", "2026-11"]}, "two results to compare need --dry-run"),
        ({"results_to_compare": ["2026-09"], "dry_run": True}, "name two results to compare, BASE and NEW"),
        ({"base": "2025-13", "device": "cpu"}, "unknown version set '2025-13'"),
        ({"profile": "nights", "device": "cpu"}, "unknown profile 'nights'"),
    ],
)
def test_bad_input_is_one_sentence(arguments: dict[str, object], problem: str, tmp_path: Path) -> None:
    places = {"baselines": tmp_path / "baseline", "out": tmp_path / "nightly", "history": tmp_path / "history"}
    with pytest.raises(UserError, match=problem):
        nightly.nightly(**{**places, **arguments})  # type: ignore[arg-type]
    assert not (tmp_path / "nightly").exists()


def test_a_day_is_read() -> None:
    assert nightly.day_of("2026-11-25") == date(2026, 11, 25)


def test_a_replay_files_regressions_and_only_lists_what_became_green(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended:
        nightly.nightly(["2025-09", "2025-12"], device="cpu", dry_run=True)
    assert ended.value.exit_code == nightly.REGRESSED
    text = capsys.readouterr().out
    filed, green = text.split("# For issues that are open, if any")
    assert "`bitsandbytes 0.47.0 -> 0.49.0`" in filed
    assert "- fixed: " in green
    assert "- fixed: " not in filed
