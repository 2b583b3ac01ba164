"""What DDP does with buffers and uneven inputs, and optimiser state that ranks share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.parallel import networks
from cases.behaviour.parallel.networks import loss, network
from cases.behaviour.parallel.replicating import GROUP, SMALL_BUCKETS, momentum, replicated
from cases.model import tiny
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

BATCHES = (5, 3)  # of rank 0 and of rank 1
STEPS = range(3)


def with_buffer() -> Any:
    """A linear layer whose output is multiplied with a buffer."""
    import torch

    class Scaled(torch.nn.Module):  # type: ignore[misc]  # torch has no types here
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(7, 1)
            self.register_buffer("scale", torch.ones(3))

        def forward(self, inputs: Any) -> Any:
            return self.layer(inputs) * self.scale.sum()

    return networks.filled(Scaled())


@call(GROUP, phase=Phase.FORWARD, ranks=2)
def ddp_broadcasts_buffers(ctx: Context) -> Iterator[Check]:
    """With broadcast_buffers, a forward pass uses the buffers of rank 0; without, those of its rank.

    https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
    """
    for shared in (True, False):
        model = with_buffer()
        wrapped = replicated(model, broadcast_buffers=shared)
        for step in STEPS:
            model.scale.fill_(2.0 + step + ctx.place.rank)
            wrapped(networks.data(step)[0]).sum().backward()
            wanted = 2.0 + step + (0 if shared else ctx.place.rank)
            yield equal("buffer", float(model.scale.mean()), wanted)


@call(GROUP, phase=Phase.FORWARD, ranks=2)
def ddp_batch_norm_statistics(ctx: Context) -> Iterator[Check]:
    """DDP keeps the running statistics of rank 0's rows, and normalises each rank's rows by their own statistics."""
    import torch

    model = torch.nn.BatchNorm1d(7, momentum=0.25)
    wrapped = replicated(model)
    mean = torch.zeros(7)
    for step in STEPS:
        inputs = networks.data(step)[0]
        mine = networks.share(inputs, ctx)
        expected = (mine - mine.mean(0)) / (mine.var(0, unbiased=False) + model.eps).sqrt()
        found = wrapped(mine)
        found.square().mean().backward()
        yield at_most("outputs off", float((found - expected).abs().max() / expected.abs().max()), networks.SAME)
        mean = 0.75 * mean + 0.25 * inputs.tensor_split(ctx.place.world_size)[0].mean(0)
    wrapped.train(mode=True)(networks.data(9)[0])  # the broadcast comes before a forward pass
    mean = 0.75 * mean + 0.25 * networks.data(9)[0].mean(0)
    yield at_most("statistics off", float((model.running_mean - mean).norm() / mean.norm()), networks.SAME)


@call(GROUP, phase=Phase.BACKWARD, ranks=2)
def ddp_join_initial_world_size(ctx: Context) -> Iterator[Check]:
    """With join, a rank can finish early; later gradients are divided by the initial number of ranks.

    https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html#torch.nn.parallel.DistributedDataParallel.join
    """
    yield from joined(ctx, initial=True)


@call(GROUP, phase=Phase.BACKWARD, ranks=2)
def ddp_join_effective_world_size(ctx: Context) -> Iterator[Check]:
    """With divide_by_initial_world_size=False, join divides by the number of ranks that still have inputs."""
    yield from joined(ctx, initial=False)


def joined(ctx: Context, *, initial: bool) -> Iterator[Check]:
    model = replicated(network(), **SMALL_BUCKETS)
    optimiser = momentum(model)
    steps = 0
    with model.join(divide_by_initial_world_size=initial):
        for step in range(BATCHES[ctx.place.rank]):
            optimiser.zero_grad()
            loss(model, step, ctx).backward()
            optimiser.step()
            steps += 1
    yield equal("steps", steps, BATCHES[ctx.place.rank])
    yield networks.off("weights off", networks.weights(model), of_uneven_ranks(initial=initial))


def of_uneven_ranks(*, initial: bool) -> dict[str, Any]:
    """The weights after training in one process on the batches that each rank has."""
    model = network()
    optimiser = momentum(model)
    for step in range(max(BATCHES)):
        optimiser.zero_grad()
        inputs, targets = (each.tensor_split(len(BATCHES)) for each in networks.data(step))
        active = [rank for rank, batches in enumerate(BATCHES) if step < batches]
        for rank in active:
            term = (model(inputs[rank]) - targets[rank]).square().mean()
            (term / (len(BATCHES) if initial else len(active))).backward()
        optimiser.step()
    return networks.weights(model)


@call(GROUP, phase=Phase.BACKWARD, ranks=2)
def ddp_own_hook(ctx: Context) -> Iterator[Check]:
    """A communication hook of a script, with annotations or without, replaces the mean; wrong annotations raise.

    https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html#torch.nn.parallel.DistributedDataParallel.register_comm_hook
    """
    import torch
    import torch.distributed as dist

    def plain(state, bucket):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - as most scripts write it
        summed = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
        return summed.then(lambda done: done.value()[0] * state)

    def annotated(state: float, bucket: Any) -> Any:
        return plain(state, bucket)  # type: ignore[no-untyped-call]

    annotated.__annotations__.update({"bucket": dist.GradBucket, "return": torch.futures.Future[torch.Tensor]})
    wanted = networks.expected_gradients(network(), [loss])
    for kind, hook in (("plain", plain), ("annotated", annotated)):
        model = replicated(network(), **SMALL_BUCKETS)
        model.register_comm_hook(3.0 / ctx.place.world_size, hook)
        loss(model, 0, ctx).backward()
        thrice = {name: 3 * each for name, each in wanted.items()}
        yield networks.off(f"gradients off, {kind} hook", networks.gradients(model), thrice)
    for name in ("bucket", "return"):
        annotated.__annotations__[name] = int
        try:
            replicated(network()).register_comm_hook(1.0, annotated)
        except ValueError:
            raised = True
        else:
            raised = False
        yield equal(f"a wrong annotation raises: {name}", raised, bound=True)
        annotated.__annotations__.update({"bucket": dist.GradBucket, "return": torch.futures.Future[torch.Tensor]})


def groups(model: Any) -> list[dict[str, Any]]:
    """Two groups of parameters that differ in learning rate and weight decay."""
    first: list[Any] = []
    others: list[Any] = []
    for name, parameter in tiny.named(model):
        (first if name.endswith("bias") else others).append(parameter)
    return [{"params": first, "lr": 0.02, "weight_decay": 0.0}, {"params": others, "lr": 0.05, "weight_decay": 0.3}]


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2)
def zero_redundancy_optimizer(ctx: Context) -> Iterator[Check]:
    """ZeroRedundancyOptimizer steps as its optimiser does, holds each moment once, and gives the whole state.

    https://docs.pytorch.org/docs/stable/distributed.optim.html#torch.distributed.optim.ZeroRedundancyOptimizer
    """
    import torch
    import torch.distributed as dist
    from torch.distributed.optim import ZeroRedundancyOptimizer

    plain, model = network().double(), replicated(network().double(), **SMALL_BUCKETS)
    expected = torch.optim.AdamW(groups(plain))
    found = ZeroRedundancyOptimizer(groups(model), optimizer_class=torch.optim.AdamW)
    networks.train(plain, expected, STEPS)
    networks.train(model, found, STEPS, ctx)
    yield networks.off("weights off", networks.weights(model), networks.weights(plain))
    held = torch.tensor(float(sum(len(state) > 0 for state in found.optim.state.values())))
    mine = int(held)
    dist.all_reduce(held)
    yield equal("moments on all ranks", int(held), len(list(plain.parameters())))
    yield at_most("moments on this rank", mine, len(list(plain.parameters())) - 1)
    found.consolidate_state_dict(to=0)
    if ctx.place.rank == 0:
        yield networks.off("moments off", moments(found.state_dict()), moments(expected.state_dict()))
        yield equal("learning rates", rates(found.state_dict()), rates(expected.state_dict()))


def moments(state: dict[str, Any]) -> dict[str, Any]:
    return {f"{number}.{name}": t for number, each in state["state"].items() for name, t in each.items() if t.dim() > 0}


def rates(state: dict[str, Any]) -> str:
    return " ".join(f"{group['lr']}:{group['weight_decay']}:{len(group['params'])}" for group in state["param_groups"])
