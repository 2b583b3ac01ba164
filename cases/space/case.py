"""A case: a named point of the option space, and why it is in the grid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cases.space.options import Options

FROM = "-from-"  # in an id, before the version set that saved what the case loads


@dataclass(frozen=True)
class Case:
    """``group`` is the heading it stands under in a report; ``why`` says what a user learns from it.

    ``source`` is the version set that made what the case begins with (``flow=portability``); empty for its own.
    """

    group: str
    why: str
    options: Options
    source: str = ""

    @property
    def id(self) -> str:
        """Readable and unique, e.g. ``train-lora-nf4-bf16store-fsdp2-bf16``."""
        return "-".join(words(self.options)) + (f"{FROM}{self.source}" if self.source else "")

    @property
    def begun(self) -> str:
        """The id of the case that its source began."""
        return split_source(self.id)[0]

    @property
    def ranks(self) -> int:
        return self.options.world_size


def split_source(name: str) -> tuple[str, str]:
    """The id of the case that was begun, and the version set that it continues from; empty for a case of its own."""
    begun, _, source = name.partition(FROM)
    return begun, source


def case(group: str, why: str, **options: Any) -> Case:
    """A row of the grid: the options that differ from the defaults of ``Options``.

    Raises:
        IllegalError: an option, value or combination outside the space.
    """
    return Case(group, why, Options().but(**options))


def words(options: Options) -> list[str]:
    """The parts of an id: the kind of job first, then what differs from what one would expect."""
    if options.call:
        return [options.flow, options.call]
    stated = options.stated
    said = {name: word[stated[name]] for name, word in WORDS.items() if name in stated and stated[name] in word}
    kind = [options.flow, *([] if options.flow == "load" else [options.method]), *taken(said, MODEL)]
    quant = [] if options.quant == "none" else [options.quant, *taken(said, QUANTISATION)]
    return [*kind, *quant, options.strategy, *taken(said, WRAPPING), options.load_dtype, *said.values()]


def taken(said: dict[str, str], names: tuple[str, ...]) -> list[str]:
    """What is said of some options, which are then not said again."""
    return [said.pop(name) for name in names if name in said]


# What an id says of an option's value; the expected values, which are not here, go without saying.
WORDS: dict[str, dict[Any, str]] = {
    "also_trained": {"head": "head", "embeddings": "embeddings"},
    "model": {name: name for name in ("qwen", "gemma", "mistral", "mixtral", "gpt2", "t5")},
    "embeddings": {"tied": "tied", "resized": "resized"},
    "quant_storage": {"bf16": "bf16store", "fp16": "fp16store", "fp32": "fp32store"},
    "double_quant": {True: "double"},
    "skip_modules": {True: "skip"},
    "prequantised": {True: "prequantised"},
    "compute_dtype": {"fp32": "compute_fp32", "bf16": "compute_bf16", "fp16": "compute_fp16"},
    "world_size": {4: "4ranks"},
    "wrap": {"none": "nowrap", "peft": "peftwrap", "size": "sizewrap"},
    "use_orig_params": {False: "flatparams"},
    "sharding": {"grad_op": "grad_op", "none": "no_shard"},
    "sync_module_states": {True: "sync"},
    "reshard_after_forward": {False: "noreshard"},
    "mesh": {"hsdp": "hsdp"},
    "cpu_offload": {True: "offload"},
    "ram_efficient": {True: "ram_efficient"},
    "find_unused_parameters": {True: "find_unused"},
    "static_graph": {True: "static_graph"},
    "gradient_as_bucket_view": {True: "bucket_view"},
    "state_dict": {"sharded": "sharded_state", "full_on_device": "device_state", "full_dcp": "dcp_state"},
    "gathered": {True: "gathered"},
    "mixed_precision": {"bf16": "mixed_bf16", "bf16_reduce_fp32": "mixed_bf16_reduce_fp32"},
    "autocast": {"bf16": "autocast_bf16", "fp16": "autocast_fp16"},
    "adapter_fp32": {False: "adapter_as_base"},
    "checkpointing": {"reentrant": "ckpt_reentrant", "non_reentrant": "ckpt_non_reentrant"},
    "accumulation": {2: "accumulate2"},
    "clip": {True: "clip"},
    "attention": {
        name: f"attn_{name}" for name in ("eager", "sdpa", "math", "flash", "efficient", "cudnn", "flash_attention_2")
    },
    "optimiser": {"adamw": "adamw", "adamw_8bit": "adamw_8bit", "paged_adamw_8bit": "paged_adamw_8bit"},
    "stepping": {"foreach": "foreach", "fused": "fused"},
    "front_end": {"accelerate": "accelerate", "trainer": "trainer", "sft": "sft"},
    "loop": {"eval": "eval_between", "generate": "generate_between"},
    "compile": {True: "compiled"},
}
MODEL = ("also_trained", "model", "embeddings")
QUANTISATION = ("quant_storage", "double_quant", "skip_modules", "prequantised", "compute_dtype")
WRAPPING = (
    *("world_size", "wrap", "use_orig_params", "sharding", "sync_module_states", "reshard_after_forward", "mesh"),
    *("cpu_offload", "ram_efficient", "find_unused_parameters", "static_graph", "gradient_as_bucket_view"),
)
