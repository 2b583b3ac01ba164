"""How FSDP1 lays out parameters: even shards, tied weights in states of optimisers, and compiled passes.

https://docs.pytorch.org/docs/stable/fsdp.html
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

from cases.api import call, jobs, sharding
from cases.behaviour.distributed.between_passes import tied
from cases.behaviour.distributed.flat_optimiser_state import saved
from cases.behaviour.parallel import networks, sharded_networks
from cases.behaviour.parallel.flat_state import MOMENTS, OWN_NAMES, kind_of_state, of_all_ranks, whole_weights
from cases.behaviour.trainers.stock_trainer import gathered
from cases.space.verdict import Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "State of parallel models"
RATE = 0.1
STEPS, LATER = range(2), range(2, 4)
# Widths whose weights and biases are whole multiples of 4 numbers, as FSDP1 aligns parameters to 16 bytes.
EVEN = ((8, 4, 4, 4), (4, 8, 8, 4), (8, 12, 4), (4, 4))


@call(GROUP, phase=Phase.WRAP, ranks=2, requires=jobs.FSDP1)
def fsdp1_even_shards(ctx: Context) -> Iterator[Check]:
    """A flat parameter that divides by the number of ranks is cut into equal shards, without padding on any rank.

    Gradients and momenta have the sizes of the shards. With use_orig_params, and without.
    """
    import torch

    for widths, own_names in product(EVEN, (True, False)):
        plain = networks.network(widths)
        total = sum(each.numel() for each in plain.parameters())
        model = sharding.fsdp1(plain, ctx, use_orig_params=own_names)
        optimiser = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
        sizes = {"parameters": numbers(model.parameters())}
        inputs = networks.data(0, inputs=widths[0])[0]
        model(networks.share(inputs, ctx)).square().mean().backward()
        sizes["parameters after a pass"] = numbers(model.parameters())
        sizes["gradients"] = numbers(each.grad for each in model.parameters() if each.grad is not None)
        optimiser.step()
        sizes["momenta"] = numbers(each["momentum_buffer"] for each in optimiser.state.values())
        title = f"{widths}, use_orig_params={own_names}"
        for kind, size in sizes.items():
            yield equal(f"numbers of the ranks, {kind}, {title}", str(gathered(ctx, size)), str([total // 2] * 2))


def numbers(tensors: Any) -> int:
    return sum(int(each.numel()) for each in tensors)


def made(model: Any, rate: float = RATE) -> Any:
    import torch

    return torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)


@call(GROUP, phase=Phase.RESUME, ranks=2, requires=OWN_NAMES)
def fsdp1_optimiser_state_of_tied_weights(ctx: Context) -> Iterator[Check]:
    """The state of a tied weight is saved once, under the name that the plain model lists, and training goes on.

    Full on all ranks, full on rank 0 alone, and sharded.
    """
    from torch.distributed.fsdp import FullyShardedDataParallel as Wrapped

    plain = tied()
    reference = made(plain)
    networks.train(plain, reference, STEPS)
    names = sorted(name for name, _ in plain.named_parameters())
    expected = {
        f"{n} momentum_buffer": reference.state[p]["momentum_buffer"].clone() for n, p in plain.named_parameters()
    }
    networks.train(plain, reference, LATER)
    kinds: tuple[tuple[str, dict[str, bool]], ...] = (("full", {}), ("full", {"rank0_only": True}), ("sharded", {}))
    for (kind, chosen), own_names in product(kinds, (True, False)):
        title = f"{kind}, {chosen}, use_orig_params={own_names}"
        model = sharding.fsdp1(tied(), ctx, use_orig_params=own_names)
        optimiser = made(model)
        networks.train(model, optimiser, STEPS, ctx)
        with kind_of_state(model, kind, **chosen):
            held = Wrapped.optim_state_dict(model, optimiser)
            if ctx.place.rank == 0 or not chosen:
                listed = sorted(name for group in held["param_groups"] for name in group["params"])
                yield equal(f"names in groups, {title}", str(listed), str(names))
                yield equal(f"names of states, {title}", str(sorted(held["state"])), str(names))
            if not chosen:
                yield networks.off(f"momenta off, {title}", saved(of_all_ranks(held)), expected, MOMENTS)
            later = made(model, rate=1.0)
            later.load_state_dict(Wrapped.optim_state_dict_to_load(model, later, held))
        networks.train(model, later, LATER, ctx)
        found = {name: each for name, each in whole_weights(model).items() if name in names}
        wanted = {name: each for name, each in networks.weights(plain).items() if name in names}
        yield networks.off(f"weights off afterwards, {title}", found, wanted, MOMENTS)


@call(GROUP, phase=Phase.BACKWARD, ranks=2, requires=jobs.FSDP1)
def fsdp1_compiled(ctx: Context) -> Iterator[Check]:
    """A model that FSDP1 wraps with use_orig_params=True trains compiled as one process does, with units and without.

    "torch.compile requires use_orig_params=True". The backend "eager" traces and generates no code.
    """
    import torch

    plain = networks.network()
    expected = networks.train(plain, torch.optim.SGD(plain.parameters(), lr=RATE), STEPS)
    for units in ((), sharded_networks.UNITS):
        torch.compiler.reset()
        wrapped = sharded_networks.fsdp1(networks.network(), ctx, units, use_orig_params=True)
        model = torch.compile(wrapped, backend="eager")
        optimiser = torch.optim.SGD(wrapped.parameters(), lr=RATE)
        found = []
        for step in STEPS:
            optimiser.zero_grad()
            networks.loss(model, step, ctx).backward()
            found.append(sharded_networks.fsdp1_gradients(wrapped))
            optimiser.step()
        title = f"{len(units)} units within the root"
        yield networks.worst_off(f"gradients off, {title}", found, expected)
        yield networks.off(f"weights off, {title}", whole_weights(wrapped), networks.weights(plain))


def images() -> Any:
    """A convolution that is no square in any two dimensions, over inputs that it repeats in channels and rows."""
    import torch

    class ConvolvedRows(torch.nn.Module):  # type: ignore[misc]  # torch has no types here
        def __init__(self) -> None:
            super().__init__()
            self.image = torch.nn.Conv2d(3, 5, (2, 4))
            self.head = torch.nn.Linear(60, 1)

        def forward(self, inputs: Any) -> Any:
            places = torch.arange(1, 13).reshape(1, 3, 4, 1) / 8
            return self.head(self.image(inputs[:, None, None] * places).flatten(1).tanh())

    return networks.filled(ConvolvedRows())


@call(GROUP, phase=Phase.BACKWARD, ranks=2, requires=jobs.FSDP1)
def fsdp1_channels_last(ctx: Context) -> Iterator[Check]:
    """A convolution whose kernel lies channels last in memory trains under FSDP1 as it does in one process.

    https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html
    """
    import torch

    for layout in (torch.contiguous_format, torch.channels_last):
        plain = images().to(memory_format=layout)
        networks.train(plain, made(plain), STEPS)
        for own_names in (True, False):
            title = f"{layout}, use_orig_params={own_names}"
            model = sharding.fsdp1(images().to(memory_format=layout), ctx, use_orig_params=own_names)
            start = images()
            outputs = model(networks.data(9)[0]).detach()
            yield networks.off(f"outputs at the start off, {title}", {"": outputs}, {"": start(networks.data(9)[0])})
            networks.train(model, made(model), STEPS, ctx)
            yield networks.off(f"weights off, {title}", whole_weights(model), networks.weights(plain))


@call(GROUP, phase=Phase.RESUME, ranks=2, requires=OWN_NAMES)
def fsdp1_optimiser_state_of_ignored_modules(ctx: Context) -> Iterator[Check]:
    """The state of an optimiser has those of ignored modules, whole on each rank, and training goes on with them.

    ignored_modules: https://docs.pytorch.org/docs/stable/fsdp.html. All ranks read all rows here, since nobody reduces
    the gradients of ignored modules.
    """
    from torch.distributed.fsdp import FullyShardedDataParallel as Wrapped

    plain = networks.network()
    reference = made(plain)
    networks.train(plain, reference, STEPS)
    expected = {
        f"{n} momentum_buffer": reference.state[p]["momentum_buffer"].clone() for n, p in plain.named_parameters()
    }
    networks.train(plain, reference, LATER)
    for ignored, form in product(("first", "third"), ("full", "sharded")):
        title = f"{ignored}, {form}"
        inner = networks.network()
        model = sharding.fsdp1(inner, ctx, use_orig_params=True, ignored_modules=[getattr(inner, ignored)])
        optimiser = made(model)
        networks.train(model, optimiser, STEPS)
        with kind_of_state(model, form):
            held = Wrapped.optim_state_dict(model, optimiser)
            yield networks.off(f"momenta off, {title}", saved(of_all_ranks(held)), expected, MOMENTS)
            later = made(model, rate=1.0)
            later.load_state_dict(Wrapped.optim_state_dict_to_load(model, later, held))
        networks.train(model, later, LATER)
        yield networks.off(f"weights off afterwards, {title}", whole_weights(model), networks.weights(plain), MOMENTS)
