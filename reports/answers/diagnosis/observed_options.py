"""Reads the quantisation, the method and the strategy of a job from its log, as far as the log shows them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cases.space import options as option_space
from cases.space.options import Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from matrix.run.outcome import Outcome
    from reports.answers.diagnosis.symptoms import Symptom

NAMES: Final = ("quant", "method", "strategy")
NO_QUANTISATION: Final[frozenset[Value]] = frozenset({"none"})
FOUR_BIT: Final[frozenset[Value]] = frozenset({"nf4", "fp4"})
INT8: Final[frozenset[Value]] = frozenset({"int8"})
LORA_VARIANTS: Final[frozenset[Value]] = frozenset({"lora", "dora", "rslora", "pissa", "olora", "loftq"})
SWITCHED_OFF: Final = r"(?!\s*[=:]\s*(?i:false|none|null|no|0)\b)"

# Texts in a log that show a value of an option. A log may show several values, such as one for each rank.
SIGNS: Final[tuple[tuple[str, frozenset[Value], re.Pattern[str]], ...]] = (
    ("quant", FOUR_BIT, re.compile(rf"load_in_4bit{SWITCHED_OFF}|Linear4bit|Params4bit|\bqlora\b|\b(?:nf4|fp4)\b")),
    ("quant", INT8, re.compile(rf"load_in_8bit{SWITCHED_OFF}|Linear8bitLt|Int8Params|\bllm\.int8\b", re.IGNORECASE)),
    ("method", frozenset({"dora"}), re.compile(r"lora_magnitude_vector|tuners/lora/dora\.py|use_dora\s*[=:]\s*True")),
    ("method", LORA_VARIANTS, re.compile(r"peft/tuners/lora/|\blora_[AB]\b")),
    *(
        ("method", frozenset({name}), re.compile(rf"peft/tuners/{name}"))
        for name in option_space.values("method")
        if name not in {*LORA_VARIANTS, "full"}
    ),
    (
        "strategy",
        frozenset({"fsdp1"}),
        re.compile(r"\bFullyShardedDataParallel\b|fsdp/_flat_param\.py|FlatParam"),
    ),
    ("strategy", frozenset({"fsdp2"}), re.compile(r"\bFSDPModule\b|\bFSDPParam(?:Group)?\b|fsdp/_fully_shard/")),
    ("strategy", frozenset({"ddp"}), re.compile(r"\bDistributedDataParallel\b|nn/parallel/distributed\.py")),
)
LOADED_WITHOUT: Final = re.compile(r"load_in_(?:4|8)bit\s*[=:]\s*(?i:false|none|null|no|0)\b")


@dataclass(frozen=True, kw_only=True)
class ObservedOptions:
    """The values of each option that a log is compatible with; an option without an entry can have any value."""

    values: Mapping[str, frozenset[Value]]

    def admits(self, cell: Outcome) -> bool:
        """Tell if the log can come from a job with the cell's options. A cell of a call has none, and is admitted."""
        if "call" in cell.options:
            return True
        return all(cell.options.get(name, default(name)) in values for name, values in self.values.items())

    def admitted(self, red: Mapping[str, Sequence[Outcome]]) -> dict[str, tuple[Outcome, ...]]:
        """Return the red cells of one cause, by device, that the log admits.

        A log that shows no quantisation comes from a job without it, unless the cause occurs only with it.
        """
        unquantised = [each for cells in red.values() for each in cells if not is_quantised(each)]
        assumed = {"quant": NO_QUANTISATION} if unquantised else {}
        observed = ObservedOptions(values={**assumed, **self.values})
        return {device: tuple(filter(observed.admits, cells)) for device, cells in red.items()}


def observe(symptom: Symptom) -> ObservedOptions:
    """Return the options that a symptom shows: those of its cell, or those that its text has signs of."""
    if symptom.options is not None:
        known = symptom.options
        return ObservedOptions(values={name: single(known[name]) for name in NAMES if name in known})
    return ObservedOptions(values=dict(signs_in(symptom.bare)))


def signs_in(text: str) -> Iterable[tuple[str, frozenset[Value]]]:
    for name in NAMES:
        shown = [values for option, values, sign in SIGNS if option == name and sign.search(text)]
        if shown:
            yield name, min(shown, key=len) if name == "method" else frozenset[Value]().union(*shown)
        elif name == "quant" and LOADED_WITHOUT.search(text):
            yield name, NO_QUANTISATION


def is_quantised(cell: Outcome) -> bool:
    return "call" in cell.options or cell.options.get("quant", default("quant")) != "none"


def default(name: str) -> Value:
    value: Value = getattr(option_space.Options(), name)
    return value


def single(value: object) -> frozenset[Value]:
    return frozenset({value}) if isinstance(value, str) else frozenset()
