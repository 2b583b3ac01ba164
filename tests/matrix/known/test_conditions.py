"""Tests of the conditions under which a job meets an error."""

from __future__ import annotations

import pytest

from matrix.known import findings
from matrix.known.conditions import any_holds, checked_condition, holds

ACCUMULATING = {"front_end": ("trainer", "sft"), "accumulates": (True,)}


def test_a_condition_needs_all_of_its_facts() -> None:
    assert holds(ACCUMULATING, {"front_end": "sft", "accumulates": True}) is True
    assert holds(ACCUMULATING, {"front_end": "loop", "accumulates": True}) is False


def test_a_fact_that_nobody_states_leaves_it_open_unless_another_denies_it() -> None:
    assert holds(ACCUMULATING, {"front_end": "sft"}) is None
    assert holds(ACCUMULATING, {"front_end": "loop"}) is False


def test_an_argument_that_is_not_stated_has_its_default() -> None:
    smoothing = {"arguments.label_smoothing_factor": ("enabled",)}
    assert holds(smoothing, {}) is False
    assert holds(smoothing, {"arguments.label_smoothing_factor": 0.0}) is False
    assert holds(smoothing, {"arguments.label_smoothing_factor": 0.1}) is True
    assert holds({"arguments.bias": ("lora_only",)}, {"arguments.bias": "all"}) is False


def test_one_of_several_conditions_is_enough() -> None:
    merged, used = {"merges": (True,)}, {"generates": (True,)}
    assert any_holds((merged, used), {"merges": False, "generates": True}) is True
    assert any_holds((merged, used), {"merges": False}) is None
    assert any_holds((merged, used), {"merges": False, "generates": False}) is False


@pytest.mark.parametrize(
    ("condition", "said"),
    [({"colour": ("red",)}, "'colour' is no option"), ({"method": ("sparse",)}, "method has no value 'sparse'")],
)
def test_unknown_facts_and_values_are_refused(condition: dict[str, tuple[str, ...]], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        checked_condition(dict(condition))


def test_every_finding_names_its_package_and_the_jobs_that_meet_it() -> None:
    for row in findings.load():
        assert row.package
        assert row.when
