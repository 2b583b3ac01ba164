"""FSDP1 when a script changes between steps its weights, or the units that a pass uses.

https://docs.pytorch.org/docs/stable/fsdp.html. Each training is that of one process with the same changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call, jobs
from cases.behaviour.parallel import networks, sharded_networks
from cases.behaviour.parallel.flat_state import whole_weights
from cases.behaviour.parallel.networks import network
from cases.space.verdict import Check, Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cases.apply.context import Context

GROUP = "State of parallel models"
RATE = 0.1
STRATEGIES = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD")
BOUND = 0.3  # of weights that a script clamps
HEADS = ("both", "used", "both", "used", "beside", "both")  # of each step


def replaced_data(model: Any) -> None:
    for parameter in model.parameters():
        parameter.data = parameter.data.clamp(-BOUND, BOUND)


def changed_in_place(model: Any) -> None:
    for parameter in model.parameters():
        parameter.data.clamp_(-BOUND, BOUND)


def as_one_vector(model: Any) -> None:
    """Weights go out as a vector and come back as its parts, as scripts average or prune them."""
    from torch.nn.utils import parameters_to_vector, vector_to_parameters

    held = list(model.parameters())
    vector_to_parameters(parameters_to_vector(held).detach().clamp(-BOUND, BOUND), held)


EDITS: dict[str, Callable[[Any], None]] = {
    "data replaced": replaced_data,
    "in place": changed_in_place,
    "as one vector": as_one_vector,
}


def momentum(model: Any) -> Any:
    import torch

    return torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.5)


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2, requires=jobs.FSDP1)
def fsdp1_weights_edited_between_steps(ctx: Context) -> Iterator[Check]:
    """With use_orig_params, FSDP1 trains on from shards that a script changes between steps, however it sets them."""
    yield from edited(ctx, STRATEGIES[:2])


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2, requires=jobs.FSDP1)
def fsdp1_whole_weights_edited_between_steps(ctx: Context) -> Iterator[Check]:
    """With use_orig_params under NO_SHARD, FSDP1 trains on from weights that a script changes between steps."""
    yield from edited(ctx, STRATEGIES[2:])


def edited(ctx: Context, strategies: tuple[str, ...]) -> Iterator[Check]:
    for strategy in strategies:
        for title, edit in EDITS.items():
            model, plain = sharded_networks.fsdp1(network(), ctx, use_orig_params=True, **sharded(strategy)), network()
            for each, place in ((model, ctx), (plain, None)):
                optimiser = momentum(each)
                for step in range(3):
                    networks.train(each, optimiser, [step], place)
                    edit(each)
            found = whole_weights(model)
            yield networks.off(f"weights off, {title}, {strategy}", found, networks.weights(plain))


def sharded(strategy: str) -> dict[str, Any]:
    from torch.distributed.fsdp import ShardingStrategy

    return {"sharding_strategy": ShardingStrategy[strategy]}


def two_heads() -> Any:
    """A network whose passes use one of two heads, or both."""
    import torch

    class HeadsOfChoice(torch.nn.Module):  # type: ignore[misc]  # torch has no types here
        def __init__(self) -> None:
            super().__init__()
            self.trunk, self.used, self.beside = torch.nn.Linear(7, 5), torch.nn.Linear(5, 1), torch.nn.Linear(5, 1)

        def forward(self, inputs: Any, heads: str) -> Any:
            hidden = self.trunk(inputs).tanh()
            return sum(getattr(self, name)(hidden) for name in ("used", "beside") if heads in (name, "both"))

    return networks.filled(HeadsOfChoice())


def head_loss(model: Any, step: int, heads: str, ctx: Context | None = None) -> Any:
    inputs, targets = networks.data(step)
    if ctx is not None:
        inputs, targets = networks.share(inputs, ctx), networks.share(targets, ctx)
    return (model(inputs, heads) - targets).square().mean()


@call(GROUP, phase=Phase.BACKWARD, ranks=2, requires=jobs.FSDP1)
def fsdp1_units_of_some_steps(ctx: Context) -> Iterator[Check]:
    """FSDP1 trains a unit that some steps use and others leave out; it moves only in the steps that use it."""
    for strategy in STRATEGIES:
        for own_names in (True, False):
            wrapped = sharded_networks.fsdp1(
                two_heads(), ctx, ("used", "beside"), use_orig_params=own_names, **sharded(strategy)
            )
            plain = two_heads()
            for each, place in ((wrapped, ctx), (plain, None)):
                optimiser = momentum(each)
                for step, heads in enumerate(HEADS):
                    optimiser.zero_grad()
                    head_loss(each, step, heads, place).backward()
                    optimiser.step()
            title = f"{strategy}, use_orig_params={own_names}"
            yield networks.off(f"weights off, {title}", whole_weights(wrapped), networks.weights(plain))
