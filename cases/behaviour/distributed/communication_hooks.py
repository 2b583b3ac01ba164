"""DDP's documented communication hooks: PowerSGD, wrapped compression, local SGD, 8-bit gradients.

https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.parallel import networks
from cases.behaviour.parallel.networks import loss, network
from cases.behaviour.parallel.replicating import SMALL_BUCKETS, replicated
from cases.model import tiny
from cases.reference.tolerance import UNIT_ROUNDOFF
from cases.space.verdict import Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Communication hooks of DDP"
SHAPE, ROWS, RANK = (40, 30), 8, 2  # the gradient of one matrix, of rank 8 at most, sent with rank 2
PLAIN = 2  # steps before PowerSGD begins
STEPS = 7


def matrix() -> Any:
    """A model with one matrix, which is one bucket."""
    import torch

    model = torch.nn.Linear(SHAPE[1], SHAPE[0], bias=False)
    tiny.fill(model)
    return model


def rows(step: int, rank: int) -> tuple[Any, Any]:
    """The inputs and the targets of a rank."""
    outputs, inputs = SHAPE
    return (
        tiny.values(f"inputs {step} {rank}", (ROWS // 2, inputs)),
        tiny.values(f"targets {step} {rank}", (ROWS // 2, outputs)),
    )


def gradient(step: int, rank: int, used: int = ROWS) -> Any:
    """The gradient of the sum of outputs times targets over some rows of a rank, float64."""
    inputs, targets = rows(step, rank)
    return targets[:used].double().T @ inputs[:used].double()


def backward(model: Any, step: int, rank: int, used: int = ROWS) -> Any:
    """The gradient after a step of this rank, float64."""
    inputs, targets = rows(step, rank)
    model.zero_grad()
    (model(inputs[:used]) * targets[:used]).sum().backward()
    return model.module.weight.grad.detach().double().clone()


def mean(step: int, world: int, used: int = ROWS) -> Any:
    return sum(gradient(step, rank, used) for rank in range(world)) / world


def averaged(tensor: Any) -> Any:
    import torch.distributed as dist

    found = tensor.double().clone()
    dist.all_reduce(found)
    return found / dist.get_world_size()


def sent(ctx: Context, hook: Any, used: int = ROWS, **settings: Any) -> tuple[Any, list[Any]]:
    """Run steps under a hook of PowerSGD; return its state and the gradients."""
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

    state = powerSGD_hook.PowerSGDState(
        None, matrix_approximation_rank=RANK, start_powerSGD_iter=PLAIN, min_compression_rate=1.5, **settings
    )
    model = replicated(matrix())
    model.register_comm_hook(state, hook(powerSGD_hook))
    return state, [backward(model, step, ctx.place.rank, used) for step in range(STEPS)]


@call(GROUP, phase=Phase.BACKWARD, ranks=2)
def power_sgd(ctx: Context) -> Iterator[Check]:
    """PowerSGD sends gradients of a low rank, and adds what it did not send to the next ones.

    All sent gradients and the last error together are the sum of the true ones: https://arxiv.org/abs/1905.13727,
    algorithm 2.
    """
    import torch

    world = ctx.place.world_size
    for warm in (True, False):
        state, found = sent(ctx, lambda module: module.powerSGD_hook, warm_start=warm)
        title = f"warm_start={warm}"
        for step, each in enumerate(found):
            values = torch.linalg.svdvals(each)
            if step < PLAIN:
                yield at_most(f"gradient before PowerSGD off, {title}", off(each, mean(step, world)), networks.SAME)
            else:
                yield at_most(
                    f"part of a gradient beyond its rank, {title}", float(values[RANK] / values[0]), networks.SAME
                )
        total = sum(found[PLAIN:]) + averaged(next(iter(state.error_dict.values())).view(SHAPE))
        wanted = sum(mean(step, world) for step in range(PLAIN, STEPS))
        yield at_most(f"sent gradients and the error off, {title}", off(total, wanted), networks.SAME)
        before, after = state.compression_stats()[1:]
        yield equal(f"numbers before compression, {title}", int(before), (STEPS - PLAIN) * SHAPE[0] * SHAPE[1])
        yield equal(f"numbers after compression, {title}", int(after), (STEPS - PLAIN) * RANK * sum(SHAPE))


@call(GROUP, phase=Phase.BACKWARD, ranks=2)
def power_sgd_of_low_ranks(ctx: Context) -> Iterator[Check]:
    """PowerSGD sends gradients exactly if their mean has at most its rank, also compressed to 16 bits by a wrapper."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    world = ctx.place.world_size
    hooks = {
        "plain": (lambda module: module.powerSGD_hook, 100 * UNIT_ROUNDOFF["fp32"]),
        "fp16": (lambda module: default_hooks.fp16_compress_wrapper(module.powerSGD_hook), 100 * UNIT_ROUNDOFF["fp16"]),
        "bf16": (lambda module: default_hooks.bf16_compress_wrapper(module.powerSGD_hook), 100 * UNIT_ROUNDOFF["bf16"]),
    }
    for title, (hook, within) in hooks.items():
        feedback = {"use_error_feedback": False, "warm_start": False}
        _, found = sent(ctx, hook, 1, **feedback)  # one row of each of two ranks
        worst = max(off(each, mean(step, world, 1)) for step, each in enumerate(found))
        yield at_most(f"gradients off, {title}", worst, within)


def off(found: Any, wanted: Any) -> float:
    return float((found - wanted).norm() / wanted.norm())


@call(GROUP, phase=Phase.BACKWARD, ranks=2)
def batched_power_sgd(ctx: Context) -> Iterator[Check]:
    """Batched PowerSGD compresses a whole bucket as a square matrix, with the same error feedback."""
    world = ctx.place.world_size
    state, found = sent(ctx, lambda module: module.batched_powerSGD_hook)
    total = sum(found[PLAIN:]) + averaged(next(iter(state.error_dict.values()))[: SHAPE[0] * SHAPE[1]].view(SHAPE))
    wanted = sum(mean(step, world) for step in range(PLAIN, STEPS))
    yield at_most("sent gradients and the error off", off(total, wanted), networks.SAME)
    yield at_least("gradient of the last step off", off(found[-1], mean(STEPS - 1, world)), 0.01)


@call(GROUP, phase=Phase.BACKWARD, ranks=2)
def power_sgd_continues(ctx: Context) -> Iterator[Check]:
    """A saved state of PowerSGD goes on with its errors: sent gradients and the last error are still the true sum."""
    import pickle

    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

    world = ctx.place.world_size
    state, found = sent(ctx, lambda module: module.powerSGD_hook)
    loaded = pickle.loads(pickle.dumps(state))  # noqa: S301 - as the documentation saves it
    model = replicated(matrix())
    model.register_comm_hook(loaded, powerSGD_hook.powerSGD_hook)
    found += [backward(model, step, ctx.place.rank) for step in range(STEPS, 2 * STEPS)]
    total = sum(found[PLAIN:]) + averaged(next(iter(loaded.error_dict.values())).view(SHAPE))
    wanted = sum(mean(step, world) for step in range(PLAIN, 2 * STEPS))
    yield at_most("sent gradients and the error off", off(total, wanted), networks.SAME)


@call(GROUP, phase=Phase.BACKWARD, ranks=2)
def gradients_of_wrapped_hooks(ctx: Context) -> Iterator[Check]:
    """The wrappers of compression, the plain hook and the hook without communication give what they document."""
    from torch.distributed.algorithms.ddp_comm_hooks import debugging_hooks, default_hooks

    wanted = networks.expected_gradients(network(), [loss])
    mine = networks.expected_gradients(network(), networks.losses((0,), ctx))
    growth = max(float(averaged(each.norm()) / wanted[name].norm()) for name, each in mine.items())
    hooks = {
        "allreduce": (default_hooks.allreduce_hook, wanted, networks.SAME),
        "fp16": (
            default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook),
            wanted,
            3 * growth * UNIT_ROUNDOFF["fp16"],
        ),
        "bf16": (
            default_hooks.bf16_compress_wrapper(default_hooks.allreduce_hook),
            wanted,
            3 * growth * UNIT_ROUNDOFF["bf16"],
        ),
        "noop": (debugging_hooks.noop_hook, mine, networks.SAME),
    }
    for title, (hook, expected, within) in hooks.items():
        model = replicated(network(), **SMALL_BUCKETS)
        model.register_comm_hook(None, hook)
        loss(model, 0, ctx).backward()
        yield networks.off(f"gradients off, {title}", networks.gradients(model), expected, within)


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2)
def local_sgd_after_warmup(ctx: Context) -> Iterator[Check]:
    """post_localSGD_hook averages gradients up to its first local step; its optimiser then averages weights in periods.

    https://arxiv.org/abs/1808.07217
    """
    import torch
    import torch.distributed as dist
    from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook
    from torch.distributed.algorithms.model_averaging import averagers
    from torch.distributed.optim import PostLocalSGDOptimizer

    alone = [dist.new_group([rank]) for rank in range(ctx.place.world_size)][ctx.place.rank]
    warm, period, rate = 2, 3, 0.05
    state = post_localSGD_hook.PostLocalSGDState(None, subgroup=alone, start_localSGD_iter=warm)
    model = replicated(matrix())
    model.register_comm_hook(state, post_localSGD_hook.post_localSGD_hook)
    averager = averagers.PeriodicModelAverager(period=period, warmup_steps=warm)
    optimiser = PostLocalSGDOptimizer(torch.optim.SGD(model.parameters(), lr=rate), averager)
    weights = [model.module.weight.detach().double().clone() for _ in range(ctx.place.world_size)]
    for step in range(STEPS):
        backward(model, step, ctx.place.rank)
        optimiser.step()
        gradients = [gradient(step, rank) for rank in range(ctx.place.world_size)]
        shared = sum(gradients) / len(gradients)
        weights = [each - rate * (shared if step < warm else own) for each, own in zip(weights, gradients, strict=True)]
        if step >= warm and (step - warm) % period == 0:
            weights = [sum(weights) / len(weights)] * len(weights)
        found = model.module.weight.detach().double()
        yield at_most(f"weights off, step {step}", off(found, weights[ctx.place.rank]), networks.SAME)


@call(GROUP, phase=Phase.BACKWARD, ranks=2, requires=("quantised_gradients",))
def gradients_in_8_bits(ctx: Context) -> Iterator[Check]:
    """The quantising hook averages gradients that are off by half a step of 255 on each rank."""
    from torch.distributed.algorithms.ddp_comm_hooks import quantization_hooks

    world = ctx.place.world_size
    model = replicated(matrix())
    model.register_comm_hook(None, quantization_hooks.quantization_pertensor_hook)
    for step in range(2):
        found = backward(model, step, ctx.place.rank)
        truth = [gradient(step, rank) for rank in range(world)]
        half = sum(float(each.max().clamp_min(0) - each.min().clamp_max(0)) / 255 / 2 for each in truth) / world
        error = float((found - mean(step, world)).abs().max())
        yield at_most("largest error, in half steps", error / half, 1 + 1e-3)
        yield at_least("largest error, in half steps", error / half, 0.5)
