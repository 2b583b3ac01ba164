"""A case: a named point of the option space, and why it is in the grid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cases.options import Options


@dataclass(frozen=True)
class Case:
    """``group`` is the heading it stands under in a report; ``why`` says what a user learns from it."""

    group: str
    why: str
    options: Options

    @property
    def id(self) -> str:
        """Readable and unique, e.g. ``train-lora-nf4-bf16store-fsdp2-bf16``."""
        return "-".join(words(self.options))

    @property
    def ranks(self) -> int:
        return self.options.world_size


def case(group: str, why: str, **options: Any) -> Case:
    """A row of the grid: the options that differ from the defaults of ``Options``.

    Raises:
        IllegalError: an option, value or combination outside the space.
    """
    return Case(group, why, Options().but(**options))


def words(options: Options) -> list[str]:
    """The parts of an id: the kind of job first, then what differs from what one would expect."""
    has = options.stated
    parts: list[str] = [options.flow]
    if options.flow == "train":
        parts.append(options.method)
    if options.quant != "none":
        parts.append(options.quant)
    if "quant_storage" in has and options.quant_storage != "uint8":
        parts.append(f"{options.quant_storage}store")
    parts.append(options.strategy)
    if "wrap" in has and options.wrap != "transformer":
        parts.append({"none": "nowrap", "peft": "peftwrap"}[options.wrap])
    if "use_orig_params" in has and not options.use_orig_params:
        parts.append("flatparams")
    if "sync_module_states" in has and options.sync_module_states:
        parts.append("sync")
    if "reshard_after_forward" in has and not options.reshard_after_forward:
        parts.append("noreshard")
    parts.append(options.load_dtype)
    if has.get("autocast", "off") != "off":
        parts.append(f"autocast_{options.autocast}")
    if has.get("adapter_fp32") is False:
        parts.append("adapter_as_base")
    if has.get("checkpointing", "off") != "off":
        parts.append(f"ckpt_{options.checkpointing}")
    if has.get("optimiser", "sgd") != "sgd":
        parts.append(options.optimiser)
    if has.get("loop", "plain") != "plain":
        parts.append(f"{options.loop}_between")
    return parts
