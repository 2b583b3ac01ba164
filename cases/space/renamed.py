"""Former names of options, values and case ids, so that stored results and old commands keep working."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

OPTIONS = {
    "quant_storage": "bnb_4bit_quant_storage",
    "double_quant": "bnb_4bit_use_double_quant",
    "compute_dtype": "bnb_4bit_compute_dtype",
    "skip_modules": "llm_int8_skip_modules",
    "load_dtype": "torch_dtype",
    "adapter_fp32": "autocast_adapter_dtype",
    "wrap": "auto_wrap_policy",
    "sharding": "sharding_strategy",
    "mesh": "device_mesh",
    "ram_efficient": "cpu_ram_efficient_loading",
    "state_dict": "state_dict_type",
    "gathered": "summon_full_params",
    "checkpointing": "gradient_checkpointing",
    "accumulation": "gradient_accumulation_steps",
    "clip": "clip_grad_norm",
    "attention": "attn_implementation",
    "optimiser": "optim",
    "stepping": "optim_implementation",
    "compile": "torch_compile",
}
SHARDING = {"full": "full_shard", "grad_op": "shard_grad_op", "none": "no_shard"}
ALSO_TRAINED = {  # one option became two
    "nothing": ("modules_to_save", "none"),
    "head": ("modules_to_save", "lm_head"),
    "embeddings": ("target_embeddings", True),
}
WORDS = {
    "head": "modules_to_save",
    "embeddings": "target_embeddings",
    "bf16store": "bnb_4bit_quant_storage_bf16",
    "fp16store": "bnb_4bit_quant_storage_fp16",
    "fp32store": "bnb_4bit_quant_storage_fp32",
    "double": "bnb_4bit_use_double_quant",
    "skip": "llm_int8_skip_modules",
    "compute_fp32": "bnb_4bit_compute_dtype_fp32",
    "compute_bf16": "bnb_4bit_compute_dtype_bf16",
    "compute_fp16": "bnb_4bit_compute_dtype_fp16",
    "nowrap": "auto_wrap_policy_none",
    "peftwrap": "auto_wrap_policy_peft",
    "sizewrap": "auto_wrap_policy_size",
    "flatparams": "use_orig_params_false",
    "grad_op": "shard_grad_op",
    "sync": "sync_module_states",
    "noreshard": "reshard_after_forward_false",
    "offload": "cpu_offload",
    "ram_efficient": "cpu_ram_efficient_loading",
    "find_unused": "find_unused_parameters",
    "bucket_view": "gradient_as_bucket_view",
    "sharded_state": "state_dict_type_sharded",
    "device_state": "state_dict_type_full_on_device",
    "dcp_state": "state_dict_type_full_dcp",
    "gathered": "summon_full_params",
    "mixed_bf16": "mixed_precision_bf16",
    "mixed_bf16_reduce_fp32": "mixed_precision_bf16_reduce_fp32",
    "adapter_as_base": "autocast_adapter_dtype_false",
    "ckpt_reentrant": "gradient_checkpointing_reentrant",
    "ckpt_non_reentrant": "gradient_checkpointing_non_reentrant",
    "accumulate2": "gradient_accumulation_steps_2",
    "clip": "clip_grad_norm",
    **{
        f"attn_{name}": f"attn_implementation_{name}"
        for name in ("eager", "sdpa", "math", "flash", "efficient", "cudnn", "flash_attention_2")
    },
    "compiled": "torch_compile",
}
# The id of a grid case: flow, method, and what differs. Ids of calls and scripts are names, and never changed.
GRID_ID = re.compile(r"(?:train|save_reload|resume|merge|merge_reload|generate|portability|load)-[a-z0-9_]+(?:-|$)")


@lru_cache(maxsize=8192)  # documents repeat every id in many cells
def current_case_id(case_id: str) -> str:
    """The present id of a case, given a present or a former one, e.g. ``train-lora-ddp-fp32-clip``."""
    if not GRID_ID.match(case_id):
        return case_id
    own, separator, source = case_id.partition("-from-")
    return "-".join(WORDS.get(word, word) for word in own.split("-")) + separator + source


def current_cell(cell: str) -> str:
    """The present name of a cell, ``SET__CASE``, given a present or a former one."""
    version_set, separator, case_id = cell.partition("__")
    return version_set + separator + current_case_id(case_id)


def current_option(name: str, value: Any) -> tuple[str, Any]:
    """The present name and value of an option, given present or former ones."""
    if name == "also_trained":
        return ALSO_TRAINED.get(value, (name, value))
    if name == "sharding":
        value = SHARDING.get(value, value)
    return OPTIONS.get(name, name), value


def current_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Stored options under their present names and values."""
    return dict(current_option(name, value) for name, value in options.items())
