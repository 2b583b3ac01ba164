"""DDP's treatment of tied parameters, of outputs beside the loss in any container, and of joins by their defaults.

https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.parallel import networks
from cases.behaviour.parallel.networks import loss, network
from cases.behaviour.parallel.replicated_state import BATCHES, of_uneven_ranks
from cases.behaviour.parallel.replicating import GROUP, SMALL_BUCKETS, momentum, replicated
from cases.space.verdict import Check, Phase, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cases.apply.context import Context

STEPS = range(4)


def tied() -> Any:
    """Embeddings of the inputs' places whose weight is also the head's, as language models have it."""
    import torch

    class TiedLayers(torch.nn.Module):  # type: ignore[misc]  # torch has no types here
        def __init__(self) -> None:
            super().__init__()
            self.words = torch.nn.Embedding(7, 5)
            self.middle = torch.nn.Linear(5, 5)
            self.head = torch.nn.Linear(5, 7, bias=False)
            self.head.weight = self.words.weight
            self.again = self.middle

        def forward(self, inputs: Any) -> Any:
            hidden = self.again(self.middle(self.words(inputs.argsort(1)[:, :3]).sum(1)).tanh())
            return self.head(hidden).tanh().sum(1, keepdim=True)

    return networks.filled(TiedLayers())


@call(GROUP, phase=Phase.BACKWARD, ranks=2)
def ddp_tied_embeddings(ctx: Context) -> Iterator[Check]:
    """A weight of two modules, and a module under two names, train as in one process, in each kind of DDP."""
    kinds: tuple[dict[str, Any], ...] = (
        {},
        SMALL_BUCKETS,
        {"find_unused_parameters": True},
        {"static_graph": True},
        {"gradient_as_bucket_view": True, **SMALL_BUCKETS},
    )
    plain = tied()
    expected = networks.train(plain, momentum(plain), STEPS)
    for kind in kinds:
        model = replicated(tied(), **kind)
        found = networks.train(model, momentum(model), STEPS, ctx)
        title = ", ".join(kind) or "defaults"
        yield networks.worst_off(f"gradients off, {title}", found, expected)
        yield networks.off(f"weights off, {title}", networks.weights(model), networks.weights(plain))


Pair = collections.namedtuple("Pair", ["used", "beside"])  # noqa: PYI024 - as scripts without types have it
FORMS: Mapping[str, Callable[[Any, Any], Any]] = {
    "tuple": lambda used, beside: (used, beside),
    "list": lambda used, beside: [used, beside],
    "dictionary": lambda used, beside: {"used": used, "beside": beside},
    "nested": lambda used, beside: {"used": used, "more": [{"beside": (beside,)}]},
    "named tuple": Pair,
}


def used_of(outputs: Any) -> Any:
    if isinstance(outputs, dict):
        return outputs["used"]
    return outputs[0]


def with_two_heads(form: Callable[[Any, Any], Any]) -> Any:
    import torch

    class TwoHeads(torch.nn.Module):  # type: ignore[misc]  # torch has no types here
        def __init__(self) -> None:
            super().__init__()
            self.trunk, self.used, self.beside = torch.nn.Linear(7, 5), torch.nn.Linear(5, 1), torch.nn.Linear(5, 3)

        def forward(self, inputs: Any) -> Any:
            hidden = self.trunk(inputs).tanh()
            return form(self.used(hidden), self.beside(hidden))

    return networks.filled(TwoHeads())


@call(GROUP, phase=Phase.BACKWARD, ranks=2)
def ddp_outputs_beside_the_loss(ctx: Context) -> Iterator[Check]:
    """With find_unused_parameters, outputs may stay out of the loss, whatever container a forward pass returns.

    The parameters below them get no gradient, or zeros, in each of several steps; all others the mean.
    """
    for title, form in FORMS.items():
        model = replicated(with_two_heads(form), find_unused_parameters=True)
        kinds = set()
        for step in range(3):
            model.zero_grad()
            inputs, targets = networks.data(step)
            outputs = model(networks.share(inputs, ctx))
            kinds.add(type(outputs).__name__)
            (used_of(outputs) - networks.share(targets, ctx)).square().mean().backward()
            plain = with_two_heads(form)
            (used_of(plain(inputs)) - targets).square().mean().backward()
            found, expected = networks.gradients(model), networks.gradients(plain)
            beside = {name: found.pop(name) for name in [*found] if name.startswith("beside")}
            yield networks.off(f"gradients off, {title}, step {step}", found, expected)
            yield equal(
                f"entries beside, {title}, step {step}", sum(int(g.count_nonzero()) for g in beside.values()), 0
            )
        yield equal(f"type of the outputs, {title}", str(kinds), str({type(form(0, 0)).__name__}))


@call(GROUP, phase=Phase.BACKWARD, ranks=2)
def ddp_joins_by_default(ctx: Context) -> Iterator[Check]:
    """DDP's join and torch's Join divide by the initial number of ranks unless told otherwise; weights end alike.

    https://docs.pytorch.org/docs/stable/distributed.algorithms.join.html
    """
    from torch.distributed.algorithms.join import Join

    ways: Mapping[str, Callable[[Any], Any]] = {
        "join": lambda model: model.join(),
        "Join": lambda model: Join([model]),
        "Join, by the ranks left": lambda model: Join([model], divide_by_initial_world_size=False),
        "not enabled": lambda model: model.join(enable=False),
    }
    for title, way in ways.items():
        model = replicated(network(), **SMALL_BUCKETS)
        optimiser = momentum(model)
        batches = BATCHES[ctx.place.rank] if title != "not enabled" else BATCHES[1]
        with way(model):
            for step in range(batches):
                optimiser.zero_grad()
                loss(model, step, ctx).backward()
                optimiser.step()
        if title == "not enabled":
            plain = network()
            networks.train(plain, momentum(plain), range(BATCHES[1]))
            expected = networks.weights(plain)
        else:
            expected = of_uneven_ranks(initial="left" not in title)
        yield networks.off(f"weights off, {title}", networks.weights(model), expected)


@call(GROUP, phase=Phase.BACKWARD, ranks=2)
def ddp_join_refuses_uneven_inputs(ctx: Context) -> Iterator[Check]:
    """With throw_on_early_termination, all ranks raise a RuntimeError when one of them has no more inputs."""
    model = replicated(network())
    steps, said = 0, "nothing"
    try:
        with model.join(throw_on_early_termination=True):
            for step in range(BATCHES[ctx.place.rank]):
                loss(model, step, ctx).backward()
                steps += 1
    except RuntimeError as error:
        said = "exhausted" if "exhausted" in str(error) else str(error)
    yield equal("said", said, "exhausted")
    yield equal("steps", steps, min(BATCHES))
