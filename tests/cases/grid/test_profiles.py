"""Tests of the profiles: they are nested, and the full one covers every value."""

from __future__ import annotations

import pytest

from cases.grid.profiles import EVERY, PROFILES, one_dtype
from cases.space.options import SHARDED, Options, Value, names, values

FRONT_ENDS = ("accelerate", "trainer", "sft")
FULL = PROFILES["full"].cases


def ids(profile: str) -> set[str]:
    return {case.id for case in PROFILES[profile].cases}


def test_each_profile_contains_the_smaller_one() -> None:
    assert ids("quick") < ids("full") < ids("nightly")
    assert ids("default") < ids("full")


def test_full_has_at_least_two_hundred_and_fifty_cases_of_options() -> None:
    assert len({case.id for case in FULL if not case.options.call}) >= 250


@pytest.mark.parametrize("attention", ["flash", "efficient", "cudnn"])
def test_the_gpu_profile_covers_each_attention_kernel_in_each_dtype(attention: str) -> None:
    """Training cases; includes float32, which flash attention rejects."""
    tried = [case.options for case in PROFILES["gpu"].cases if case.options.flow == "train"]
    found = {
        options.torch_dtype
        for options in tried
        if options.attn_implementation == attention and options.model == "llama"
    }
    assert found == set(values("torch_dtype"))


@pytest.mark.parametrize(
    "wanted",
    [
        *({"strategy": strategy, "world_size": ranks} for strategy in ("ddp", "fsdp1", "fsdp2") for ranks in (2, 4)),
        *({"strategy": strategy, "device_mesh": "hsdp"} for strategy in SHARDED),
        *({"strategy": strategy, "front_end": each} for strategy in SHARDED for each in FRONT_ENDS),
        *({"strategy": strategy, "torch_compile": True} for strategy in values("strategy")),
        {"attn_implementation": "flash_attention_2"},
        {"optim": "adamw_8bit"},
        {"optim": "paged_adamw_8bit"},
        {"optim": "adamw", "optim_implementation": "fused"},
        *({"strategy": strategy, "cpu_offload": True} for strategy in SHARDED),
    ],
    ids=str,
)
def test_the_gpu_profile_covers_options_that_need_gpus(wanted: dict[str, Value]) -> None:
    assert [case.id for case in PROFILES["gpu"].cases if wanted.items() <= case.options.stated.items()]


def test_the_gpu_profile_covers_a_model_on_several_devices() -> None:
    calls = {case.options.call for case in PROFILES["gpu"].cases}
    assert {"device_map_auto", "device_map_per_rank", "device_map_over_two_gpus", "device_map_layer_on_cpu"} <= calls
    assert {"merge_adapter_on_cpu", "merge_base_on_cpu", "merge_layer_on_cpu", "paged_moments"} <= calls


@pytest.mark.parametrize(
    ("changed", "meant"),
    [
        ({"autocast_adapter_dtype": False}, True),
        ({"mixed_precision": "bf16"}, True),
        ({}, False),  # float32 adapters
        ({"autocast_adapter_dtype": False, "strategy": "fsdp1"}, False),
        ({"autocast_adapter_dtype": False, "bnb_4bit_quant_storage": "fp16"}, False),
    ],
)
def test_fsdp2_copies_packed_weights_as_numbers_if_units_are_bfloat16_throughout(
    changed: dict[str, Value], *, meant: bool
) -> None:
    qlora: dict[str, Value] = {
        "quant": "nf4",
        "torch_dtype": "bf16",
        "bnb_4bit_quant_storage": "bf16",
        "strategy": "fsdp2",
    }
    assert one_dtype(Options().but(**{**qlora, **changed})) is meant


def test_no_two_cases_have_equal_options() -> None:
    stated = [(tuple(case.options.stated.items()), case.source) for case in EVERY]
    assert len(stated) == len(set(stated))


def test_full_covers_every_value_of_every_option() -> None:
    met = {item for case in FULL for item in case.options.stated.items()}
    met |= {("flow", "api")}  # uses of the interface are of the nightly profile
    assert [(name, value) for name in names() for value in values(name) if (name, value) not in met] == []


def test_every_case_is_legal() -> None:
    assert [case.id for case in EVERY if case.options.why_illegal] == []


def test_a_case_from_another_set_has_a_different_id() -> None:
    assert Options().but(flow="portability").why_illegal == ""
