"""Probes of functions and arguments that only later versions have, each with the sentence of its skip."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from cases.space.verdict import LackingError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from cases.space.place import Place


def attention_functions(_place: Place, _cache: Path) -> None:
    from transformers.integrations import sdpa_attention
    from transformers.models.llama import modeling_llama

    assert sdpa_attention  # noqa: S101 - the import is the probe
    if not hasattr(modeling_llama, "eager_attention_forward"):
        raise LackingError("attention is a method of each layer")


def fallback_allocation(_place: Place, _cache: Path) -> None:
    from accelerate import infer_auto_device_map

    if "fallback_allocation" not in inspect.signature(infer_auto_device_map).parameters:
        raise LackingError("infer_auto_device_map has no fallback_allocation")


def penalties_beyond_the_head(_place: Place, _cache: Path) -> None:
    from transformers import RepetitionPenaltyLogitsProcessor

    if "clamp" not in inspect.getsource(RepetitionPenaltyLogitsProcessor.__call__):
        raise LackingError("RepetitionPenaltyLogitsProcessor reads the score of every token of the prompt")


def stop_strings_of_bytes(_place: Place, _cache: Path) -> None:
    from transformers.generation.stopping_criteria import StopStringCriteria

    if "byte_fallback" not in inspect.getsource(StopStringCriteria):
        raise LackingError("StopStringCriteria matches letters, not bytes")


def one_rule_of_names(_place: Place, _cache: Path) -> None:
    """Earlier versions have a rule in each quantisation's own functions."""
    from transformers.quantizers import quantizers_utils

    if not hasattr(quantizers_utils, "should_convert_module"):
        raise LackingError("each quantisation has a rule of its own for the names that it leaves out")


def fsdp2_trained_in_float32(_place: Place, _cache: Path) -> None:
    """Look for the remark that FSDP2 needs one dtype of trained weights alone; before, frozen ones were cast too."""
    from accelerate.utils import fsdp_utils

    if "among trainable params" not in inspect.getsource(fsdp_utils.fsdp2_prepare_model):
        raise LackingError("accelerate casts frozen weights as it does trained ones")


def aligned_modules(_place: Place, _cache: Path) -> None:
    from accelerate import utils

    if not hasattr(utils, "align_module_device"):
        raise LackingError("accelerate.utils has no align_module_device")


# By the name of the requirement: the probe, and the beginning of the sentence of the skip.
LATER: Mapping[str, tuple[Callable[[Place, Path], None], str]] = {
    "aligned_modules": (aligned_modules, "this accelerate has no align_module_device"),
    "attention_functions": (attention_functions, "attention of this transformers is a method of each layer"),
    "one_rule_of_names": (one_rule_of_names, "this transformers has a rule of names for each quantisation"),
    "fsdp2_trained_in_float32": (fsdp2_trained_in_float32, "this accelerate casts frozen weights under FSDP2 too"),
    "fallback_allocation": (fallback_allocation, "this accelerate has no fallback_allocation"),
    "penalties_beyond_the_head": (
        penalties_beyond_the_head,
        "this transformers takes no penalty of tokens beyond the head",
    ),
    "stop_strings_of_bytes": (stop_strings_of_bytes, "this transformers matches stop strings by letters alone"),
}
