"""Models that transformers divides among ranks by tensors: loading by tp_plan, logits, gradients and saved weights.

https://huggingface.co/docs/transformers/perf_infer_gpu_multi
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.apply import front_ends
from cases.behaviour.models import building
from cases.behaviour.models.building import Variant
from cases.behaviour.parallel import networks
from cases.model import tiny
from cases.reference import tolerance
from cases.space.verdict import Check, Phase, at_least, at_most

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context


SAME = 1e-6  # relative: the same weights in the same arithmetic


def trained(model: Any) -> tuple[Any, float, dict[str, Any]]:
    """The logits, the loss and the gradients of a pass; those of divided weights are gathered by all ranks."""
    ids = tiny.batch(0).to(next(model.parameters()).device)
    found = model.train()(input_ids=ids, labels=ids)
    found.loss.backward()
    logits = found.logits.full_tensor() if hasattr(found.logits, "full_tensor") else found.logits
    return logits.detach(), float(found.loss), networks.gradients(model)


def share(whole: Any, like: Any, ctx: Context) -> Any:
    """The part of a tensor that a rank holds: some versions keep it as a tensor of its own."""
    for dimension, (size, held) in enumerate(zip(whole.shape, like.shape, strict=True)):
        if size != held:
            whole = whole.chunk(ctx.place.world_size, dimension)[ctx.place.rank]
    return whole


@call("Models by their configuration", phase=Phase.BACKWARD, ranks=2, requires=("tensor_parallel",))
def models_divided_by_tensors(ctx: Context) -> Iterator[Check]:
    """A model that is loaded with tp_plan="auto" on two ranks computes what the whole one does, with its gradients.

    Each rank holds a part of the weights. The saved model has the whole ones.
    """
    import torch.distributed as dist
    from transformers import AutoModelForCausalLM

    os.environ.update(front_ends.launched(ctx.place))
    for name in ("llama", "qwen"):
        folder = Variant(name).written(ctx, f"divided-{ctx.place.rank}")
        plain = building.loaded(ctx, folder)
        logits, loss, gradients = trained(plain)
        model = AutoModelForCausalLM.from_pretrained(folder, tp_plan="auto")
        found = trained(model)
        whole, held = (sum(local(p).numel() for p in each.parameters()) for each in (plain, model))
        yield at_least(f"numbers of the whole over those of a rank, {name}", whole / held, 1.2)
        yield at_most(f"logits off, {name}", tolerance.relative(found[0], logits), building.bound("logits"))
        yield at_most(f"loss off, {name}", abs(found[1] / loss - 1), building.bound("loss"))
        parts = {key: share(each, found[2].get(key, each), ctx) for key, each in gradients.items()}
        yield networks.off(f"gradients off, {name}", found[2], parts)
        saved = ctx.kept / f"saved-{name}"
        model.save_pretrained(saved, is_main_process=ctx.place.rank == 0)
        dist.barrier()
        again = AutoModelForCausalLM.from_pretrained(saved).to(ctx.place.device)
        yield at_most(f"logits of the saved model off, {name}", tolerance.relative(trained(again)[0], logits), SAME)


def local(tensor: Any) -> Any:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor
