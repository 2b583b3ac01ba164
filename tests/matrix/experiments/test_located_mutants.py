"""A located mutant is judged by where the named module is, seen from the modules with the mutated code."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from cases.injection.mutated_modules import BUILT, FACT
from cases.space.verdict import Verdict
from matrix.experiments import located_mutants
from matrix.run.outcome import DeviationRecord, LocationRecord, Outcome

ATTENTION = "model.layers.0.self_attn"


def an_outcome(*named: str, ran_in: str = ATTENTION, **other: Any) -> Outcome:
    beginnings = tuple(
        DeviationRecord(kind="output", name=each, module=each, step=1, rank=0, distance=1.0, allowed=0.1)
        for each in named
    )
    location = LocationRecord(beginnings=beginnings, outputs={}, gradients={}, uncompared=0)
    found: dict[str, Any] = {"location": location, "facts": {f"{FACT}, stage 0": ran_in}, **other}
    return Outcome(
        set="x",
        case="x",
        group="",
        why="",
        options={},
        verdict=Verdict.WRONG,
        started=datetime.now(UTC),
        seconds=1.0,
        **found,
    )


@pytest.mark.parametrize(
    ("named", "ran_in", "place"),
    [
        (ATTENTION, ATTENTION, "same"),
        (ATTENTION, f"model.layers.1.self_attn {ATTENTION}", "same"),
        (f"{ATTENTION}.o_proj", ATTENTION, "child"),
        (f"{ATTENTION}.q_proj.lora_A", ATTENTION, "child"),
        (f"{ATTENTION}.q_proj", f"{ATTENTION}.q_proj.lora_magnitude_vector", "same"),
        (f"{ATTENTION}.q_proj.base_layer", f"{ATTENTION}.q_proj.lora_B", "same"),
        (ATTENTION, "model", "deeper"),
        ("lm_head", "(model)", "child"),
        (ATTENTION, "(model)", "deeper"),
        ("model.layers.0.mlp", ATTENTION, "elsewhere"),
        ("model.layers.0.self_attn_norm", ATTENTION, "elsewhere"),
        ("model.layers.0", ATTENTION, "elsewhere"),
        ("", "(model)", "same"),
        ("", ATTENTION, "elsewhere"),
        ("Block().MLP()", "Block()", "child"),
        ("Block().MLP()", "Block().ModuleList().MLP()", "same"),
    ],
)
def test_the_place_is_the_nearest_to_a_module_with_mutated_code(named: str, ran_in: str, place: str) -> None:
    located = located_mutants.of(an_outcome(named, "lm_head", ran_in=ran_in))
    assert located is not None
    assert (located.named, located.place) == (named or "(model)", place)


@pytest.mark.parametrize(("built", "place"), [(ATTENTION, "made"), ("model.layers.0.mlp", "child")])
def test_a_constructor_counts_for_the_parts_that_it_makes(built: str, place: str) -> None:
    facts = {f"{FACT}, stage 0": ATTENTION, f"{BUILT}, stage 0": built}
    located = located_mutants.of(an_outcome(f"{ATTENTION}.o_proj", facts=facts))
    assert located is not None
    assert located.place == place


def test_a_cell_that_names_no_module_names_none_of_the_mutated_ones() -> None:
    located = located_mutants.of(an_outcome())
    assert located is not None
    assert (located.kind, located.place) == ("nothing", "unnamed")


def test_a_cell_that_was_not_located_names_nothing() -> None:
    assert located_mutants.of(an_outcome(ATTENTION, location=None)) is None


@pytest.mark.parametrize("facts", [{}, {f"{FACT}, stage 0": ""}])
def test_code_outside_of_modules_is_in_none(facts: dict[str, str]) -> None:
    located = located_mutants.of(an_outcome(ATTENTION, facts=facts))
    assert located is not None
    assert located.place == "outside"


@pytest.mark.parametrize(
    ("function", "changed", "place"),
    [
        ("peft/a.py merge", "peft/a.py merge", "function"),
        ("peft/a.py merge.<locals>.inner", "peft/a.py merge", "function"),
        ("peft/a.py merge", "peft/a.py merge.<locals>.inner", "outside"),
        ("peft/a.py merge_all", "peft/a.py merge", "outside"),
        ("peft/b.py merge", "peft/a.py merge", "outside"),
        ("", "peft/a.py merge", "outside"),
    ],
)
def test_outside_of_modules_the_named_function_must_be_the_mutated_one(function: str, changed: str, place: str) -> None:
    first = DeviationRecord(
        kind="function", name="", module="", function=function, step=0, rank=0, distance=1.0, allowed=0.0
    )
    located = located_mutants.of(an_outcome(ran_in="", location=LocationRecord(beginnings=(first,))), changed)
    assert located is not None
    assert (located.place, located.is_changed) == (place, place == "function")


def test_a_mutated_hook_runs_outside_of_the_module_that_attached_it() -> None:
    first = DeviationRecord(
        kind="weight", name="(model)", module="(model)", function="f.py g", step=0, rank=0, distance=1.0, allowed=0.0
    )
    location = LocationRecord(beginnings=(first,), against="the unchanged stack")
    located = located_mutants.of(an_outcome(ran_in="wide", location=location), "f.py g")
    assert located is not None
    assert located.place == "function"


@pytest.mark.parametrize(("named", "place"), [("wide", "same"), ("", "function")])
def test_the_module_that_runs_the_mutated_function_may_have_another_name(named: str, place: str) -> None:
    first = DeviationRecord(
        kind="function", name=named, module=named, function="f.py g", step=0, rank=0, distance=1.0, allowed=0.0
    )
    location = LocationRecord(beginnings=(first,), against="the unchanged stack")
    located = located_mutants.of(an_outcome(ran_in="(model)", location=location), "f.py g")
    assert located is not None
    assert located.place == place
