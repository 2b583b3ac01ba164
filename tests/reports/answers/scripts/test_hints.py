"""A setting that no file has is a line of code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from reports.answers.scripts.hints import in_code

if TYPE_CHECKING:
    from cases.space.options import Value


@pytest.mark.parametrize(
    ("option", "value", "code"),
    [
        ("autocast_adapter_dtype", False, "get_peft_model(..., autocast_adapter_dtype=False)"),
        ("autocast_adapter_dtype", True, "get_peft_model(..., autocast_adapter_dtype=True)"),
        ("auto_wrap_policy", "peft", "fsdp_plugin.auto_wrap_policy = fsdp_auto_wrap_policy(model)"),
        ("mixed_precision", "bf16_reduce_fp32", "fsdp_plugin.mixed_precision_policy = MixedPrecision("),
        ("static_graph", True, "DistributedDataParallel(..., static_graph=True)"),
        ("bnb_4bit_quant_storage", "bf16", "BitsAndBytesConfig(..., bnb_4bit_quant_storage=torch.bfloat16)"),
    ],
)
def test_a_hint_is_the_argument_of_the_call_that_the_scripts_make(option: str, value: Value, code: str) -> None:
    assert in_code(option, value).startswith(code)


def test_an_option_without_an_argument_is_named_itself() -> None:
    assert in_code("torch_compile", value=True) == "torch_compile=True"
