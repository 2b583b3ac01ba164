"""DDP in user scripts: adapters that some steps leave unused, and reentrant checkpointing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call, jobs
from cases.model import adapter_start, tiny
from cases.space.options import Options
from cases.space.verdict import Check, Phase

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

REPLICATING = "DDP in a user's script"


@call(REPLICATING, phase=Phase.BACKWARD, ranks=2)
def ddp_trained_head(ctx: Context) -> Iterator[Check]:
    """DDP trains an adapter and a copy of the head (modules_to_save) without find_unused_parameters."""
    from peft import get_peft_model

    model = get_peft_model(jobs.base(ctx), jobs.lora_config(lora_alpha=16, modules_to_save=["lm_head"]))
    yield from replicated(ctx, model)


@call(REPLICATING, phase=Phase.BACKWARD, ranks=2)
def ddp_reentrant_checkpointing_find_unused(ctx: Context) -> Iterator[Check]:
    """DDP with find_unused_parameters trains an adapter with reentrant checkpointing."""
    model = jobs.adapted(ctx, gradient_checkpointing="reentrant").train()
    yield from replicated(ctx, model, find_unused_parameters=True)


@call(REPLICATING, phase=Phase.BACKWARD, ranks=2)
def ddp_reentrant_checkpointing(ctx: Context) -> Iterator[Check]:
    """DDP without find_unused_parameters trains an adapter with reentrant checkpointing."""
    yield from replicated(ctx, jobs.adapted(ctx, gradient_checkpointing="reentrant").train())


@call(REPLICATING, phase=Phase.BACKWARD, ranks=2)
def ddp_inactive_adapter(ctx: Context) -> Iterator[Check]:
    """DDP trains one of two adapters without find_unused_parameters."""
    yield from two_adapters(ctx, find_unused_parameters=False)


@call(REPLICATING, phase=Phase.BACKWARD, ranks=2)
def ddp_inactive_adapter_find_unused(ctx: Context) -> Iterator[Check]:
    """DDP trains one of two adapters with find_unused_parameters."""
    yield from two_adapters(ctx, find_unused_parameters=True)


def two_adapters(ctx: Context, **arguments: Any) -> Iterator[Check]:
    model = jobs.adapted(ctx)
    model.add_adapter("second", jobs.lora_config())
    yield from replicated(ctx, model, **arguments)


def replicated(ctx: Context, model: Any, **arguments: Any) -> Iterator[Check]:
    """Two steps under DDP, which notices in the second what the first one left unfinished."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    adapter_start.start(model, Options())
    wrapped = DistributedDataParallel(model, **arguments)
    optimiser = torch.optim.SGD(jobs.trained_parameters(model), lr=0.0)
    jobs.step(wrapped, ctx, optimiser)
    jobs.loss(wrapped, ctx).backward()
    found = {n: g for n, g in jobs.gradients(model).items() if tiny.is_adapter(n) and ".second" not in n}
    yield jobs.as_in_one_process(found, ctx)
