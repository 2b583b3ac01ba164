"""Recognises the dialect of a file by its keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from reports.answers.configuration.dialects.accelerate import ACCELERATE
from reports.answers.configuration.dialects.adapter import ADAPTER_CONFIG
from reports.answers.configuration.dialects.axolotl import AXOLOTL
from reports.answers.configuration.dialects.engines import DEEPSPEED, FSDP_JSON
from reports.answers.configuration.dialects.llamafactory import LLAMAFACTORY
from reports.answers.configuration.dialects.llamafactory_v1 import LLAMAFACTORY_V1
from reports.answers.configuration.dialects.training_arguments import TRANSFORMERS
from reports.answers.configuration.dialects.trl import TRL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from reports.answers.configuration.dialects import Dialect

DIALECTS: Final = (
    *(ACCELERATE, AXOLOTL, LLAMAFACTORY, TRL, TRANSFORMERS),
    *(LLAMAFACTORY_V1, DEEPSPEED, FSDP_JSON, ADAPTER_CONFIG),
)
# Keys that frameworks without rules here use as well, so that alone they tell nothing.
WEAK: Final = frozenset(
    {"beta", "dtype", "lora_rank", "loss_type", "max_prompt_length", "max_seq_length", "num_epochs", "pure_bf16"}
)


def recognise(values: Mapping[str, Any], dialects: Sequence[Dialect] = DIALECTS) -> Dialect | None:
    """Return the dialect with the most marks among the keys, or else the one with generic keys among them."""
    strong = [each for each in dialects if each.marks & values.keys() - WEAK]
    if strong:
        return max(strong, key=lambda each: len(each.marks & values.keys()))
    return next((each for each in dialects if each.generic & values.keys()), None)


def has_marks(dialect: Dialect, values: Mapping[str, Any]) -> bool:
    """Tell if the keys of a file are those of one dialect, and not shared by several."""
    return bool(dialect.marks & values.keys() - WEAK)
