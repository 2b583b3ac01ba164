"""The parts of a job, as a trainer's arguments request them."""

from __future__ import annotations

from typing import Any

import pytest

from cases.space.options import Options
from reports.answers.judgement.flows import flows_of, in_flow


@pytest.mark.parametrize(
    ("arguments", "certain", "possible"),
    [
        ({}, ("train", "save_reload"), ("resume",)),
        ({"save_strategy": "epoch"}, ("train", "save_reload"), ("resume",)),
        ({"save_strategy": "no"}, ("train",), ()),
        ({"resume_from_checkpoint": "last"}, ("train", "save_reload", "resume"), ()),
        ({"resume_from_checkpoint": False}, ("train", "save_reload"), ("resume",)),
        ({"load_best_model_at_end": True}, ("train", "save_reload", "resume"), ()),
        ({"merge_lora": True}, ("train", "save_reload", "merge", "merge_reload"), ("resume",)),
    ],
)
def test_a_job_saves_unless_it_says_otherwise(
    arguments: dict[str, Any], certain: tuple[str, ...], possible: tuple[str, ...]
) -> None:
    flows = flows_of(arguments)
    assert (flows.certain, flows.possible) == (certain, possible)


def test_merging_happens_outside_the_trainer() -> None:
    merged = in_flow(Options().but(front_end="sft"), "merge")
    assert merged is not None
    assert (merged.flow, merged.front_end) == ("merge", "loop")


def test_full_fine_tuning_has_nothing_to_merge() -> None:
    assert in_flow(Options().but(method="full"), "merge") is None
