"""Returns the point of the option space nearest to the option values of a training job."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from packaging.version import Version

from cases.space.options import SHARDED, Flow, Options, applies
from reports.answers.configuration.dialects import NEWEST

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cases.space.options import Value

AMP: Final = "amp"
TRAINER_SETS_PEFT_POLICY: Final = Version("4.39")
NON_REENTRANT_BY_DEFAULT: Final = Version("5")
KEPT: Final = ("world_size",)
LATER: Final[dict[str, tuple[Flow, ...]]] = {"state_dict_type": ("save_reload", "resume")}
# Options to reset to their defaults, in this order, until the combination is legal.
RESET_ORDER: Final = (
    "cpu_ram_efficient_loading",
    "gradient_accumulation_steps",
    "device_mesh",
    "optim_implementation",
    "modules_to_save",
    "target_embeddings",
    "auto_wrap_policy",
    "model",
)


def build_options(values: Mapping[str, Value], versions: Mapping[str, Version], dropped: list[str]) -> Options | None:
    """Return the legal options nearest to some values, and add each setting that is not in them to ``dropped``.

    Returns None if no legal options are near, as for full training of quantised weights.
    """
    chosen: dict[str, Any] = {name: value for name, value in values.items() if name != AMP}
    strategy = chosen["strategy"]
    transformers = versions.get("transformers", NEWEST["transformers"])
    if chosen.get("gradient_checkpointing") == "on":
        chosen["gradient_checkpointing"] = "non_reentrant" if transformers >= NON_REENTRANT_BY_DEFAULT else "reentrant"
    chosen |= amp_options(values.get(AMP, "off"), sharded=strategy in SHARDED, dropped=dropped)
    chosen |= trainer_overrides(chosen, transformers)
    chosen.setdefault("world_size", 2)
    chosen["world_size"] = 1 if strategy == "single" else chosen["world_size"]
    if chosen.get("device_mesh") == "hsdp" and strategy in SHARDED:
        chosen["world_size"] = 4
    elif chosen.get("gradient_accumulation_steps", 1) > 1:
        chosen["world_size"] = min(chosen["world_size"], 2)  # the cases' batch is too small for more
    options = nearest_legal(Options(**chosen), dropped)
    if options.why_illegal:
        dropped.append(options.why_illegal)
        return None
    return options


def amp_options(amp: Value, *, sharded: bool, dropped: list[str]) -> dict[str, Value]:
    """Return the options of automatic mixed precision.

    Under FSDP it means autocast and FSDP's own policy at once, which no case has: it is added to ``dropped``.
    """
    if not sharded:
        return {"autocast": amp}
    if amp != "off":
        dropped.append(f"mixed precision in {amp} under FSDP, which means autocast and FSDP's own policy at once")
    return {}


def trainer_overrides(chosen: Mapping[str, Any], transformers: Version) -> dict[str, Value]:
    """Return the options that the Trainer overrides: for an adapter under FSDP1, it sets PEFT's wrap policy."""
    replaces = chosen.get("front_end") in ("trainer", "sft") and transformers >= TRAINER_SETS_PEFT_POLICY
    return (
        {"auto_wrap_policy": "peft"}
        if replaces and chosen["method"] != "full" and chosen["strategy"] == "fsdp1"
        else {}
    )


def nearest_legal(options: Options, dropped: list[str]) -> Options:
    """Return the nearest legal options. Settings that do not apply get their defaults."""
    reset = (n for n in DEFAULTS if n not in KEPT and not applies(n, options) and not is_for_later(n, options))
    clean = replace(options, **{name: DEFAULTS[name] for name in reset})
    if clean.bnb_4bit_compute_dtype == clean.torch_dtype:
        clean = replace(clean, bnb_4bit_compute_dtype="load")
    if clean.strategy == "fsdp2" and clean.auto_wrap_policy in ("peft", "size"):
        clean = replace(clean, auto_wrap_policy="transformer")
    return without_illegal_settings(clean, dropped)


def is_for_later(name: str, options: Options) -> bool:
    """Tell if an option means nothing to training, but to what the same job does after it."""
    return any(applies(name, replace(options, flow=flow)) for flow in LATER.get(name, ()))


def without_illegal_settings(options: Options, dropped: list[str]) -> Options:
    """Reset options that make the combination illegal, one by one, and add them to ``dropped``."""
    for name in RESET_ORDER if options.why_illegal else ():
        reduced = replace(options, **{name: DEFAULTS[name]})
        if reduced.why_illegal != options.why_illegal:
            dropped.append(f"{name}={getattr(options, name)} ({options.why_illegal})")
            return without_illegal_settings(reduced, dropped)
    return options


DEFAULTS: Final[dict[str, Any]] = {name: Options.__dataclass_fields__[name].default for name in Options.__match_args__}
