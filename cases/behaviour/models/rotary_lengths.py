"""Rotary positions that depend on the length of a row, for rows of several lengths one after another.

Dynamic NTK scaling widens positions by s = max(1, l / L) for a row of l tokens and a trained length of L
(https://arxiv.org/abs/2309.00071, appendix A.2); LongRoPE has factors for short and for long texts
(https://arxiv.org/abs/2402.13753). A long row must leave nothing behind for the short ones after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.models import building
from cases.behaviour.models.building import Variant
from cases.behaviour.models.rotary_settings import LONG, STATED
from cases.model import tiny
from cases.model.architectures import ROPE_SCALINGS
from cases.reference import models, tolerance
from cases.reference.network import Batch
from cases.space.verdict import Phase, at_least, at_most

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Configurations"
DYNAMIC = ROPE_SCALINGS["dynamic"]
TRAINED = tiny.LENGTH // 2  # as both configurations state it
LONGER = 3 * TRAINED
# Lengths; transformers documents that it keeps the stretch of the longest row so far until a short row comes.
RISING = (TRAINED - 2, 2 * TRAINED, LONGER, TRAINED - 2, 2 * TRAINED, 3)
BEYOND = 0.01  # relative: what a wrong stretch changes at least


def compared(ctx: Context, model: str, changes: dict[str, Any], lengths: Sequence[int]) -> Iterator[Check]:
    """Compare the logits of each row with those of the reference, which knows no earlier row."""
    import torch

    folder = Variant(model, changes).written(ctx, "lengths")
    network = building.network(folder)
    loaded = building.loaded(ctx, folder, attn_implementation="eager")
    for place, length in enumerate(lengths):
        ids = tiny.batch(place, length=length)
        expected = models.logits(network, Batch(ids=ids)).detach()
        with torch.no_grad():
            found = loaded(input_ids=ids.to(loaded.device)).logits.cpu()
        title = f"{model}, row {place} of {length} tokens"
        yield at_most(f"logits off, {title}", tolerance.relative(found, expected), building.bound("logits"))


def stretched(ctx: Context) -> Check:
    """What the wrong stretch would change in the logits of a short row, by the reference."""
    logits = {}
    for name, changes in (("none", {**DYNAMIC, "rope_scaling": None}), ("linear", ROPE_SCALINGS["linear"])):
        network = building.network(Variant("llama", changes).written(ctx, name))
        logits[name] = models.logits(network, Batch(ids=tiny.batch(0, length=TRAINED))).detach()
    return at_least("what a stretch changes", tolerance.relative(logits["linear"], logits["none"]), BEYOND)


@call(GROUP, phase=Phase.INFER)
def rotary_after_long_rows(ctx: Context) -> Iterator[Check]:
    """With dynamic scaling, Llama computes a short row after a long one as if the long one had never been."""
    yield stretched(ctx)
    yield from compared(ctx, "llama", {**DYNAMIC}, RISING)


@call(GROUP, phase=Phase.INFER)
def rotary_after_long_rows_at_trained_length(ctx: Context) -> Iterator[Check]:
    """With dynamic scaling, a row of exactly the trained length is not stretched, also after a longer one."""
    yield from compared(ctx, "llama", {**DYNAMIC}, (TRAINED, LONGER, TRAINED))


@call(GROUP, phase=Phase.INFER, requires=("rope_parameters",))
def rotary_after_long_rows_of_others(ctx: Context) -> Iterator[Check]:
    """With dynamic scaling, each architecture computes a short row after a long one as if that had never been."""
    for model in ("qwen", "qwen3", "mistral", "mixtral", "gemma"):
        yield from compared(ctx, model, {**DYNAMIC, **STATED}, RISING)


@call(GROUP, phase=Phase.INFER, requires=("rope_scaling_longrope",))
def rotary_short_after_long_factors(ctx: Context) -> Iterator[Check]:
    """LongRoPE uses its short factors for short rows and its long ones for long rows, in any order."""
    yield from compared(ctx, "llama", {**LONG}, (TRAINED, LONGER, TRAINED, TRAINED + 1, TRAINED - 3))
