"""Which points of the option space lie beside another: by settings, or by giving part of what was wanted up.

Settings keep the method, the quantisation, the strategy, and the precision of the base and of the computation. Those
that cost digits are among them, late: double quantisation, the dtype of the adapters and FSDP's mixed precision. Where
a fix changes one of these, its words say so. A red cell's fix is looked for among its neighbours, in the order of this
module's tables: what costs a user least comes first.
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

FARTHEST: Final = 2  # settings that are changed together


@dataclass(frozen=True)
class Setting:
    """An option that may change while a user keeps what the module's text says. ``to``: values, the best first.

    One that is tried ``alone`` is left out where several change at once: pairs are many, and these say little together.
    """

    option: str
    to: tuple[Value, ...]
    when: Callable[[Options], bool] = lambda _options: True
    alone: bool = False


# The cheapest first: switches that change nothing but bookkeeping, then what costs memory, then what costs digits.
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
    # Between FSDP's two ways to compute in bfloat16; from none to one only where the weights are in bfloat16 anyway.
    Setting("mixed_precision", ("bf16_reduce_fp32", "bf16"), lambda o: o.mixed_precision != "off"),
    Setting("mixed_precision", ("bf16_reduce_fp32", "bf16"), lambda o: o.mixed_precision == "off" and is_half(o)),
)

# What may be given up, in the order in which a user would: by option, what stands in for each value.
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

# What is not passed on by accelerate and the trainers, and by the trainers.
BY_HAND: Final = frozenset(
    {"sharding_strategy", "reshard_after_forward", "device_mesh", "mixed_precision", "state_dict_type"}
)
BY_HAND_VALUES: Final = frozenset({("auto_wrap_policy", "peft"), ("auto_wrap_policy", "size")})
NOT_BY_TRAINERS: Final = frozenset({"static_graph", "gradient_as_bucket_view"})


def is_half(options: Options) -> bool:
    return options.torch_dtype == "bf16" and options.autocast == "off"


def moved(start: Options, changes: Changes) -> Options | None:
    """The point with some options changed; None where there is no such point, or a change would mean nothing there.

    What no longer applies goes back to its default: an FSDP1 policy does not outlive FSDP1.
    """
    wanted: dict[str, Any] = dict(changes)  # values of the tables above
    point = replace(start, **wanted)
    if point.strategy == "fsdp2" and "auto_wrap_policy" not in changes and point.auto_wrap_policy in ("peft", "size"):
        point = replace(point, auto_wrap_policy="transformer")
    idle: dict[str, Any] = {
        f.name: f.default for f in fields(Options) if not applies(f.name, point) and f.name not in changes
    }
    point = replace(point, **idle)
    heard = all(is_heard(point, name, value) for name, value in changes.items())
    return point if heard and not point.why_illegal and meaning(point) != meaning(start) else None


def is_heard(point: Options, name: str, value: Scalar) -> bool:
    """Whether the value means something at this point, and whoever drives the training passes it on."""
    if not applies(name, point) or value not in values(name):
        return False
    if point.front_end == "loop":
        return True
    if point.front_end in ("trainer", "sft") and name in NOT_BY_TRAINERS:
        return False
    return name not in BY_HAND and (name, value) not in BY_HAND_VALUES


def meaning(options: Options) -> Options:
    """The same for two points that ask for the same in other words."""
    same = options.bnb_4bit_compute_dtype in ("load", options.torch_dtype)
    return replace(options, bnb_4bit_compute_dtype="load") if same else options


def settings(start: Options, radius: int) -> Iterator[Changes]:
    """Every way to change that many settings at once, the cheapest first."""
    costs = {step: cost for cost, step in enumerate(steps(start, paired=radius > 1))}
    together = combinations(costs, radius)
    for chosen in sorted(together, key=lambda each: sum(costs[step] for step in each)):
        changes = dict(chosen)
        if len(changes) == radius and moved(start, changes) is not None:
            yield changes


def steps(start: Options, *, paired: bool) -> list[tuple[str, Value]]:
    """Every change of one setting, legal or not by itself; of those that are worth pairing, if it is to be paired."""
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
    """Every way to give up one part of the wish, in the order of the table."""
    if start.flow in OWN_CODE:
        return
    for option, instead in GIVEN_UP.items():
        for value in instead.get(getattr(start, option), ()) if applies(option, start) else ():
            changes = {option: value}
            if moved(start, changes) is not None:
                yield changes


def alternatives_with_setting(start: Options) -> Iterator[Changes]:
    """The same, each with one setting beside it."""
    for given_up in alternatives(start):
        instead = moved(start, given_up)
        if instead is None:
            continue
        for option, value in steps(instead, paired=True):
            changes = {**given_up, option: value}
            if option not in given_up and moved(start, changes) is not None:
                yield changes
