"""Batches of TRL's trainers whose rows are padded to a multiple of tokens.

https://huggingface.co/docs/trl: "pad_to_multiple_of: If set, the sequences will be padded to a multiple of this value."
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cases.api import call
from cases.behaviour.preferences import alignment, policies
from cases.behaviour.preferences.inputs import batches
from cases.behaviour.preferences.inputs.prepared_columns import LENGTHS, texts
from cases.behaviour.preferences.inputs.row_forms import known, made
from cases.space.verdict import Check, Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

KINDS = ("DPO", "KTO", "CPO", "ORPO", "Reward", "SFT")


@call("Rows of TRL", phase=Phase.FORWARD, requires=("dpo_pad_to_multiple_of",))
def trl_pads_to_multiples(ctx: Context) -> Iterator[Check]:
    """Each trainer with pad_to_multiple_of pads its batches to a multiple of that, and keeps every sequence."""
    rows = policies.texts(LENGTHS)
    for kind in known(KINDS):
        if "pad_to_multiple_of" not in alignment.options_of(kind):
            continue
        data = texts(kind, rows)
        plain = batches.sequences(made(ctx, kind, data))
        for multiple in (8, 5, 16):
            trainer = made(ctx, kind, data, pad_to_multiple_of=multiple)
            batch = next(iter(trainer.get_train_dataloader()))
            widths = {each.shape[1] for name, each in batch.items() if "input_ids" in name}
            off = [width for width in widths if width % multiple]
            yield equal(f"widths that are no multiple of {multiple}, {kind}", str(off), "[]")
            same = [*batches.of_batch(batch)] == plain
            yield equal(f"sequences as without padding to {multiple}, {kind}", same, bound=True)
