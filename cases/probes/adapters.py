"""Probes of what PEFT's configurations offer for choosing and combining adapters: fields, and what is documented."""

from __future__ import annotations

import inspect
from functools import partial
from typing import TYPE_CHECKING

from cases.space.verdict import LackingError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from cases.space.place import Place


def lora_field(_place: Place, _cache: Path, name: str) -> None:
    from peft import LoraConfig

    if name not in inspect.signature(LoraConfig).parameters:
        raise LackingError(f"LoraConfig has no {name}")


def lora_layer(_place: Place, _cache: Path, name: str) -> None:
    from peft.tuners.lora import layer

    if not hasattr(layer, name):
        raise LackingError(f"peft.tuners.lora.layer has no {name}")


def anchored_patterns(_place: Place, _cache: Path) -> None:
    """Look for an expression with ^ in the documentation of rank_pattern."""
    from peft import LoraConfig

    if "{'^" not in (LoraConfig.__doc__ or ""):
        raise LackingError("LoraConfig documents no such keys of rank_pattern")


def helper(_place: Place, _cache: Path, name: str) -> None:
    """Look for a function of ``peft.helpers``."""
    import peft.helpers

    if not hasattr(peft.helpers, name):
        raise LackingError(f"peft.helpers has no {name}")


def negative_weights(_place: Place, _cache: Path) -> None:
    """Look for negative weights in the documentation of ``add_weighted_adapter``."""
    from peft import LoraModel

    if "negative" not in (LoraModel.add_weighted_adapter.__doc__ or ""):
        raise LackingError("add_weighted_adapter documents no negative weights")


def hotswap(_place: Place, _cache: Path, name: str) -> None:
    """Look for a function of ``peft.utils.hotswap``."""
    from peft.utils import hotswap as module

    if not hasattr(module, name):
        raise LackingError(f"peft.utils.hotswap has no {name}")


def loading_argument(_place: Place, _cache: Path, name: str) -> None:
    from peft import PeftModel

    if name not in inspect.signature(PeftModel.from_pretrained).parameters:
        raise LackingError(f"PeftModel.from_pretrained has no {name}")


def model_status(_place: Place, _cache: Path) -> None:
    import peft

    if not hasattr(peft, "get_model_status"):
        raise LackingError("peft has no get_model_status")


def loraplus(_place: Place, _cache: Path) -> None:
    try:
        from peft.optimizers import create_loraplus_optimizer
    except ImportError:
        raise LackingError("peft has no create_loraplus_optimizer") from None
    del create_loraplus_optimizer


def dora_of_embeddings(_place: Place, _cache: Path) -> None:
    import torch
    from peft import LoraConfig, get_peft_model

    if "use_dora" not in inspect.signature(LoraConfig).parameters:
        raise LackingError("LoraConfig has no use_dora")
    try:
        get_peft_model(torch.nn.Sequential(torch.nn.Embedding(4, 4)), LoraConfig(target_modules=["0"], use_dora=True))
    except ValueError as error:
        raise LackingError(str(error)) from None


def ignore_mismatched_sizes(_place: Place, _cache: Path) -> None:
    from peft import set_peft_model_state_dict

    if "ignore_mismatched_sizes" not in inspect.signature(set_peft_model_state_dict).parameters:
        raise LackingError("set_peft_model_state_dict has no ignore_mismatched_sizes")


def configs_without_return_dict(_place: Place, _cache: Path) -> None:
    """Read the code of a forward pass: earlier versions need a property that only transformers 4 has."""
    from peft import PeftModelForSequenceClassification

    if "config.use_return_dict" in inspect.getsource(PeftModelForSequenceClassification.forward):
        raise LackingError("PEFT's forward pass reads config.use_return_dict")


def combined_vectors(_place: Place, _cache: Path) -> None:
    from peft.tuners.ia3 import IA3Model

    if "add_weighted_adapter" not in vars(IA3Model):
        raise LackingError("IA3Model has no add_weighted_adapter")


# By the names of requirements: the probe, and the beginning of the sentence of a skip.
PROBES: Mapping[str, tuple[Callable[[Place, Path], None], str]] = {
    "peft_version_in_files": (partial(lora_field, name="peft_version"), "files of this peft do not name its version"),
    "corda": (partial(lora_field, name="corda_config"), "this peft has no CorDA"),
    "eva": (partial(lora_field, name="eva_config"), "this peft has no EVA"),
    "lora_ga": (partial(lora_field, name="lora_ga_config"), "this peft has no LoRA-GA"),
    "kasa": (partial(lora_field, name="kasa_config"), "this peft has no KaSA"),
    "bdlora": (partial(lora_field, name="use_bdlora"), "this peft has no BD-LoRA"),
    "tied_adapters": (
        partial(lora_field, name="ensure_weight_tying"),
        "this peft does not tie adapters of shared layers",
    ),
    "layer_replication": (partial(lora_field, name="layer_replication"), "this peft repeats no layers"),
    "convolutions_of_three_dimensions": (
        partial(lora_layer, name="Conv3d"),
        "this peft has no LoRA on convolutions of three dimensions",
    ),
    "convolutions_of_one_dimension": (
        partial(lora_layer, name="Conv1d"),
        "this peft has no LoRA on convolutions of one dimension",
    ),
    "attention_adapters": (
        partial(lora_layer, name="MultiheadAttention"),
        "this peft has no LoRA on torch's MultiheadAttention",
    ),
    "exclude_modules": (partial(lora_field, name="exclude_modules"), "this peft excludes no modules"),
    "parameter_targets": (partial(lora_field, name="target_parameters"), "this peft adapts no parameters by name"),
    "trainable_tokens": (
        partial(lora_field, name="trainable_token_indices"),
        "this peft trains no single rows of embeddings",
    ),
    "anchored_patterns": (anchored_patterns, "this peft has no anchors in the keys of rank_pattern"),
    "negative_weights": (negative_weights, "this peft combines adapters with positive weights only"),
    "rescale_adapter_scale": (
        partial(helper, name="rescale_adapter_scale"),
        "this peft has no rescale_adapter_scale",
    ),
    "disable_input_dtype_casting": (
        partial(helper, name="disable_input_dtype_casting"),
        "this peft has no disable_input_dtype_casting",
    ),
    "hotswap": (partial(hotswap, name="hotswap_adapter"), "this peft swaps no loaded adapters"),
    "prepared_hotswap": (
        partial(hotswap, name="prepare_model_for_compiled_hotswap"),
        "this peft swaps no adapters of other ranks",
    ),
    "low_cpu_mem_usage": (
        partial(loading_argument, name="low_cpu_mem_usage"),
        "this peft has no low_cpu_mem_usage",
    ),
    "key_mapping": (partial(loading_argument, name="key_mapping"), "this peft renames no tensors of a file"),
    "loraplus": (loraplus, "this peft has no LoRA+"),
    "dora_of_embeddings": (dora_of_embeddings, "this peft has no DoRA on embeddings"),
    "model_status": (model_status, "this peft reports no status of adapters"),
    "configs_without_return_dict": (
        configs_without_return_dict,
        "this peft reads a property that only configurations of transformers have",
    ),
    "combined_vectors": (combined_vectors, "this peft combines no adapters of (IA)³"),
    "ignore_mismatched_sizes": (ignore_mismatched_sizes, "this peft sets no state of another shape"),
}
