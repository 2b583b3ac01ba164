"""TRL's arguments of the command line for models: the adapter's configuration and the quantisation that they make.

https://huggingface.co/docs/trl/clis and trl.ModelConfig
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.space.verdict import Check, Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cases.apply.context import Context

GROUP = "Arguments of TRL"
# By field of ModelConfig: a value that is no default, and the field of LoraConfig that must have it.
ADAPTER: Mapping[str, tuple[Any, str]] = {
    "lora_r": (5, "r"),
    "lora_alpha": (11, "lora_alpha"),
    "lora_dropout": (0.25, "lora_dropout"),
    "lora_target_modules": (["q_proj", "down_proj"], "target_modules"),
    "lora_modules_to_save": (["lm_head"], "modules_to_save"),
    "lora_task_type": ("SEQ_CLS", "task_type"),
    "use_rslora": (True, "use_rslora"),
    "use_dora": (True, "use_dora"),
    "lora_target_parameters": (["experts.down_proj"], "target_parameters"),
}


def same(found: Any, wanted: Any) -> str:
    """A value as text; LoraConfig makes a set of a list of targets."""
    if isinstance(found, (set, list, tuple)):
        return str(sorted(found))
    return str(getattr(found, "value", found)) if isinstance(wanted, str) else str(found)


@call(GROUP, phase=Phase.ADAPT)
def trl_makes_adapter_configurations(_ctx: Context) -> Iterator[Check]:
    """get_peft_config makes the LoraConfig that the arguments of ModelConfig state, each alone and all together."""
    from trl import ModelConfig, get_peft_config

    known = {name: each for name, each in ADAPTER.items() if name in inspect.signature(ModelConfig).parameters}
    yield equal("an adapter without use_peft", str(get_peft_config(ModelConfig())), "None")
    usual = get_peft_config(ModelConfig(use_peft=True))
    for name, (value, field) in known.items():
        found = get_peft_config(ModelConfig(use_peft=True, **{name: value}))
        wanted = sorted(value) if isinstance(value, list) else value
        yield equal(f"{field} by {name}", same(getattr(found, field), value), str(wanted))
        others = [each for _, each in known.values() if each != field]
        moved = [each for each in others if getattr(found, each) != getattr(usual, each)]
        yield equal(f"other fields by {name}", str(moved), "[]")
    found = get_peft_config(ModelConfig(use_peft=True, lora_target_modules=["all-linear"]))
    yield equal("all-linear as a list", found.target_modules, "all-linear")


@call(GROUP, phase=Phase.LOAD)
def trl_makes_quantisation_configurations(_ctx: Context) -> Iterator[Check]:
    """get_quantization_config makes the BitsAndBytesConfig that ModelConfig states: 4 bits, 8 bits, or none."""
    import torch
    from trl import ModelConfig, get_quantization_config

    dtype = "dtype" if "dtype" in inspect.signature(ModelConfig).parameters else "torch_dtype"
    yield equal("without quantisation", str(get_quantization_config(ModelConfig())), "None")
    found = get_quantization_config(ModelConfig(load_in_8bit=True))
    yield equal("bits", str((found.load_in_8bit, found.load_in_4bit)), "(True, False)")
    for kind in ("fp4", "nf4"):
        for nested in (True, False):
            given: dict[str, Any] = {"bnb_4bit_quant_type": kind, "use_bnb_nested_quant": nested, dtype: "bfloat16"}
            found = get_quantization_config(ModelConfig(load_in_4bit=True, **given))
            title = f"{kind}, {nested}"
            yield equal(f"4 bits, {title}", str((found.load_in_4bit, found.load_in_8bit)), "(True, False)")
            yield equal(f"format, {title}", found.bnb_4bit_quant_type, kind)
            yield equal(f"nested statistics, {title}", found.bnb_4bit_use_double_quant, nested)
            yield equal(f"dtype of computations, {title}", str(found.bnb_4bit_compute_dtype), str(torch.bfloat16))
