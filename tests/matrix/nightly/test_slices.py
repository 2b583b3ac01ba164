"""The order of a night's cells, and what fits into its time."""

from __future__ import annotations

from datetime import date

import pytest

from cases.grid.profiles import PROFILES
from matrix.nightly.slices import Clock, fitting, kind_of, slices, uses
from matrix.run.timings import Timings, usual_seconds
from matrix.versions.sets import VersionSet

EVERY = {each.id: each for each in PROFILES["nightly"].cases}


def version_set(key: str) -> VersionSet:
    return VersionSet(key=key, python="3.11", as_of=date(2026, 1, 1), pins={}, why="a set of a test")


@pytest.mark.parametrize(
    ("case", "package", "expected"),
    [
        ("train-lora-nf4-single-bf16", "bitsandbytes", True),
        ("train-lora-single-bf16", "bitsandbytes", False),
        ("train-full-single-fp32", "peft", False),
        ("train-lora-nf4-single-bf16-sft", "trl", True),
        ("api-dpo_forward_kl", "trl", True),
        ("api-dpo_forward_kl", "bitsandbytes", False),
        ("train-full-single-fp32", "transformers", True),
    ],
)
def test_jobs_use_packages(case: str, package: str, expected: bool) -> None:  # noqa: FBT001 - a parameter of a test
    assert uses(EVERY[case], package) is expected


def test_common_jobs_that_use_what_moved_come_first_and_nothing_is_lost() -> None:
    sets = [version_set("base"), version_set("nightly")]
    found = list(slices(sets, EVERY.values(), ["bitsandbytes"]))
    assert [each.version_set.key for each in found[:2]] == ["base", "nightly"]
    assert all(uses(each, "bitsandbytes") and each in PROFILES["default"].cases for each in found[0].cases)
    assert not any(uses(each, "bitsandbytes") for each in found[-1].cases)
    for key in ("base", "nightly"):
        measured = [case.id for each in found if each.version_set.key == key for case in each.cases]
        assert sorted(measured) == sorted(EVERY)


def test_what_the_time_suffices_for_has_every_kind_of_job() -> None:
    """A fault may show in merged files alone, and a profile lists its jobs that train first."""
    first = next(slices([version_set("nightly")], PROFILES["default"].cases, ["transformers"])).cases
    kinds = [each.options.flow for each in PROFILES["default"].cases]
    assert {each.options.flow for each in first[: len({*kinds})]} == {*kinds}
    assert sorted(each.options.flow for each in first) == sorted(kinds)


def test_calls_of_one_module_are_one_kind_of_job() -> None:
    names = ("api-dpo_forward_kl", "api-lora_on_experts", "train-lora-single-bf16", "train-lora-ddp-bf16")
    assert len({kind_of(EVERY[name]) for name in names}) == 3


def test_cells_fit_by_their_past_times() -> None:
    cases = [EVERY[name] for name in ("train-lora-single-bf16", "train-lora-ddp-bf16", "train-full-single-fp32")]
    past = Timings(cells={"train-lora-single-bf16": 10.0, "train-lora-ddp-bf16": 30.0}, overhead_s=20.0)
    assert fitting(cases, past, workers=2, seconds=26.0) == tuple(cases[:1])
    assert fitting(cases, past, workers=2, seconds=40.0) == tuple(cases[:2])
    assert fitting(cases, past, workers=2, seconds=60.0) == tuple(cases)  # the last one at the speed of the others
    assert fitting(cases, past, workers=2, seconds=20.0) == ()


def test_without_past_times_every_cell_counts_as_a_usual_one_of_its_flow() -> None:
    cases = [each for each in EVERY.values() if each.options.flow == "resume"]
    nothing = Timings(cells={}, overhead_s=10.0)
    seconds = 10.0 + 4.5 * usual_seconds("resume", "cpu")
    assert len(fitting(cases, nothing, workers=1, seconds=seconds)) == 4


def test_a_clock_has_shares_of_its_time() -> None:
    clock = Clock(seconds=100.0, start=0.0)
    assert clock.left() == 0.0  # the machine is up for longer than that
    assert 0.0 < Clock(seconds=100.0).left(0.5) <= 50.0
