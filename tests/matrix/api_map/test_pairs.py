"""Pairs of releases: what breaks, as read, and what was measured."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

import pytest

from matrix.api_map.crossings import Breaks, Crossings
from matrix.api_map.measured.import_results import MeasuredImports
from matrix.api_map.measured.pair_evidence import IMPORTED, blamed, pair_evidence
from matrix.api_map.pairs import PairMeasurement, all_pairs
from reports.render.pairs_page import markdown

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Protocol

    from matrix.api_map.query import ApiMap

    class FakeIndex(Protocol):
        wheels: dict[tuple[str, str], bytes | None]

        def add(self, package: str, version: str, sources: dict[str, str] | None, day: date) -> None: ...

    Build = Callable[[str], ApiMap]

GONE = "ImportError: cannot import name 'helper' from 'transformers.extra' [trl.trainer.sft_trainer]"
THIRD = "ImportError: cannot import name 'a' from 'huggingface_hub' [transformers.utils.hub]"


@pytest.fixture
def build(index: FakeIndex, updated: Callable[[FakeIndex, Path], object], tmp_path: Path) -> Build:
    """Build a map of trl 2.0.0 with some source, transformers 6.0.0 with ``helper``, and 6.1.0 and 6.2.0 without."""
    from matrix.api_map.query import ApiMap

    def built(source: str) -> ApiMap:
        index.wheels.clear()
        for version, names, day in (("6.0.0", "helper", 1), ("6.1.0", "other", 2), ("6.2.0", "other", 3)):
            sources = {"transformers/__init__.py": "", "transformers/extra.py": f"def {names}(): pass\n"}
            index.add("transformers", version, sources, date(2025, 1, day))
        lazy = {"trl/__init__.py": "", "trl/part.py": source} if source.startswith("# part") else None
        index.add("trl", "2.0.0", lazy or {"trl/__init__.py": source}, date(2025, 1, 4))
        updated(index, tmp_path)
        return ApiMap(tmp_path / "map")

    return built


def measured(error: str, *, transformers: str = "6.1.0") -> MeasuredImports:
    return MeasuredImports(
        versions={"trl": "2.0.0", "transformers": transformers},
        errors={"import transformers": "", "import trl": error},
        python="3.12.1",
        torch="2.5.1",
        measured=datetime(2026, 11, 26, tzinfo=UTC),
    )


HELPER = "from transformers.extra import helper\n"


@pytest.mark.parametrize(
    ("source", "breaks"),
    [
        (HELPER, Breaks.AT_IMPORT),
        (f"# part\n{HELPER}", Breaks.AT_MODULE),
        (f"def use():\n    {HELPER}", Breaks.AT_USE),
        (f"if is_deepspeed_available():\n    {HELPER}", Breaks.IN_BRANCH),
        (f"try:\n    {HELPER}except ImportError:\n    pass\n", Breaks.HANDLED),
    ],
    ids=["import", "part", "function", "branch", "handled"],
)
def test_a_crossing_tells_when_a_missing_name_breaks(build: Build, source: str, breaks: Breaks) -> None:
    found = [each for each in Crossings(build(source)).of_user("trl") if each.target == "transformers.extra.helper"]
    assert {each.breaks for each in found} == {breaks}


def test_a_crossing_lacks_the_releases_without_the_name_only(build: Build) -> None:
    api = build(HELPER)
    (found,) = [each for each in Crossings(api).of_user("trl") if each.target == "transformers.extra.helper"]
    lacking = [each for place, each in enumerate(api.versions("transformers")) if found.lacking >> place & 1]
    assert lacking == ["6.1.0", "6.2.0"]


def test_a_version_check_excludes_the_releases_for_which_it_skips_the_code(build: Build) -> None:
    api = build(f"if is_transformers_version('<', '6.1.0'):\n    {HELPER}")
    assert not [each for each in Crossings(api).of_user("trl") if each.target == "transformers.extra.helper"]


def test_a_release_of_a_pair_breaks_with_a_range_of_releases(build: Build) -> None:
    row = all_pairs(build(HELPER))["trl", "transformers"][-1]
    assert [(each.breaks, each.first, each.last) for each in row.broken] == [(Breaks.AT_IMPORT, "6.1.0", "6.2.0")]


def test_each_pair_of_minor_releases_is_measured_or_not(build: Build) -> None:
    results = [measured(GONE), measured("", transformers="6.0.0"), measured(THIRD, transformers="6.2.0")]
    row = all_pairs(build(HELPER), results)["trl", "transformers"][-1]
    found = {(each.first, each.last): each.measurement for each in row.measured}
    assert found["6.0", "6.0"] is PairMeasurement.IMPORTED
    assert found["6.1", "6.1"] is PairMeasurement.FAILED
    assert found["6.2", "6.2"] is PairMeasurement.NONE
    assert sum(each.count for each in row.measured) == 3


def test_a_pair_that_was_not_measured_may_be_excluded_by_requirements(build: Build) -> None:
    api = build(HELPER)
    api.releases["trl"][0] = replace(api.releases["trl"][0], requires=("transformers<6.2",))  # type: ignore[index]
    row = all_pairs(api, [measured(GONE)])["trl", "transformers"][-1]
    found = {each.first: each.measurement for each in row.measured}
    assert (found["6.0"], found["6.2"]) == (PairMeasurement.NONE, PairMeasurement.EXCLUDED)


def test_the_page_shows_what_was_measured_beside_what_was_read(build: Build) -> None:
    api = build(HELPER)
    tables = all_pairs(api, [measured(GONE), measured("", transformers="6.0.0")])
    shown = markdown(tables, {"transformers": "6.2.0"}, ["3.12.1"], ["2.5.1"])
    assert "on Python 3.12.1 and torch 2.5.1." in shown
    row = "| `2.0.0` | 6.0 | 6.1 | - | 6.2 | 6.1.0 and newer (`transformers.extra.helper`) | - | - |"
    assert row in shown


def test_an_error_blames_the_package_that_raised_it_and_the_one_that_it_names() -> None:
    assert blamed(GONE) == ("trl", "transformers")
    assert blamed(THIRD) == ("transformers", "huggingface_hub")
    assert blamed("ModuleNotFoundError: No module named 'triton.ops' [bitsandbytes.functional]") == ("", "")
    assert blamed("ImportError: cannot import name 'A' from 'trl' [trl]") == ("", "")


def test_a_failure_of_a_third_package_measures_nothing_of_a_pair() -> None:
    assert pair_evidence([measured(THIRD)])["trl", "transformers"] == {}


def test_a_pair_that_failed_once_failed() -> None:
    found = pair_evidence([measured(GONE), measured("")])
    assert found["trl", "transformers"]["2.0.0", "6.1.0"] == GONE


def test_a_release_that_lacks_a_name_of_its_own_was_imported() -> None:
    found = pair_evidence([measured("ImportError: cannot import name 'DPOTrainer' from 'trl'")])
    assert found["trl", "transformers"]["2.0.0", "6.1.0"] == IMPORTED


@pytest.mark.parametrize(
    "error",
    ["ModuleNotFoundError: No module named 'trl'", "ImportError: cannot import name 'DPOTrainer' from 'trl' [trl]"],
)
def test_a_package_that_is_not_there_or_broke_inside_was_not_imported(error: str) -> None:
    assert pair_evidence([measured(error)])["trl", "transformers"] == {}
