"""What TRL's trainers do with arguments and data that a text model cannot use, and arguments that they should keep."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from cases.api import call, ingredients
from cases.behaviour.preferences import alignment, grpo, preference
from cases.behaviour.preferences.inputs.handed_on import KINDS, trainer
from cases.behaviour.preferences.inputs.row_forms import known
from cases.space.verdict import Check, Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "Arguments of TRL"
KEPT: dict[str, Any] = {"ddp_find_unused_parameters": False, "gradient_checkpointing": True}


@call(GROUP, phase=Phase.LOAD, requires=("grpo",))
def trl_keeps_arguments(ctx: Context) -> Iterator[Check]:
    """TRL's trainers keep ddp_find_unused_parameters=False and use_reentrant of a text model as a user sets them."""
    for reentrant in (True, False):
        given = {**KEPT, "gradient_checkpointing_kwargs": {"use_reentrant": reentrant}}
        made = {
            "DPO": preference.trainer(ctx, ingredients.base(ctx), **given),
            "GRPO": grpo.trainer(ctx, {**given, "model": ingredients.base(ctx)})[0],
        }
        for kind, each in made.items():
            found = each.args
            yield equal(f"{kind} looks for unused parameters", found.ddp_find_unused_parameters, bound=False)
            kept = (found.gradient_checkpointing_kwargs or {}).get("use_reentrant")
            yield equal(f"use_reentrant of {kind}", str(kept), str(reentrant))


@call(GROUP, phase=Phase.LOAD)
def trl_leaves_arguments(ctx: Context) -> Iterator[Check]:
    """No trainer of TRL changes how a text model is wrapped or recomputed, if a user leaves that to the defaults."""
    for kind in known(KINDS):
        found = trainer(ctx, kind, gradient_checkpointing=False, gradient_checkpointing_kwargs=None).args
        yield equal(f"{kind} looks for unused parameters", bool(found.ddp_find_unused_parameters), bound=False)
        kept = found.gradient_checkpointing_kwargs
        yield equal(f"arguments of recomputation, {kind}", str(kept), "None")
    for kind in ("GRPO", "RLOO"):
        if not known((kind,)) or "reward_funcs" not in inspect.signature(alignment.named(f"{kind}Trainer")).parameters:
            continue
        found = grpo.trainer(ctx, {"model": ingredients.base(ctx), "gradient_checkpointing": False}, kind)[0].args
        yield equal(f"{kind} looks for unused parameters", bool(found.ddp_find_unused_parameters), bound=False)


@call(GROUP, phase=Phase.LOAD, requires=("dpo_images",))
def trl_refuses_images(ctx: Context) -> Iterator[Check]:
    """DPOTrainer and SFTTrainer refuse a column of images for a text model, instead of training without them."""
    rows = preference.columns(preference.pairs())
    texts = ingredients.dataset(text=rows["prompt"])
    for kind, data in (("DPO", rows), ("SFT", texts)):
        for column in ("image", "images"):
            given = data.add_column(column, [[]] * len(data))
            try:
                alignment.create(ctx, kind, {}, model=ingredients.base(ctx), train_dataset=given)
            except ValueError as error:
                refusal = "vision" in str(error)
            else:
                refusal = False
            yield equal(f"{kind} refuses a column {column}", refusal, bound=True)
