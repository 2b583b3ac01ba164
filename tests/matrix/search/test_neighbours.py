"""Tests the neighbours of a case: settings that keep its configuration, and alternatives."""

from __future__ import annotations

import pytest

from cases.space.options import Options, values
from matrix.run.execute import Suite
from matrix.search import neighbours

KEPT = (
    "flow",
    "call",
    "method",
    "quant",
    "strategy",
    "torch_dtype",
    "autocast",
    "bnb_4bit_compute_dtype",
    "model",
    "optim",
)
GRID = [case.options for case in Suite().cases.values()]


def options(**changes: object) -> Options:
    return Options().but(**changes)


@pytest.mark.parametrize("radius", [1, 2])
def test_a_setting_keeps_the_requested_configuration(radius: int) -> None:
    changed = {name for start in GRID for changes in neighbours.settings(start, radius) for name in changes}
    assert changed
    assert changed.isdisjoint(KEPT)


def test_every_neighbour_is_a_legal_case() -> None:
    for start in GRID:
        for around in (neighbours.settings(start, 1), neighbours.alternatives(start)):
            reached = [neighbours.moved(start, changes) for changes in around]
            assert not [each for each in reached if each is None or each.why_illegal or each == start]


def test_the_tables_name_values_that_exist() -> None:
    rows = [
        *((row.option, value) for row in neighbours.SETTINGS for value in row.to),
        *(
            (name, value)
            for name, given in neighbours.GIVEN_UP.items()
            for old in given
            for value in (old, *given[old])
        ),
    ]
    assert [(name, value) for name, value in rows if value not in values(name)] == []


def test_the_cheapest_setting_comes_first() -> None:
    first = next(iter(neighbours.settings(options(strategy="fsdp1", use_orig_params=False), 1)))
    assert first == {"use_orig_params": True}


def test_a_pair_changes_two_settings() -> None:
    assert {len(changes) for changes in neighbours.settings(options(strategy="fsdp1"), 2)} == {2}


def test_a_change_of_an_option_that_does_not_apply_is_no_neighbour() -> None:
    assert neighbours.moved(options(strategy="ddp"), {"use_orig_params": False}) is None


def test_an_equivalent_value_is_no_neighbour() -> None:
    start = options(quant="nf4", torch_dtype="bf16")
    assert neighbours.moved(start, {"bnb_4bit_compute_dtype": "bf16"}) is None


def test_a_move_to_fsdp2_resets_options_of_fsdp1() -> None:
    reached = neighbours.moved(
        options(strategy="fsdp1", auto_wrap_policy="peft", use_orig_params=False), {"strategy": "fsdp2"}
    )
    assert reached is not None
    assert (reached.auto_wrap_policy, reached.use_orig_params) == ("transformer", True)


def test_an_option_that_a_trainer_does_not_pass_on_is_no_neighbour() -> None:
    start = options(strategy="ddp", world_size=2, front_end="trainer")
    assert neighbours.moved(start, {"static_graph": True}) is None
    assert neighbours.moved(options(strategy="ddp", world_size=2), {"static_graph": True}) is not None


def test_a_case_with_its_own_code_has_no_neighbours() -> None:
    own = next(each for each in GRID if each.flow == "api")
    assert [*neighbours.settings(own, 1), *neighbours.alternatives(own)] == []


def test_an_alternative_gives_up_one_thing() -> None:
    assert {len(changes) for start in GRID for changes in neighbours.alternatives(start)} == {1}
