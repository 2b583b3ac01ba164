"""The grid reads like a feature table: legal rows, readable names, nothing twice, nothing forgotten."""

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


def test_no_name_is_there_twice() -> None:
    assert [name for name, count in Counter(row.id for row in EVERY).items() if count > 1] == []


def test_no_two_rows_mean_the_same() -> None:
    stated = Counter(tuple(row.options.stated.items()) for row in EVERY)
    assert [point for point, count in stated.items() if count > 1] == []


def test_every_name_does_for_files_and_for_patterns() -> None:
    assert [row.id for row in EVERY if not re.fullmatch(r"[a-z0-9_]+(-[a-z0-9_]+)+", row.id)] == []


def test_every_row_says_what_it_is_for() -> None:
    assert [row.id for row in EVERY if not (row.why.strip() and row.group.strip())] == []


def test_rows_under_one_heading_stand_together() -> None:
    headings = [
        row.group for number, row in enumerate(DEFAULT) if number == 0 or DEFAULT[number - 1].group != row.group
    ]
    assert len(headings) == len(set(headings))


@pytest.mark.parametrize("name", names())
def test_every_value_of_an_option_is_in_some_case(name: str) -> None:
    met = {row.options.stated[name] for row in EVERY if name in row.options.stated}
    missing = [value for value in values(name) if value not in met and (name, value) not in NOT_IN_THE_GRID]
    assert missing == [], "add a row to cases/grid.py, or a reason to NOT_IN_THE_GRID"


def test_a_reason_for_a_missing_value_is_dropped_when_a_case_has_it() -> None:
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
def test_names_stay_what_they_were(name: str, options: dict[str, Value]) -> None:
    """Stored results are found by these: changing one orphans what was measured."""
    assert case("a heading", "a reason", **options).id == name


def test_a_case_has_as_many_ranks_as_its_world() -> None:
    assert {row.ranks for row in EVERY if row.options.stated.get("strategy") == "single"} == {1}
