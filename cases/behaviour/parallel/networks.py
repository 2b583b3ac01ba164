"""A small network of plain torch, its data, and its expected gradients and training in one process.

Its sizes have no common divisor, and no number of ranks divides them. The last layer has one row, so that all ranks but
one hold nothing of it when it is sharded.
"""

from __future__ import annotations

import collections
import functools
from typing import TYPE_CHECKING, Any

from cases.model import tiny
from cases.reference import tolerance
from cases.space.verdict import Check, at_most

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from cases.apply.context import Context

SAME = 1e-5  # relative: the same arithmetic in float32, in another order
WIDTHS = (7, 13, 5, 3, 1)
NAMES = ("first", "second", "third", "fourth")
ROWS = 8


def network(widths: Sequence[int] = WIDTHS) -> Any:
    """Linear layers with tanh between them, float32; the same values on every rank."""
    import torch

    layers: dict[str, Any] = {}
    for name, inputs, outputs in zip(NAMES, widths, widths[1:], strict=False):
        if layers:
            layers[f"before_{name}"] = torch.nn.Tanh()
        layers[name] = torch.nn.Linear(inputs, outputs)
    return filled(torch.nn.Sequential(collections.OrderedDict(layers)))


def filled(model: Any) -> Any:
    """Fill any model with values that belong to its parameters' names, large enough to bend the activations."""
    import torch

    tiny.fill(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4)
    return model


def data(step: int, inputs: int = WIDTHS[0], rows: int = ROWS) -> tuple[Any, Any]:
    """Inputs, shape (rows, inputs), and targets, shape (rows, 1), of a step of all ranks together."""
    import torch

    generator = torch.Generator().manual_seed(1000 + step)
    return torch.randn(rows, inputs, generator=generator), torch.randn(rows, 1, generator=generator)


def share(tensor: Any, ctx: Context) -> Any:
    """The rows of this rank."""
    return tensor.tensor_split(ctx.place.world_size)[ctx.place.rank]


def loss(model: Any, step: int = 0, ctx: Context | None = None) -> Any:
    """The mean squared error over the rows of this rank, or without a context over all rows."""
    inputs, targets = data(step)
    if ctx is not None:
        inputs, targets = share(inputs, ctx), share(targets, ctx)
    if str(next(model.parameters()).dtype) == "torch.float64":
        inputs, targets = inputs.double(), targets.double()
    return (model(inputs).to(targets.dtype) - targets).square().mean()


def losses(steps: Iterable[int], ctx: Context | None = None) -> list[Callable[[Any], Any]]:
    """The losses of some steps, as functions of a model."""
    return [functools.partial(loss, step=step, ctx=ctx) for step in steps]


def gradients(model: Any) -> dict[str, Any]:
    """Copies of the whole gradients, by canonical name; parameters without one are left out."""
    return {name: whole(p.grad) for name, p in tiny.named(model) if p.grad is not None}


def weights(model: Any) -> dict[str, Any]:
    return {name: whole(p) for name, p in tiny.named(model)}


def whole(tensor: Any) -> Any:
    """A detached copy; a DTensor is gathered by all ranks."""
    gathered = tensor.detach()
    return (gathered.full_tensor() if hasattr(gathered, "full_tensor") else gathered).clone()


def expected_gradients(model: Any, losses: Iterable[Callable[[Any], Any]]) -> dict[str, Any]:
    """The gradients of the sum of some losses of a plain model in this process."""
    for term in losses:
        term(model).backward()
    return gradients(model)


def train(model: Any, optimiser: Any, steps: Iterable[int], ctx: Context | None = None) -> list[dict[str, Any]]:
    """Train for some steps; return the gradients of each."""
    found = []
    for step in steps:
        optimiser.zero_grad()
        loss(model, step, ctx).backward()
        found.append(gradients(model))
        optimiser.step()
    return found


def off(name: str, found: dict[str, Any], expected: dict[str, Any], within: float = SAME) -> Check:
    """Compare tensors by name; a missing or an additional one is infinitely far."""
    error = tolerance.worst_tensor(found, expected) if found.keys() == expected.keys() else float("inf")
    return at_most(name, error, within)


def worst_off(name: str, found: Sequence[dict[str, Any]], expected: Sequence[dict[str, Any]]) -> Check:
    """Compare the tensors of several steps."""
    pairs = [off(name, one, other) for one, other in zip(found, expected, strict=True)]
    return max(pairs, key=lambda check: (check.value != check.value, check.value))  # NaN is the worst
