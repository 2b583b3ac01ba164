"""What wrapped models show and keep between passes: names, shards, compiled layers, and uneven inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call, jobs, sharding
from cases.behaviour.parallel import networks, sharded_networks
from cases.behaviour.parallel.networks import network
from cases.behaviour.parallel.replicating import replicated
from cases.space.verdict import Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "State of parallel models"
RATE = 0.1
STEPS = range(3)


def tied() -> Any:
    """A network whose second layer has the weight of its first."""
    import torch

    made = torch.nn.Sequential(torch.nn.Linear(7, 7), torch.nn.Tanh(), torch.nn.Linear(7, 7), torch.nn.Linear(7, 1))
    made[2].weight = made[0].weight
    return networks.filled(made)


@call(GROUP, phase=Phase.FORWARD, ranks=2, requires=jobs.FSDP1)
def fsdp1_names_between_passes(ctx: Context) -> Iterator[Check]:
    """FSDP1 shows the same parameters before and after a pass, in evaluation and in training, with tied weights too.

    So an optimiser that is made after an evaluation trains as one that is made before.
    """
    import torch

    plain = tied()
    networks.train(plain, torch.optim.SGD(plain.parameters(), lr=RATE), STEPS)
    for own_names in (True, False):
        model = sharding.fsdp1(tied(), ctx, use_orig_params=own_names)
        before = [name for name, _ in model.named_parameters()]
        with torch.no_grad():
            networks.loss(model.eval(), 0, ctx)
        title = f"use_orig_params={own_names}"
        yield equal(f"names after an evaluation, {title}", str([n for n, _ in model.named_parameters()]), str(before))
        leaves = all(parameter.is_leaf for parameter in model.parameters())
        yield equal(f"parameters are leaves, {title}", leaves, bound=True)
        optimiser = torch.optim.SGD(model.train().parameters(), lr=RATE)
        for step in STEPS:
            optimiser.zero_grad()
            networks.loss(model, step, ctx).backward()
            optimiser.step()
        yield equal(f"names after training, {title}", str([n for n, _ in model.named_parameters()]), str(before))
        with torch.no_grad():
            found = float(networks.loss(model, 5))
            expected = float(networks.loss(plain, 5))
        yield networks.off(f"loss after training off, {title}", {"": torch.tensor(found)}, {"": torch.tensor(expected)})


@call(GROUP, phase=Phase.RELOAD, ranks=2, requires=jobs.FSDP2)
def fsdp2_trains_assigned_weights(ctx: Context) -> Iterator[Check]:
    """Weights that load_state_dict put into FSDP2's shards, copied or with assign=True, are those that train.

    The rows of the layers do not divide evenly, and a script may load before the first pass or after some.
    """
    import torch
    from torch.distributed.tensor import distribute_tensor

    start = {name: each * 0.5 for name, each in networks.weights(network()).items()}
    plain = network()
    plain.load_state_dict(start)
    expected = networks.train(plain, torch.optim.SGD(plain.parameters(), lr=RATE), STEPS)
    for assign in (False, True):
        for passes in (0, 1):
            model = sharded_networks.fsdp2(network(), ctx)
            for step in range(passes):
                networks.loss(model, step, ctx).backward()
            shards = {
                name: distribute_tensor(each, sharded_networks.mesh(ctx), model.state_dict()[name].placements)
                for name, each in start.items()
            }
            model.load_state_dict(shards, assign=assign)
            found = networks.train(model, torch.optim.SGD(model.parameters(), lr=RATE), STEPS, ctx)
            title = f"assign={assign}, passes before: {passes}"
            yield networks.worst_off(f"gradients off, {title}", found, expected)
            yield networks.off(f"weights off, {title}", networks.weights(model), networks.weights(plain))


@call(GROUP, phase=Phase.BACKWARD, ranks=2, requires=(*jobs.FSDP2, "compile"))
def fsdp2_compiled_layers(ctx: Context) -> Iterator[Check]:
    """Layers that were compiled one by one, with fullgraph=True, train under FSDP2 as one process does."""
    import torch

    plain = network()
    expected = networks.train(plain, torch.optim.SGD(plain.parameters(), lr=RATE), STEPS)
    model = network()
    for name in sharded_networks.UNITS:
        setattr(model, name, torch.compile(getattr(model, name), backend="eager", fullgraph=True))
    sharded_networks.fsdp2(model, ctx)
    found = networks.train(model, torch.optim.SGD(model.parameters(), lr=RATE), STEPS, ctx)
    yield networks.worst_off("gradients off", found, expected)
    yield networks.off("weights off", networks.weights(model), networks.weights(plain))


@call(GROUP, phase=Phase.SAVE, ranks=2, requires=(*jobs.FSDP1, "fsdp1_optimiser_state"))
def fsdp1_kinds_of_optimiser_state(ctx: Context) -> Iterator[Check]:
    """optim_state_dict of FSDP1 is whole or sharded as state_dict_type says; the sharded one loads back as it was."""
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel as Wrapped
    from torch.distributed.fsdp import StateDictType

    model = sharding.fsdp1(network(), ctx, use_orig_params=True)
    optimiser = torch.optim.Adam(model.parameters(), lr=RATE)
    networks.train(model, optimiser, STEPS, ctx)
    for kind, is_sharded in (("FULL_STATE_DICT", False), ("SHARDED_STATE_DICT", True)):
        with Wrapped.state_dict_type(model, StateDictType[kind]):
            state = Wrapped.optim_state_dict(model, optimiser)
            tensors = [each["exp_avg"] for each in state["state"].values()]
            sharded = {hasattr(each, "local_shards") or hasattr(each, "to_local") for each in tensors}
            yield equal(f"moments are sharded, {kind}", str(sharded), str({is_sharded}))
            again = torch.optim.Adam(model.parameters(), lr=RATE)
            again.load_state_dict(Wrapped.optim_state_dict_to_load(model, again, state))
        if is_sharded:
            pairs = zip(optimiser.state_dict()["state"].values(), again.state_dict()["state"].values(), strict=True)
            differ = sum(int((one["exp_avg"] != other["exp_avg"]).sum()) for one, other in pairs)
            yield equal("moments that differ after loading", differ, 0)


@call(GROUP, phase=Phase.BACKWARD, ranks=2)
def ddp_joins_accumulated_inputs(ctx: Context) -> Iterator[Check]:
    """DDP's join lets a rank have fewer batches than the other, also if passes accumulate within no_sync.

    A rank without further batches adds nothing; the sum over the ranks is divided by their number.
    """
    import torch

    batches = 4 if ctx.place.rank == 0 else 2
    model = replicated(network())
    optimiser = torch.optim.SGD(model.parameters(), lr=0.0)
    found = []
    with model.join(divide_by_initial_world_size=True):
        for step in range(0, batches, 2):
            optimiser.zero_grad()
            with model.no_sync():
                networks.loss(model, step, ctx).backward()
            networks.loss(model, step + 1, ctx).backward()
            found.append(networks.gradients(model))
            optimiser.step()
    both = networks.expected_gradients(network().double(), networks.losses((0, 1)))
    yield networks.off("gradients of the first window off", found[0], both)
    if ctx.place.rank == 0:
        own = networks.expected_gradients(network().double(), networks.losses((2, 3), ctx))
        half = {name: each / ctx.place.world_size for name, each in own.items()}
        yield networks.off("gradients of the window of one rank off", found[1], half)
    yield equal("windows", len(found), batches // 2)
