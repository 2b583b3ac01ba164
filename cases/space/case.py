"""A case: a named point of the option space, and what a user learns from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cases.space.options import Options

FROM = "-from-"  # in an id, precedes the version set that saved the case's checkpoint


@dataclass(frozen=True)
class Case:
    """``group`` is its heading in a report; ``why`` says what a user learns from it.

    ``source`` is the version set that saved the case's checkpoint (``flow=portability``); empty for none.
    """

    group: str
    why: str
    options: Options
    source: str = ""

    @property
    def id(self) -> str:
        """Readable and unique, e.g. ``train-lora-nf4-bnb_4bit_quant_storage_bf16-fsdp2-bf16``."""
        return "-".join(id_parts(self.options)) + (f"{FROM}{self.source}" if self.source else "")

    @property
    def begun(self) -> str:
        """The id of the case whose checkpoint this case continues from."""
        return split_source(self.id)[0]

    @property
    def ranks(self) -> int:
        return self.options.world_size


def split_source(name: str) -> tuple[str, str]:
    """The id of the case that saved the checkpoint, and its version set; empty for a case without one."""
    begun, _, source = name.partition(FROM)
    return begun, source


def case(group: str, why: str, **options: Any) -> Case:
    """A row of the grid: the options that differ from the defaults of ``Options``.

    Raises:
        IllegalError: an option, value or combination outside the space.
    """
    return Case(group, why, Options().but(**options))


def id_parts(options: Options) -> list[str]:
    """The parts of an id: the kind of job, then the options that differ from the usual values."""
    if options.call:
        return [options.flow, options.call]
    stated = options.stated
    parts = {name: word[stated[name]] for name, word in WORDS.items() if name in stated and stated[name] in word}
    kind = [options.flow, *([] if options.flow == "load" else [options.method]), *pop(parts, MODEL)]
    quant = [] if options.quant == "none" else [options.quant, *pop(parts, QUANTISATION)]
    return [*kind, *quant, options.strategy, *pop(parts, WRAPPING), options.torch_dtype, *parts.values()]


def pop(parts: dict[str, str], names: tuple[str, ...]) -> list[str]:
    """Remove and return the parts of these options."""
    return [parts.pop(name) for name in names if name in parts]


# The word of an option's value in an id. Ids leave out the values that are not listed.
WORDS: dict[str, dict[Any, str]] = {
    "modules_to_save": {"lm_head": "modules_to_save"},
    "target_embeddings": {True: "target_embeddings"},
    "model": {name: name for name in ("qwen", "qwen3", "gemma", "mistral", "mixtral", "gpt2", "t5")},
    "rope_scaling": {name: f"rope_scaling_{name}" for name in ("linear", "dynamic", "llama3", "yarn", "longrope")},
    "embeddings": {"tied": "tied", "resized": "resized"},
    "bnb_4bit_quant_storage": {
        "bf16": "bnb_4bit_quant_storage_bf16",
        "fp16": "bnb_4bit_quant_storage_fp16",
        "fp32": "bnb_4bit_quant_storage_fp32",
    },
    "bnb_4bit_use_double_quant": {True: "bnb_4bit_use_double_quant"},
    "llm_int8_skip_modules": {True: "llm_int8_skip_modules"},
    "prequantised": {True: "prequantised"},
    "bnb_4bit_compute_dtype": {
        "fp32": "bnb_4bit_compute_dtype_fp32",
        "bf16": "bnb_4bit_compute_dtype_bf16",
        "fp16": "bnb_4bit_compute_dtype_fp16",
    },
    "world_size": {4: "4ranks"},
    "auto_wrap_policy": {
        "none": "auto_wrap_policy_none",
        "peft": "auto_wrap_policy_peft",
        "size": "auto_wrap_policy_size",
    },
    "use_orig_params": {False: "use_orig_params_false"},
    "sharding_strategy": {"shard_grad_op": "shard_grad_op", "no_shard": "no_shard"},
    "sync_module_states": {True: "sync_module_states"},
    "reshard_after_forward": {False: "reshard_after_forward_false"},
    "device_mesh": {"hsdp": "hsdp"},
    "cpu_offload": {True: "cpu_offload"},
    "cpu_ram_efficient_loading": {True: "cpu_ram_efficient_loading"},
    "find_unused_parameters": {True: "find_unused_parameters"},
    "static_graph": {True: "static_graph"},
    "gradient_as_bucket_view": {True: "gradient_as_bucket_view"},
    "state_dict_type": {
        "sharded": "state_dict_type_sharded",
        "full_on_device": "state_dict_type_full_on_device",
        "full_dcp": "state_dict_type_full_dcp",
    },
    "summon_full_params": {True: "summon_full_params"},
    "mixed_precision": {"bf16": "mixed_precision_bf16", "bf16_reduce_fp32": "mixed_precision_bf16_reduce_fp32"},
    "autocast": {"bf16": "autocast_bf16", "fp16": "autocast_fp16"},
    "autocast_adapter_dtype": {False: "autocast_adapter_dtype_false"},
    "gradient_checkpointing": {
        "reentrant": "gradient_checkpointing_reentrant",
        "non_reentrant": "gradient_checkpointing_non_reentrant",
    },
    "gradient_accumulation_steps": {2: "gradient_accumulation_steps_2"},
    "clip_grad_norm": {True: "clip_grad_norm"},
    "attn_implementation": {
        name: f"attn_implementation_{name}"
        for name in ("eager", "sdpa", "math", "flash", "efficient", "cudnn", "flash_attention_2")
    },
    "optim": {"adamw": "adamw", "adamw_8bit": "adamw_8bit", "paged_adamw_8bit": "paged_adamw_8bit"},
    "optim_implementation": {"foreach": "foreach", "fused": "fused"},
    "front_end": {"accelerate": "accelerate", "trainer": "trainer", "sft": "sft"},
    "data": {name: f"data_{name}" for name in ("padded_right", "padded_left", "prompt_masked", "packed", "long")},
    "loop": {"eval": "eval_between", "generate": "generate_between"},
    "torch_compile": {True: "torch_compile"},
}
MODEL = ("modules_to_save", "target_embeddings", "model", "rope_scaling", "embeddings")
QUANTISATION = (
    "bnb_4bit_quant_storage",
    "bnb_4bit_use_double_quant",
    "llm_int8_skip_modules",
    "prequantised",
    "bnb_4bit_compute_dtype",
)
WRAPPING = (
    *(
        "world_size",
        "auto_wrap_policy",
        "use_orig_params",
        "sharding_strategy",
        "sync_module_states",
        "reshard_after_forward",
        "device_mesh",
    ),
    *("cpu_offload", "cpu_ram_efficient_loading", "find_unused_parameters", "static_graph", "gradient_as_bucket_view"),
)
