"""The words of queries: the options that each names, and the words that name none."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Final

from cases.space import options
from cases.space.options import Options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cases.space.options import Value

# Options whose values are words by themselves.
WORD_OPTIONS: Final = ("method", "quant", "strategy", "flow", "model", "front_end")
NO_WORDS: Final = ("none", "loop", "api", "script")  # values that mean nothing without their option
WORDS: Final[Mapping[str, Mapping[str, tuple[Value, ...]]]] = {
    **{
        str(value).replace("_", "-"): {name: (value,)}
        for name in WORD_OPTIONS
        for value in options.values(name)
        if value not in NO_WORDS
    },
    **{each.name.replace("_", "-"): {each.name: (True,)} for each in fields(Options) if each.default is False},
    **{dtype: {"torch_dtype": (dtype,)} for dtype in ("bf16", "fp16", "fp32")},
    **{name: {"optim": (name.replace("-", "_"),)} for name in ("sgd", "adamw", "adamw-8bit", "paged-adamw-8bit")},
    "qlora": {"quant": ("nf4",)},
    "qdora": {"method": ("dora",), "quant": ("nf4",)},
    "4-bit": {"quant": ("nf4",)},
    "4bit": {"quant": ("nf4",)},
    "8-bit": {"quant": ("int8",)},
    "8bit": {"quant": ("int8",)},
    "llm.int8": {"quant": ("int8",)},
    "full-fine-tuning": {"method": ("full",)},
    "fft": {"method": ("full",)},
    "fsdp": {"strategy": ("fsdp2", "fsdp1")},
    "hsdp": {"device_mesh": ("hsdp",)},
    "offload": {"cpu_offload": (True,)},
    "double": {"bnb_4bit_use_double_quant": (True,)},
    "amp": {"autocast": ("bf16", "fp16")},
    "autocast": {"autocast": ("bf16", "fp16")},
    "gradient_checkpointing": {"gradient_checkpointing": ("non_reentrant", "reentrant")},
    "gradient-checkpointing": {"gradient_checkpointing": ("non_reentrant", "reentrant")},
    "reentrant": {"gradient_checkpointing": ("reentrant",)},
    "non-reentrant": {"gradient_checkpointing": ("non_reentrant",)},
    "save": {"flow": ("save_reload",)},
    "reload": {"flow": ("save_reload",)},
    "serving": {"flow": ("merge_reload",)},
    "generation": {"flow": ("generate",)},
    "inference": {"flow": ("generate",)},
    "sfttrainer": {"front_end": ("sft",)},
    "trl": {"front_end": ("sft",)},
    "moe": {"model": ("mixtral",)},
    "tied": {"embeddings": ("tied",)},
    "eval": {"loop": ("eval",)},
    "head": {"modules_to_save": ("lm_head",)},
    "embeddings": {"target_embeddings": (True,)},
}
FILLER_WORDS: Final = frozenset({"and", "with", "on", "under", "in", "using", "fine-tuning", "+", "&", "|"})
