"""FSDP2 units of several modules, as fully_shard([norm, head]) makes them.

https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html: "module (Union[nn.Module, List[nn.Module]]): The
module or modules to shard with FSDP and group together for communication."
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call, jobs
from cases.apply import compat
from cases.behaviour.parallel import networks
from cases.space.verdict import Check, Phase, at_least, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

STEPS = range(3)
GROUPED = ("middle", "head")


def named_inputs() -> Any:
    """Layers of which the grouped ones take their inputs by name and by place."""
    import torch

    class ScaledLayer(torch.nn.Module):  # type: ignore[misc]  # torch has no types here
        def __init__(self, inputs: int, outputs: int) -> None:
            super().__init__()
            self.inner = torch.nn.Linear(inputs, outputs)

        def forward(self, hidden: Any, *, times: float = 1.0) -> Any:
            return times * self.inner(hidden)

    class NamedInputs(torch.nn.Module):  # type: ignore[misc]  # torch has no types here
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Linear(networks.WIDTHS[0], 6)
            self.middle, self.head = ScaledLayer(6, 5), ScaledLayer(5, 1)

        def forward(self, inputs: Any) -> Any:
            hidden = self.middle(hidden=self.first(inputs).tanh(), times=0.5).tanh()
            return self.head(hidden, times=2.0)

    return networks.filled(NamedInputs())


@call("State of parallel models", phase=Phase.BACKWARD, ranks=2, requires=jobs.FSDP2)
def fsdp2_grouped_modules(ctx: Context) -> Iterator[Check]:
    """Modules that fully_shard gets as a list train as in one process, with inputs by name, and are sharded together.

    With and without reshard_after_forward, which frees the whole weights after the last of them.
    """
    import torch

    plain = named_inputs()
    expected = networks.train(plain, torch.optim.SGD(plain.parameters(), lr=0.1), STEPS)
    for resharded in (True, False):
        model = named_inputs()
        compat.fully_shard()([getattr(model, name) for name in GROUPED], reshard_after_forward=resharded)
        compat.fully_shard()(model, reshard_after_forward=resharded)
        sharded = [name for name, each in model.named_parameters() if hasattr(each, "full_tensor")]
        title = f"reshard_after_forward={resharded}"
        yield equal(f"sharded tensors, {title}", len(sharded), len([*plain.parameters()]))
        found = networks.train(model, torch.optim.SGD(model.parameters(), lr=0.1), STEPS, ctx)
        yield networks.worst_off(f"gradients off, {title}", found, expected)
        yield networks.off(f"weights off, {title}", networks.weights(model), networks.weights(plain))
        with torch.no_grad():
            outputs = model(networks.data(0)[0])
        kept = {name: not hasattr(getattr(model, name).inner.weight, "full_tensor") for name in GROUPED}
        yield equal(
            f"modules whose weights stay whole after a pass, {title}", str({*kept.values()}), str({not resharded})
        )
        yield at_least(f"outputs that differ from zero, {title}", float(outputs.abs().max()), 1e-6)
