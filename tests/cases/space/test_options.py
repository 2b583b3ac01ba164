"""Tests of the option space: its values, its exclusions and their reasons."""

from __future__ import annotations

from typing import Any

import pytest

from cases.grid.profiles import EVERY
from cases.space.options import EXCLUSIONS, OPEN, IllegalError, Options, names, values
from cases.space.written_values import parsed

PLAIN = Options()
ILLEGAL: dict[str, dict[str, Any]] = {  # a combination for each exclusion, by the start of its reason
    "strategy=single has one rank": {"strategy": "ddp", "world_size": 1},
    "quantised weights are not trainable": {"method": "full", "quant": "nf4"},
    "FSDP2 has no wrap policies": {"strategy": "fsdp2", "auto_wrap_policy": "peft"},
    "flow=load loads the base model": {"flow": "load", "method": "lora"},
    "flow=load runs in one process": {"flow": "load", "method": "full", "strategy": "ddp"},
    "flow=load does not train": {"flow": "load", "method": "full", "loop": "eval"},
    "flow=api and flow=script require": {"flow": "api"},
    "flow=api and flow=script run their own code": {"flow": "api", "call": "anything", "quant": "nf4"},
    "only adapters of layers can be merged": {"flow": "merge", "method": "prompt"},
    "flow=portability moves an adapter": {"flow": "portability", "strategy": "ddp"},
    "modules_to_save and target_embeddings need an adapter": {"method": "full", "modules_to_save": "lm_head"},
    "a case trains the head or the embeddings, not both": {"modules_to_save": "lm_head", "target_embeddings": True},
    "pissa, olora and loftq": {"method": "pissa", "quant": "nf4"},
    "device_mesh=hsdp is a mesh": {"strategy": "fsdp2", "device_mesh": "hsdp"},
    "device_mesh=hsdp shards within pairs": {"strategy": "ddp", "device_mesh": "hsdp", "world_size": 4},
    "the global batch has 4 rows": {"strategy": "ddp", "world_size": 4, "gradient_accumulation_steps": 2},
    "FSDP's mixed_precision and autocast": {"strategy": "fsdp2", "mixed_precision": "bf16", "autocast": "bf16"},
    "cpu_ram_efficient_loading must broadcast": {"strategy": "fsdp1", "cpu_ram_efficient_loading": True},
    "every rank must load weights": {"strategy": "fsdp2", "cpu_ram_efficient_loading": True, "quant": "nf4"},
    "FSDP2 always gathers": {"strategy": "fsdp2", "state_dict_type": "full_dcp"},
    "accelerate and the trainers only train": {"front_end": "trainer", "flow": "merge"},
    "accelerate and the trainers run their own loop": {"front_end": "trainer", "loop": "eval"},
    "SFTTrainer pads on the right": {"front_end": "sft", "data": "packed"},
    "PEFT ignores position_ids": {"method": "prompt", "data": "packed"},
    "learned positions end": {"model": "gpt2", "method": "full", "data": "long"},
    "padded and masked rows are measured on decoders": {"model": "t5", "data": "padded_left"},
    "only models with rotary positions": {"model": "gpt2", "rope_scaling": "linear"},
    "SFTTrainer trains decoders": {"front_end": "sft", "model": "t5"},
    "generation with a prompt adapter": {"model": "t5", "flow": "generate", "method": "prompt"},
    "bitsandbytes' optimisers": {"optim": "adamw_8bit", "optim_implementation": "fused"},
}


@pytest.mark.parametrize(("reason", "changes"), ILLEGAL.items())
def test_an_illegal_combination_is_refused_with_its_reason(reason: str, changes: dict[str, Any]) -> None:
    with pytest.raises(IllegalError, match=reason):
        PLAIN.but(**changes)


def test_every_exclusion_has_an_example() -> None:
    assert [rule.because for rule in EXCLUSIONS if not rule.because.startswith(tuple(ILLEGAL))] == []


def test_every_option_applies_to_some_case() -> None:
    assert {name for case in EVERY for name in case.options.stated} == set(names())


def test_the_default_of_every_option_is_one_of_its_values() -> None:
    assert all(getattr(PLAIN, name) in values(name) for name in names() if name not in OPEN)


def test_an_open_option_accepts_any_text() -> None:
    assert (parsed("call", "anything"), values("call")) == ("anything", ())


@pytest.mark.parametrize("name", names())
def test_every_value_can_be_parsed_from_its_text(name: str) -> None:
    assert [parsed(name, str(value)) for value in values(name)] == list(values(name))


@pytest.mark.parametrize(("text", "value"), [("on", True), ("true", True), ("no", False), ("False", False)])
def test_a_boolean_option_accepts_the_usual_spellings(text: str, *, value: bool) -> None:
    assert parsed("use_orig_params", text) is value


def test_a_number_is_parsed_as_a_number() -> None:
    assert parsed("world_size", "2") == 2


def test_an_unknown_value_is_reported_with_the_known_ones() -> None:
    with pytest.raises(IllegalError, match="option 'quant' has no value 'nf5'; choose from none, nf4, fp4, int8"):
        parsed("quant", "nf5")


def test_an_unknown_option_is_reported_with_the_known_ones() -> None:
    with pytest.raises(IllegalError, match="unknown option 'qant'; choose from flow, call, method"):
        PLAIN.but(qant="nf4")


def test_off_is_parsed_as_text_where_an_option_has_that_value() -> None:
    assert parsed("autocast", "off") == "off"


def test_the_default_world_size_follows_the_strategy() -> None:
    assert (PLAIN.but(strategy="ddp").world_size, PLAIN.but(strategy="single").world_size) == (2, 1)


def test_options_that_do_not_apply_are_not_stated() -> None:
    assert (
        not {"use_orig_params", "auto_wrap_policy", "bnb_4bit_quant_storage", "reshard_after_forward"}
        & PLAIN.stated.keys()
    )


def test_options_that_do_not_apply_make_no_difference() -> None:
    assert PLAIN.but(use_orig_params=False).stated == PLAIN.stated
