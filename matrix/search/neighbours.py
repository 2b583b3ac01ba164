"""Lists the neighbours of a case: cases with other settings, and alternatives without a part of its configuration.

Settings keep the method, the quantisation, the strategy, and the precision of the base and of the computation. The
last settings may cost accuracy: double quantisation, the dtype of the adapters, and FSDP's mixed precision. The report
of such a fix says so. The search tries neighbours in the order of the tables, those with the least cost first.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final

from cases.space.options import OWN_CODE, Options, applies, values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cases.space.options import Value
    from cases.space.verdict import Scalar

    Changes = Mapping[str, Scalar]

MAX_RADIUS: Final = 2  # number of settings that change together


@dataclass(frozen=True)
class Setting:
    """An option that a fix may change, with its values, the best first.

    The search changes an option with ``alone`` only by itself, which keeps the number of pairs small.
    """

    option: str
    to: tuple[Value, ...]
    when: Callable[[Options], bool] = lambda _options: True
    alone: bool = False


# In the order of their cost: bookkeeping only, then memory, then accuracy.
SETTINGS: Final[tuple[Setting, ...]] = (
    Setting("use_orig_params", (True, False)),
    Setting("auto_wrap_policy", ("transformer", "peft", "size")),
    Setting("bnb_4bit_quant_storage", ("bf16", "fp16", "fp32", "uint8")),
    Setting("summon_full_params", (True,)),
    Setting("gradient_checkpointing", ("non_reentrant", "reentrant"), lambda o: o.gradient_checkpointing != "off"),
    Setting("static_graph", (True, False)),
    Setting("find_unused_parameters", (False, True)),
    Setting("gradient_as_bucket_view", (False, True)),
    Setting("sync_module_states", (True, False)),
    Setting("state_dict_type", ("full", "sharded", "full_dcp", "full_on_device")),
    Setting("attn_implementation", ("eager", "math"), alone=True),
    Setting("optim_implementation", ("default",), alone=True),
    Setting("bnb_4bit_use_double_quant", (False, True)),
    Setting("reshard_after_forward", (True, False)),
    Setting("sharding_strategy", ("full_shard", "shard_grad_op")),
    Setting("cpu_ram_efficient_loading", (False,)),
    Setting("autocast_adapter_dtype", (True, False)),
    # Switches between FSDP's two policies with bfloat16; adds one only if the weights are in bfloat16 anyway.
    Setting("mixed_precision", ("bf16_reduce_fp32", "bf16"), lambda o: o.mixed_precision != "off"),
    Setting("mixed_precision", ("bf16_reduce_fp32", "bf16"), lambda o: o.mixed_precision == "off" and is_half(o)),
)

# Alternatives by option and value, in the order in which a user would accept them.
GIVEN_UP: Final[Mapping[str, Mapping[Value, tuple[Value, ...]]]] = {
    "mixed_precision": {"off": ("bf16_reduce_fp32",), "bf16": ("off",), "bf16_reduce_fp32": ("off",)},
    "llm_int8_skip_modules": {False: (True,)},
    "prequantised": {True: (False,)},
    "optim_implementation": {"foreach": ("default",), "fused": ("default",)},
    "attn_implementation": {"flash": ("default",), "efficient": ("default",), "cudnn": ("default",)},
    "loop": {"eval": ("plain",), "generate": ("plain",)},
    "clip_grad_norm": {True: (False,)},
    "gradient_accumulation_steps": {2: (1,)},
    "torch_compile": {True: (False,)},
    "cpu_offload": {True: (False,)},
    "device_mesh": {"hsdp": ("1d",)},
    "sharding_strategy": {"full_shard": ("no_shard",), "shard_grad_op": ("no_shard",)},
    "auto_wrap_policy": {"transformer": ("none",), "peft": ("none",), "size": ("none",)},
    "world_size": {4: (2,)},
    "method": {
        **dict.fromkeys(("rslora", "dora", "pissa", "olora", "loftq", "loha", "lokr", "ia3", "adalora"), ("lora",)),
        **dict.fromkeys(("vera", "prompt", "prefix", "full"), ("lora",)),
    },
    "modules_to_save": {"lm_head": ("none",)},
    "target_embeddings": {True: (False,)},
    "embeddings": {"tied": ("untied",), "resized": ("untied",)},
    "bnb_4bit_compute_dtype": {"load": ("fp32",), "fp32": ("load",), "bf16": ("load",), "fp16": ("load",)},
    "autocast": {"fp16": ("bf16", "off"), "bf16": ("off",)},
    "torch_dtype": {"bf16": ("fp32",), "fp16": ("bf16", "fp32"), "fp32": ("bf16",)},
    "optim": {"adamw_8bit": ("adamw",), "paged_adamw_8bit": ("adamw_8bit", "adamw")},
    "front_end": {"sft": ("trainer", "accelerate"), "trainer": ("accelerate",), "accelerate": ("loop",)},
    "strategy": {"fsdp1": ("fsdp2", "ddp"), "fsdp2": ("fsdp1", "ddp"), "ddp": ("fsdp2",)},
    "gradient_checkpointing": {"reentrant": ("off",), "non_reentrant": ("off",)},
    "quant": {"int8": ("nf4", "none"), "nf4": ("fp4", "int8", "none"), "fp4": ("nf4", "none")},
}

# Options that accelerate and the trainers do not pass on; then those that only the trainers do not.
BY_HAND: Final = frozenset(
    {"sharding_strategy", "reshard_after_forward", "device_mesh", "mixed_precision", "state_dict_type"}
)
BY_HAND_VALUES: Final = frozenset({("auto_wrap_policy", "peft"), ("auto_wrap_policy", "size")})
NOT_BY_TRAINERS: Final = frozenset({"static_graph", "gradient_as_bucket_view"})


def is_half(options: Options) -> bool:
    return options.torch_dtype == "bf16" and options.autocast == "off"


def moved(start: Options, changes: Changes) -> Options | None:
    """The options with some changes; None if they are illegal, or a change has no effect.

    Options that no longer apply get their default, e.g. a policy of FSDP1 after a move to FSDP2.
    """
    new_values: dict[str, Any] = dict(changes)  # of the tables above
    point = replace(start, **new_values)
    if point.strategy == "fsdp2" and "auto_wrap_policy" not in changes and point.auto_wrap_policy in ("peft", "size"):
        point = replace(point, auto_wrap_policy="transformer")
    defaults: dict[str, Any] = {
        f.name: f.default for f in fields(Options) if not applies(f.name, point) and f.name not in changes
    }
    point = replace(point, **defaults)
    all_effective = all(is_effective(point, name, value) for name, value in changes.items())
    return point if all_effective and not point.why_illegal and canonical(point) != canonical(start) else None


def is_effective(point: Options, name: str, value: Scalar) -> bool:
    """Return whether the option applies to these options, and the front end passes the value on."""
    if not applies(name, point) or value not in values(name):
        return False
    if point.front_end == "loop":
        return True
    if point.front_end in ("trainer", "sft") and name in NOT_BY_TRAINERS:
        return False
    return name not in BY_HAND and (name, value) not in BY_HAND_VALUES


def canonical(options: Options) -> Options:
    """The options with one form for equivalent values, so that equivalent options compare equal."""
    same = options.bnb_4bit_compute_dtype in ("load", options.torch_dtype)
    return replace(options, bnb_4bit_compute_dtype="load") if same else options


def settings(start: Options, radius: int) -> Iterator[Changes]:
    """Every change of ``radius`` settings at once, those with the least cost first."""
    costs = {step: cost for cost, step in enumerate(steps(start, paired=radius > 1))}
    combined = combinations(costs, radius)
    for chosen in sorted(combined, key=lambda each: sum(costs[step] for step in each)):
        changes = dict(chosen)
        if len(changes) == radius and moved(start, changes) is not None:
            yield changes


def steps(start: Options, *, paired: bool) -> list[tuple[str, Value]]:
    """Every change of one setting, legal or not; ``paired`` leaves out settings that only change alone."""
    if start.flow in OWN_CODE:
        return []
    return [
        (row.option, value)
        for row in SETTINGS
        if applies(row.option, start) and row.when(start) and not (paired and row.alone)
        for value in row.to
        if value != getattr(start, row.option)
    ]


def alternatives(start: Options) -> Iterator[Changes]:
    """Every alternative that gives up one option, in the order of the table."""
    if start.flow in OWN_CODE:
        return
    for option, instead in GIVEN_UP.items():
        for value in instead.get(getattr(start, option), ()) if applies(option, start) else ():
            changes = {option: value}
            if moved(start, changes) is not None:
                yield changes


def alternatives_with_setting(start: Options) -> Iterator[Changes]:
    """Every alternative with one changed setting."""
    for given_up in alternatives(start):
        instead = moved(start, given_up)
        if instead is None:
            continue
        for option, value in steps(instead, paired=True):
            changes = {**given_up, option: value}
            if option not in given_up and moved(start, changes) is not None:
                yield changes
