"""Which tokens of a long row DPOTrainer trains on: https://huggingface.co/docs/trl/dpo_trainer#trl.DPOConfig."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.preferences import alignment, preference
from cases.space.verdict import Check, Phase

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

LONGEST, PROMPT = 12, 4
COMPLETIONS = ((14, 3), (5, 4), (2, 12), (6, 6), (9, 10), (3, 8), (7, 13), (1, 2))  # tokens; some are too long
ENDS = (
    (7, 9, 3),
    (7, 2, 4),
    (9, 1, 5),
    (6, 6, 2),
    (8, 7, 8),
    (7, 3, 9),
    (10, 2, 4),
    (9, 5, 1),
)  # part of the prompt stays


@call(preference.GROUP, phase=Phase.FORWARD)
def dpo_truncation(ctx: Context) -> Iterator[Check]:
    """DPOTrainer's max_length cuts off the end of a completion, of either kind, and the other stays whole.

    Prompts have the length that earlier versions reserve for them, where truncation_mode is about prompts only.
    """
    rows = preference.pairs([(PROMPT - 1, *others) for others in COMPLETIONS], longest=LONGEST)
    reserved = "max_prompt_length" in alignment.options_of("DPO")
    cut: dict[str, Any] = {"max_length": LONGEST, **({"max_prompt_length": PROMPT} if reserved else {})}
    yield from preference.compared(
        ctx, preference.each(preference.sigmoid), rows=rows, truncation_mode="keep_start", **cut
    )


@call(preference.GROUP, phase=Phase.FORWARD, requires=("dpo_truncated_sequences",))
def dpo_truncation_keep_end(ctx: Context) -> Iterator[Check]:
    """DPOTrainer's truncation_mode="keep_end" keeps the last max_length tokens of each row, and shorter rows whole."""
    rows = preference.pairs(ENDS, longest=LONGEST, keep_end=True)
    cut: dict[str, Any] = {"max_length": LONGEST, "truncation_mode": "keep_end"}
    yield from preference.compared(ctx, preference.each(preference.sigmoid), rows=rows, **cut)
