"""Dropout's masks under gradient checkpointing, and on the ranks of a job.

A recomputed forward pass draws the same masks, so that the gradients are those without checkpointing:
https://docs.pytorch.org/docs/stable/checkpoint.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call, ingredients
from cases.api.loading import launched
from cases.behaviour.dropout.randomness import GROUP
from cases.behaviour.parallel import networks
from cases.behaviour.parallel.replicating import replicated
from cases.model import architectures, tiny
from cases.space.verdict import Check, Phase, at_least, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

SEED, WIDTH = 11, 64


@call(GROUP, phase=Phase.BACKWARD)
def checkpointed_dropout(ctx: Context) -> Iterator[Check]:
    """gradient_checkpointing_enable recomputes LoRA's and attention's dropout with the same masks.

    https://huggingface.co/docs/transformers/main_classes/model#transformers.PreTrainedModel.gradient_checkpointing_enable
    """
    yield from checkpointed(ctx, reentrant=False)


@call(GROUP, phase=Phase.BACKWARD)
def checkpointed_dropout_reentrant(ctx: Context) -> Iterator[Check]:
    """Reentrant gradient checkpointing recomputes LoRA's and attention's dropout with the same masks."""
    yield from checkpointed(ctx, reentrant=True)


def checkpointed(ctx: Context, *, reentrant: bool) -> Iterator[Check]:
    """The gradients of three passes: without checkpointing, with it, and with it under another seed."""
    plain, model = dropping(ctx), dropping(ctx)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    model.enable_input_require_grads()
    calls: list[int] = []
    layers = model.base_model.model.model.layers
    for layer in layers:
        layer.mlp.register_forward_pre_hook(lambda *_: calls.append(1))  # a recomputation may stop before the end
    expected, after = passed(plain, SEED)
    found, then = passed(model, SEED)
    yield equal("forward passes of layers", len(calls), 2 * len(layers))
    yield networks.off("gradients off", found, expected)
    yield equal("random numbers after the step that differ", int((then != after).sum()), 0)
    other, _ = passed(model, SEED + 1)
    apart = min(float((other[name] - each).norm() / each.norm()) for name, each in expected.items())
    yield at_least("gradients with another seed off", apart, 0.01)


def dropping(ctx: Context) -> Any:
    """The tiny model with dropout of attention weights and an adapter with dropout, in training mode."""
    from peft import get_peft_model
    from transformers import AutoModelForCausalLM

    folder = architectures.plain_checkpoint(ctx.cache)
    base = AutoModelForCausalLM.from_pretrained(folder, attention_dropout=0.2).float()
    return ingredients.fill_adapter(get_peft_model(base, ingredients.lora(lora_dropout=0.3))).train()


def passed(model: Any, seed: int) -> tuple[dict[str, Any], Any]:
    """The gradients of one step, and random numbers that are drawn after it."""
    import torch

    model.zero_grad()
    torch.manual_seed(seed)
    ids = tiny.batch(0)
    model(input_ids=ids, labels=ids).loss.backward()
    return networks.gradients(model), torch.rand(8)


@call(GROUP, phase=Phase.BACKWARD)
def checkpoint_rng_state(_ctx: Context) -> Iterator[Check]:
    """Checkpoints of torch draw the same masks with preserve_rng_state, and others without, reentrant or not."""
    import torch
    from torch.utils.checkpoint import checkpoint

    def network() -> Any:
        parts = (torch.nn.Linear(7, WIDTH), torch.nn.Dropout(0.4), torch.nn.Linear(WIDTH, 1))
        return networks.filled(torch.nn.Sequential(*parts)).train()

    def step(run: Any) -> dict[str, Any]:
        model = network()
        torch.manual_seed(SEED)
        inputs = networks.data(0)[0].requires_grad_()
        hidden = run(model[:2], inputs)
        model[2](hidden).square().mean().backward()
        return networks.gradients(model)

    expected = step(lambda part, inputs: part(inputs))
    for reentrant in (True, False):
        kept = step(lambda part, given, r=reentrant: checkpoint(part, given, use_reentrant=r, preserve_rng_state=True))
        lost = step(lambda part, given, r=reentrant: checkpoint(part, given, use_reentrant=r, preserve_rng_state=False))
        yield networks.off(f"gradients off, use_reentrant={reentrant}", kept, expected)
        apart = float((lost["0.weight"] - expected["0.weight"]).norm() / expected["0.weight"].norm())
        yield at_least(f"gradients off without the state, use_reentrant={reentrant}", apart, 0.01)


@call(GROUP, phase=Phase.FORWARD, ranks=2)
def dropout_masks_of_ranks(ctx: Context) -> Iterator[Check]:
    """With set_seed of accelerate, all ranks draw the same masks; with device_specific, each rank its own.

    https://huggingface.co/docs/accelerate/package_reference/utilities#accelerate.utils.set_seed
    """
    from accelerate import Accelerator
    from accelerate.utils import set_seed

    launched(ctx)
    Accelerator(cpu=ctx.place.kind == "cpu")
    for specific in (False, True):
        set_seed(SEED, device_specific=specific)
        first, second = (mask_under_ddp() for _ in range(2))
        set_seed(SEED, device_specific=specific)
        yield equal("mask again with the same seed", int((mask_under_ddp() != first).sum()), 0)
        for place, mask in enumerate((first, second)):
            wanted = ctx.place.world_size if specific else 1
            yield equal(f"masks of pass {place}, device_specific={specific}", different(mask, ctx), wanted)
        yield equal("same mask in two passes", bool((first == second).all()), False)  # noqa: FBT003 - a value to compare


def mask_under_ddp() -> Any:
    """The mask that a dropout layer under DDP draws in one pass."""
    import torch

    layer = torch.nn.Linear(WIDTH, WIDTH, bias=False)
    layer.weight.data.copy_(torch.eye(WIDTH))
    state = torch.get_rng_state()
    model = replicated(torch.nn.Sequential(layer, torch.nn.Dropout(0.5)))
    torch.set_rng_state(state)  # building the model drew numbers too
    return model.train()(torch.ones(WIDTH, WIDTH)).detach() != 0


def different(mask: Any, ctx: Context) -> int:
    """The number of different masks on all ranks."""
    import torch.distributed as dist

    everyone: list[Any] = [None] * ctx.place.world_size
    dist.all_gather_object(everyone, mask.flatten().tolist())
    return len({tuple(each) for each in everyone})
