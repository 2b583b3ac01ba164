"""Copies of embeddings that the head shares: ensure_weight_tying keeps them one matrix.

https://huggingface.co/docs/peft/developer_guides/lora, "Weight tying"
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.adapters import lora_reference as reference
from cases.behaviour.adapters.lora_reference import FIRST, MERGED, NEAR, Adapter
from cases.behaviour.adapters.trained_tokens import TABLE, adapted, loaded, read
from cases.model import tiny
from cases.reference.tolerance import relative
from cases.space.verdict import Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

BESIDE = "Training beside an adapter"
NEEDS = ("tied_adapters",)
TIED: dict[str, Any] = {"ensure_weight_tying": True}


def adapter(**more: Any) -> Adapter:
    return Adapter(name="first", rank=FIRST.rank, alpha=FIRST.alpha, more={**TIED, **more})


@call(BESIDE, phase=Phase.MERGE, requires=NEEDS)
def tied_copies(ctx: Context) -> Iterator[Check]:
    """With ensure_weight_tying, a copy of shared embeddings in modules_to_save is the head's as well.

    It is trained once, saved once, loads again, and stays shared in the merged model.
    """
    import torch
    from peft import PeftModel

    base, given = read(ctx, "llama", tied=True), adapter(modules_to_save=["embed_tokens"])
    model = adapted(loaded(ctx, "llama", tied=True), given).eval()
    yield at_most("logits off at the start", relative(reference.logits(model), base.logits(base.of(FIRST))), NEAR)
    copies = {name: p for name, p in model.named_parameters(remove_duplicate=False) if "modules_to_save" in name}
    yield equal("copies", len(copies), 2)
    yield equal("matrices", len({id(each) for each in copies.values()}), 1)
    table = next(iter(copies.values()))
    yield equal("the copy is trained", table.requires_grad, bound=True)
    other = tiny.values("another table", tuple(table.shape))
    with torch.no_grad():
        table.copy_(other)
    change = {TABLE: other.double() - base.tensors[TABLE]}
    wanted = base.logits(base.of(FIRST), change)
    yield at_least("what the copy changes", relative(wanted, base.logits(base.of(FIRST))), 0.01)
    yield at_most("logits off", relative(reference.logits(model), wanted), NEAR)
    with model.disable_adapter():
        yield at_most("logits off the base", relative(reference.logits(model), base.logits()), NEAR)
    folder = ctx.kept / "tied"
    model.save_pretrained(folder)
    again = PeftModel.from_pretrained(loaded(ctx, "llama", tied=True), folder / "first").eval()
    yield at_most("reloaded logits off", relative(reference.logits(again), wanted), NEAR)
    merged = model.merge_and_unload()
    yield at_most("merged logits off", relative(reference.logits(merged), wanted), MERGED)
    shares = merged.get_input_embeddings().weight is merged.get_output_embeddings().weight
    yield equal("the merged head shares the embeddings", shares, bound=True)


@call(BESIDE, phase=Phase.ADAPT, requires=NEEDS)
def tying_without_shared_layers(ctx: Context) -> Iterator[Check]:
    """ensure_weight_tying changes nothing where no adapted layer is shared, as on a model without shared embeddings."""
    for tied in (True, False):
        base = read(ctx, "llama", tied=tied)
        model = adapted(loaded(ctx, "llama", tied=tied), adapter()).eval()
        wanted = base.logits(base.of(FIRST))
        yield at_most(f"logits off, tied={tied}", relative(reference.logits(model), wanted), NEAR)
        names = reference.trained(model) ^ base.sides("first", base.placed(FIRST)).keys()
        yield equal(f"trained or frozen by mistake, tied={tied}", reference.written(names), "none")
