"""The option space: every setting a case can have, its values, and which combinations are legal.

A case states only the options that matter to it: ``Options.stated`` leaves out what the chosen strategy, method or
quantisation does not have, so two equal cases have equal options.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal, get_args, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Value = bool | int | str

Flow = Literal["load", "train"]
Method = Literal["full", "lora", "dora"]
Quant = Literal["none", "nf4", "int8"]
Storage = Literal["uint8", "bf16", "fp16", "fp32"]
DType = Literal["fp32", "bf16", "fp16"]
Autocast = Literal["off", "bf16", "fp16"]
Strategy = Literal["single", "ddp", "fsdp1", "fsdp2"]
WorldSize = Literal[1, 2]
Wrap = Literal["none", "transformer", "peft"]
Checkpointing = Literal["off", "reentrant", "non_reentrant"]
Optimiser = Literal["sgd", "adamw"]
Loop = Literal["plain", "eval"]

ALIASES = {
    "False": False,
    "false": False,
    "off": False,
    "no": False,
    "True": True,
    "true": True,
    "on": True,
    "yes": True,
}


class IllegalError(ValueError):
    """An option, value or combination outside the space; its text is a sentence for the user."""


@dataclass(frozen=True, eq=True)
class Options:
    """One point of the option space.

    ``quant_storage`` is the dtype that packed 4-bit weights are stored in (``bnb_4bit_quant_storage``);
    ``load_dtype`` is the dtype of everything that is not quantised, and of the quantised layers' arithmetic;
    ``adapter_fp32`` is ``get_peft_model(..., autocast_adapter_dtype=)``: adapters of a half-precision base kept in
    float32; ``use_orig_params``, ``wrap`` and ``sync_module_states`` are FSDP1's, ``reshard_after_forward`` FSDP2's.
    """

    flow: Flow = "train"
    method: Method = "lora"
    quant: Quant = "none"
    quant_storage: Storage = "uint8"
    load_dtype: DType = "fp32"
    autocast: Autocast = "off"
    adapter_fp32: bool = True
    strategy: Strategy = "single"
    world_size: WorldSize = 1
    use_orig_params: bool = True
    wrap: Wrap = "transformer"
    sync_module_states: bool = False
    reshard_after_forward: bool = True
    checkpointing: Checkpointing = "off"
    optimiser: Optimiser = "sgd"
    loop: Loop = "plain"

    @property
    def stated(self) -> dict[str, Value]:
        """The options that apply to this point, by name, in order of declaration."""
        return {f.name: getattr(self, f.name) for f in fields(self) if applies(f.name, self)}

    @property
    def why_illegal(self) -> str:
        """Why no such case can exist; empty for a legal one."""
        return next((rule.because for rule in EXCLUSIONS if rule.when(self)), "")

    def but(self, **changes: Any) -> Options:
        """This point with some options changed; world size follows the strategy unless it is given.

        Raises:
            IllegalError: an unknown option or value, or an illegal combination.
        """
        for name, value in changes.items():
            if value not in values(name):
                raise IllegalError(f"option {name!r} has no value {value!r}; it has {listed(values(name))}")
        strategy = changes.get("strategy", self.strategy)
        changes.setdefault("world_size", 1 if strategy == "single" else 2)
        point = replace(self, **changes)
        if point.why_illegal:
            raise IllegalError(point.why_illegal)
        return point


@dataclass(frozen=True)
class Exclusion:
    """A combination that no user can mean, and the reason as data, so that it can be printed."""

    when: Callable[[Options], bool]
    because: str


EXCLUSIONS = (
    Exclusion(lambda o: (o.strategy == "single") != (o.world_size == 1), "one rank is strategy=single, and only that"),
    Exclusion(
        lambda o: o.method == "full" and o.quant != "none" and o.flow == "train",
        "quantised weights are not trainable: a quantised base needs an adapter (method=lora or dora)",
    ),
    Exclusion(
        lambda o: o.strategy == "fsdp2" and o.wrap == "peft",
        "peft's wrap policy (fsdp_auto_wrap_policy) is FSDP1's; fully_shard is applied per module: wrap=transformer",
    ),
    Exclusion(lambda o: o.flow == "load" and o.method != "full", "flow=load loads the base model: method=full"),
    Exclusion(lambda o: o.flow == "load" and o.strategy != "single", "flow=load is about one process: strategy=single"),
    Exclusion(
        lambda o: o.flow == "load" and (o.autocast != "off" or o.checkpointing != "off" or o.loop != "plain"),
        "flow=load does not train: autocast, checkpointing and loop do not apply",
    ),
)

# When an option means anything. An option that is not here always applies.
APPLIES: Mapping[str, Callable[[Options], bool]] = {
    "quant_storage": lambda o: o.quant == "nf4",
    "adapter_fp32": lambda o: o.method != "full" and o.load_dtype != "fp32",
    "use_orig_params": lambda o: o.strategy == "fsdp1",
    "wrap": lambda o: o.strategy in ("fsdp1", "fsdp2"),
    "sync_module_states": lambda o: o.strategy == "fsdp1",
    "reshard_after_forward": lambda o: o.strategy == "fsdp2" and o.wrap == "transformer",  # the root is not asked
    "autocast": lambda o: o.flow == "train",
    "checkpointing": lambda o: o.flow == "train",
    "optimiser": lambda o: o.flow == "train",
    "loop": lambda o: o.flow == "train",
}


def applies(name: str, options: Options) -> bool:
    return name not in APPLIES or APPLIES[name](options)


def names() -> tuple[str, ...]:
    return tuple(f.name for f in fields(Options))


def values(name: str) -> tuple[Value, ...]:
    """Every value of an option.

    Raises:
        IllegalError: there is no such option.
    """
    hints = get_type_hints(Options)
    if name not in hints:
        raise IllegalError(f"there is no option {name!r}; the options are {listed(names())}")
    return (True, False) if hints[name] is bool else get_args(hints[name])


def parsed(name: str, text: str) -> Value:
    """The value that a user wrote as text, e.g. ``parsed("world_size", "2") == 2``.

    Raises:
        IllegalError: the option has no such value.
    """
    known = values(name)
    for value in known:
        if str(value) == text or (isinstance(value, bool) and ALIASES.get(text) is value):
            return value
    raise IllegalError(f"option {name!r} has no value {text!r}; it has {listed(known)}")


def listed(things: tuple[Value, ...]) -> str:
    return ", ".join(str(thing) for thing in things)
