"""Tests of what ranks report about their modules, and of where the deviations begin."""

from __future__ import annotations

import math

import pytest

from cases.runtime import deviations
from cases.runtime.deviations import Deviation, RankDeviations


def measured(kind: str, name: str, distance: float, *, step: int = 1) -> Deviation:
    return Deviation(kind, name, step, distance, allowed=0.1)


def test_a_message_reads_what_it_wrote() -> None:
    message = RankDeviations(1, (measured("output", "lm_head", math.inf),), ("rotary_emb",))
    assert RankDeviations.from_json(message.to_json()) == message


def test_the_first_output_that_is_off_is_named_with_the_one_before() -> None:
    rank = RankDeviations(0, tuple(measured("output", name, off) for name, off in [("a", 0.0), ("b", 0.5), ("c", 0.9)]))
    (first,) = deviations.beginnings([rank])
    assert (first.deviation.name, first.after) == ("b", "a")


def test_an_input_that_is_off_blames_the_module_that_computes_it() -> None:
    rank = RankDeviations(0, (measured("input", "layers.0.attn.o_proj", 0.5), measured("output", "layers.0.attn", 0.5)))
    assert [each.deviation.module for each in deviations.beginnings([rank])] == ["layers.0.attn"]


def test_a_number_that_is_not_one_is_off() -> None:
    assert measured("output", "a", math.nan).is_off


def test_an_earlier_step_of_another_rank_comes_first() -> None:
    ranks = [
        RankDeviations(0, (measured("output", "a", 0.0), measured("output", "a", 0.5, step=2))),
        RankDeviations(1, (measured("output", "a", 0.0), measured("output", "b", 0.5))),
    ]
    (first,) = deviations.beginnings(ranks)
    assert (first.rank, first.deviation.name, first.deviation.step) == (1, "b", 1)


def test_passes_are_in_the_order_in_which_a_step_computes_them() -> None:
    rank = RankDeviations(
        0,
        (
            measured("gradient", "a", 0.5),
            measured("weight", "a.weight", 0.5),
            measured("output", "a", 0.5, step=2),
        ),
    )
    assert [each.deviation.kind for each in deviations.beginnings([rank])] == ["gradient", "weight", "output"]


def test_nothing_off_begins_nowhere() -> None:
    assert deviations.beginnings([RankDeviations(0, (measured("output", "a", 0.1),))]) == []


@pytest.mark.parametrize("distances", [(0.1, 0.3), (0.3, 0.1)])
def test_a_curve_has_the_largest_distance_of_a_module(distances: tuple[float, float]) -> None:
    rank = RankDeviations(0, tuple(measured("output", "a", each) for each in distances))
    assert deviations.curve(rank, 1, "output") == {"a": 0.3}
