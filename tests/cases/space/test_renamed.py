"""Tests of former names of options and case ids."""

from __future__ import annotations

from typing import Any

import pytest

from cases.grid.profiles import EVERY
from cases.space.options import names, values
from cases.space.renamed import OPTIONS, WORDS, current_case_id, current_cell, current_option, current_options


@pytest.mark.parametrize(
    ("former", "present"),
    [
        ("load-nf4-double-skip-single-bf16", "load-nf4-bnb_4bit_use_double_quant-llm_int8_skip_modules-single-bf16"),
        ("train-lora-nf4-bf16store-fsdp2-bf16", "train-lora-nf4-bnb_4bit_quant_storage_bf16-fsdp2-bf16"),
        ("portability-lora-single-fp32-from-2024-06+peft0.1", "portability-lora-single-fp32-from-2024-06+peft0.1"),
        ("api-skip_head", "api-skip_head"),
    ],
)  # fmt: skip
def test_a_former_case_id_becomes_the_present_one(former: str, present: str) -> None:
    assert current_case_id(former) == present


def test_present_ids_and_options_do_not_change() -> None:
    assert [case.id for case in EVERY if current_case_id(case.id) != case.id] == []
    assert [case.id for case in EVERY if current_options(case.options.stated) != case.options.stated] == []


def test_a_cell_keeps_its_set() -> None:
    assert (
        current_cell("2024-09+peft0.13.0__train-lora-ddp-fp32-clip")
        == "2024-09+peft0.13.0__train-lora-ddp-fp32-clip_grad_norm"
    )


@pytest.mark.parametrize("former", OPTIONS)
def test_every_former_option_maps_to_an_existing_one(former: str) -> None:
    assert current_option(former, "x")[0] in names()


@pytest.mark.parametrize(
    ("former", "present"),
    [
        (("also_trained", "head"), ("modules_to_save", "lm_head")),
        (("also_trained", "embeddings"), ("target_embeddings", True)),
        (("sharding", "grad_op"), ("sharding_strategy", "shard_grad_op")),
    ],
)
def test_a_former_value_becomes_the_present_one(former: tuple[str, Any], present: tuple[str, Any]) -> None:
    assert current_option(*former) == present
    assert present[1] in values(present[0])


def test_no_present_word_is_also_a_former_one() -> None:
    assert {word for word in WORDS.values() if WORDS.get(word, word) != word} == set()
