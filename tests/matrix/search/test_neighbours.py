"""What lies beside a case: what keeps the wish, and what gives part of it up."""

from __future__ import annotations

import pytest

from cases.space.options import Options, values
from matrix.run.execute import Suite
from matrix.search import neighbours

WISH = (
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
def test_a_setting_keeps_what_was_wanted(radius: int) -> None:
    touched = {name for start in GRID for changes in neighbours.settings(start, radius) for name in changes}
    assert touched
    assert touched.isdisjoint(WISH)


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


def test_what_is_cheapest_comes_first() -> None:
    first = next(iter(neighbours.settings(options(strategy="fsdp1", use_orig_params=False), 1)))
    assert first == {"use_orig_params": True}


def test_a_pair_changes_two_settings() -> None:
    assert {len(changes) for changes in neighbours.settings(options(strategy="fsdp1"), 2)} == {2}


def test_a_change_that_means_nothing_there_is_none() -> None:
    assert neighbours.moved(options(strategy="ddp"), {"use_orig_params": False}) is None


def test_the_same_in_other_words_is_no_change() -> None:
    start = options(quant="nf4", torch_dtype="bf16")
    assert neighbours.moved(start, {"bnb_4bit_compute_dtype": "bf16"}) is None


def test_what_was_fsdp1s_does_not_outlive_it() -> None:
    reached = neighbours.moved(
        options(strategy="fsdp1", auto_wrap_policy="peft", use_orig_params=False), {"strategy": "fsdp2"}
    )
    assert reached is not None
    assert (reached.auto_wrap_policy, reached.use_orig_params) == ("transformer", True)


def test_a_trainer_is_not_told_what_it_does_not_pass_on() -> None:
    start = options(strategy="ddp", world_size=2, front_end="trainer")
    assert neighbours.moved(start, {"static_graph": True}) is None
    assert neighbours.moved(options(strategy="ddp", world_size=2), {"static_graph": True}) is not None


def test_code_of_ones_own_has_no_neighbours() -> None:
    own = next(each for each in GRID if each.flow == "api")
    assert [*neighbours.settings(own, 1), *neighbours.alternatives(own)] == []


def test_an_alternative_gives_up_one_thing() -> None:
    assert {len(changes) for start in GRID for changes in neighbours.alternatives(start)} == {1}
