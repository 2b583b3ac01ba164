"""Tests of the rows of a step: which micro-batches a collator pads."""

from __future__ import annotations

from typing import Any

import pytest

from cases.model import data
from cases.space.options import Options


@pytest.mark.parametrize(
    ("chosen", "ranks"),
    [
        ({"front_end": "trainer"}, [[True]]),
        ({"front_end": "trainer", "gradient_accumulation_steps": 2}, [[True, True]]),
        ({"front_end": "sft", "strategy": "ddp"}, [[True], [True]]),
        # One row each: the lengths are 16, 11, 13 and 6, and the batches go to the ranks in turn.
        ({"front_end": "trainer", "strategy": "ddp", "gradient_accumulation_steps": 2}, [[False, True], [True, True]]),
        ({"front_end": "sft", "strategy": "ddp", "gradient_accumulation_steps": 2}, [[False, False], [False, False]]),
        ({"strategy": "ddp", "gradient_accumulation_steps": 2}, [[False, True], [True, True]]),
    ],
)
def test_a_collator_pads_the_rows_of_a_batch_only(chosen: dict[str, Any], ranks: list[list[bool]]) -> None:
    options = Options().but(data="padded_right", **chosen)
    assert [data.padded_batches(options, rank) for rank in range(len(ranks))] == ranks


def test_the_documents_of_a_row_fill_it() -> None:
    assert {sum(row) for row in data.DOCUMENTS} == {16}
