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
    kind = [options.flow, *([options.method] if options.flow == "train" else [])]
    quant = [] if options.quant == "none" else [options.quant]
    stated = options.stated
    said = {name: word[stated[name]] for name, word in WORDS.items() if name in stated and stated[name] in word}
    storage = [said.pop("quant_storage")] if "quant_storage" in said else []
    wrapping = [said.pop(name) for name in WRAPPING if name in said]
    return [*kind, *quant, *storage, options.strategy, *wrapping, options.load_dtype, *said.values()]


# What an id says of an option's value; the expected values, which are not here, go without saying.
WORDS: dict[str, dict[Any, str]] = {
    "quant_storage": {"bf16": "bf16store", "fp16": "fp16store", "fp32": "fp32store"},
    "wrap": {"none": "nowrap", "peft": "peftwrap"},
    "use_orig_params": {False: "flatparams"},
    "sync_module_states": {True: "sync"},
    "reshard_after_forward": {False: "noreshard"},
    "autocast": {"bf16": "autocast_bf16", "fp16": "autocast_fp16"},
    "adapter_fp32": {False: "adapter_as_base"},
    "checkpointing": {"reentrant": "ckpt_reentrant", "non_reentrant": "ckpt_non_reentrant"},
    "optimiser": {"adamw": "adamw"},
    "loop": {"eval": "eval_between"},
}
WRAPPING = ("wrap", "use_orig_params", "sync_module_states", "reshard_after_forward")
