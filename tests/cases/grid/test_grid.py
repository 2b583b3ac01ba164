"""Tests of the grid: legal rows, readable and stable ids, no duplicates, every value covered."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from cases.grid import DEFAULT
from cases.grid.profiles import EVERY
from cases.space.case import case
from cases.space.options import Value, names, values

NOT_IN_THE_GRID: dict[tuple[str, Value], str] = {}  # a value that no case has, and the reason


def test_every_row_is_legal() -> None:
    assert [row.id for row in EVERY if row.options.why_illegal] == []


def test_ids_are_unique() -> None:
    assert [name for name, count in Counter(row.id for row in EVERY).items() if count > 1] == []


def test_no_two_rows_have_equal_options() -> None:
    stated = Counter(tuple(row.options.stated.items()) for row in EVERY)
    assert [point for point, count in stated.items() if count > 1] == []


def test_every_id_is_valid_in_file_names_and_patterns() -> None:
    assert [row.id for row in EVERY if not re.fullmatch(r"[a-z0-9_]+(-[a-z0-9_]+)+", row.id)] == []


def test_every_row_has_a_reason() -> None:
    assert [row.id for row in EVERY if not (row.why.strip() and row.group.strip())] == []


def test_rows_of_one_heading_are_adjacent() -> None:
    headings = [
        row.group for number, row in enumerate(DEFAULT) if number == 0 or DEFAULT[number - 1].group != row.group
    ]
    assert len(headings) == len(set(headings))


@pytest.mark.parametrize("name", names())
def test_every_value_of_an_option_has_a_case(name: str) -> None:
    met = {row.options.stated[name] for row in EVERY if name in row.options.stated}
    missing = [value for value in values(name) if value not in met and (name, value) not in NOT_IN_THE_GRID]
    assert missing == [], "add a row to cases/grid.py, or a reason to NOT_IN_THE_GRID"


def test_only_missing_values_have_a_reason_to_be_missing() -> None:
    met = {item for row in EVERY for item in row.options.stated.items()}
    assert [item for item in NOT_IN_THE_GRID if item in met] == []


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("train-lora-single-fp32", {}),
        ("load-nf4-single-bf16", {"flow": "load", "method": "full", "quant": "nf4", "torch_dtype": "bf16"}),
        (
            "train-dora-ddp-bf16-autocast_bf16",
            {"method": "dora", "strategy": "ddp", "torch_dtype": "bf16", "autocast": "bf16"},
        ),
        (
            "train-lora-nf4-bnb_4bit_quant_storage_bf16-fsdp1-auto_wrap_policy_peft-use_orig_params_false-bf16",
            {
                "quant": "nf4",
                "bnb_4bit_quant_storage": "bf16",
                "torch_dtype": "bf16",
                "strategy": "fsdp1",
                "auto_wrap_policy": "peft",
                "use_orig_params": False,
            },
        ),
        (
            "train-lora-fsdp2-reshard_after_forward_false-fp32-eval_between",
            {"strategy": "fsdp2", "reshard_after_forward": False, "loop": "eval"},
        ),
    ],
)
def test_ids_are_stable(name: str, options: dict[str, Value]) -> None:
    """Stored results are found by id: a changed id orphans them."""
    assert case("a heading", "a reason", **options).id == name


def test_the_ranks_of_a_case_equal_its_world_size() -> None:
    assert {row.ranks for row in EVERY if row.options.stated.get("strategy") == "single"} == {1}
