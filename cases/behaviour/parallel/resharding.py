"""Sharded checkpoints that another number of ranks loads, or a model with other shards.

https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
"""

from __future__ import annotations

import copy
from itertools import permutations
from typing import TYPE_CHECKING, Any

from cases.api import call, jobs
from cases.apply import compat
from cases.behaviour.parallel import networks, sharded_networks
from cases.behaviour.parallel.networks import network
from cases.behaviour.parallel.uneven_shards import moments, plain_moments, plain_names
from cases.space.verdict import Check, Phase, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cases.apply.context import Context

    Wrap = Callable[[Any], Any]

GROUP = "Distributed checkpoints"
WORLDS = (1, 2, 4)
RATE, LOADED_RATE = 0.05, 0.5
ROWS_FOR_ALL = (7, 13, 5, 3, 2)  # widths: each rank of two has rows of every layer
MOMENTS = 1e-4  # relative: squares of gradients that ranks reduce in another order
OWN_NAMES = (*jobs.FSDP1, "fsdp1_optimiser_state")  # needs


def adam(model: Any, rate: float = RATE) -> Any:
    """Adam with two groups, so that parameters have to find theirs."""
    import torch

    named = list(model.named_parameters())
    first, second = ([p for n, p in named if ("second" in n) == each] for each in (False, True))
    groups = [{"params": first}, {"params": second, "weight_decay": 4 * rate}]
    return torch.optim.AdamW(groups, lr=rate, weight_decay=rate)


def with_state(model: Any) -> Any:
    """An optimiser of the model, after steps on all rows: every rank has the same gradients, and so has their mean."""
    optimiser = adam(model)
    networks.train(model, optimiser, range(2))
    return optimiser


def emptied(model: Any) -> Any:
    """The model with other weights, so that loading has to replace them."""
    import torch

    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(7.0)
    return model


class Crew:
    """The first ranks of a job: their mesh and their group. Every rank of the job has to make it."""

    def __init__(self, ctx: Context, size: int) -> None:
        import torch
        from torch.distributed.device_mesh import DeviceMesh

        self.size, self.member = size, ctx.place.rank < size
        self.mesh = DeviceMesh(ctx.place.kind, torch.arange(size))
        self.how: dict[str, Any] = {"no_dist": True}
        if self.member and size > 1:
            self.how = {"process_group": self.mesh.get_group()}

    def wrap(self, model: Any) -> Any:
        """Shard the model over the crew; one rank alone has a plain one."""
        if self.size > 1:
            for name in sharded_networks.UNITS:
                compat.fully_shard()(model.get_submodule(name), mesh=self.mesh)
            compat.fully_shard()(model, mesh=self.mesh)
        return model


def states(model: Any, optimiser: Any) -> dict[str, Any]:
    from torch.distributed.checkpoint.state_dict import get_state_dict

    of_model, of_optimiser = get_state_dict(model, optimiser)
    return {"model": of_model, "optimiser": of_optimiser}


def restored(model: Any, optimiser: Any, folder: str, **how: Any) -> None:
    """Load a checkpoint as https://docs.pytorch.org/tutorials/recipes/distributed_checkpoint_recipe.html does."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import set_state_dict

    held = states(model, optimiser)
    dcp.load(held, checkpoint_id=folder, **how)
    set_state_dict(model, optimiser, model_state_dict=held["model"], optim_state_dict=held["optimiser"])


def settings_of(optimiser: Any) -> str:
    """The rates and decays of each group, and the counts of steps."""
    groups = [
        f"{group['lr']:.3g} {group['weight_decay']:.3g} {len(group['params'])}" for group in optimiser.param_groups
    ]
    counts = {float(state["step"]) for state in optimiser.state.values() if "step" in state}
    return f"{'; '.join(groups)}; steps {sorted(counts)}"


@call(GROUP, phase=Phase.RESUME, ranks=4, requires=jobs.FSDP2)
def dcp_other_number_of_ranks(ctx: Context) -> Iterator[Check]:
    """Weights, moments and settings that 1, 2 or 4 ranks saved under FSDP2 are the same where 1, 2 or 4 load them.

    Neither number divides the rows of the layers; one of them has a single row.
    """
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp

    crews = {size: Crew(ctx, size) for size in WORLDS}
    plain = network()
    reference = with_state(plain)
    for size, crew in crews.items():
        if crew.member:
            model = crew.wrap(network())
            dcp.save(states(model, with_state(model)), checkpoint_id=str(ctx.kept / f"of-{size}"), **crew.how)
    dist.barrier()
    for saved, loading in permutations(WORLDS, 2):
        crew = crews[loading]
        if not crew.member:
            continue
        model = crew.wrap(emptied(network()))
        optimiser = adam(model, LOADED_RATE)
        restored(model, optimiser, str(ctx.kept / f"of-{saved}"), **crew.how)
        found = states(model, optimiser)
        kind = f"saved by {saved}, loaded by {loading}"
        yield networks.off(f"weights off, {kind}", networks.weights(model), networks.weights(plain))
        expected = plain_moments(plain, reference)
        yield networks.off(f"moments off, {kind}", moments(found["optimiser"]), expected, MOMENTS)
        yield equal(f"settings, {kind}", settings_of(optimiser), settings_of(reference))
    dist.barrier()


@call(GROUP, phase=Phase.RESUME, ranks=2, requires=(*jobs.FSDP2, "broadcast"))
def dcp_whole_state_from_rank_0_fsdp2(ctx: Context) -> Iterator[Check]:
    """With broadcast_from_rank0, the state that rank 0 alone has restores weights, moments and settings of FSDP2.

    A state that each rank has whole restores the same, and training goes on as in one process.
    """
    for kind in ("FSDP2", "FSDP2 in one unit"):
        yield from whole_given(ctx, kind, broadcast=True)
        yield from whole_given(ctx, kind, broadcast=False)


@call(GROUP, phase=Phase.RESUME, ranks=2, requires=("broadcast",))
def dcp_whole_state_from_rank_0_ddp(ctx: Context) -> Iterator[Check]:
    """With broadcast_from_rank0, the state that rank 0 alone has restores weights, moments and settings of DDP."""
    yield from whole_given(ctx, "DDP", broadcast=True)
    yield from whole_given(ctx, "DDP", broadcast=False)


def whole_given(ctx: Context, kind: str, *, broadcast: bool) -> Iterator[Check]:
    """Load the whole state of a trained plain model into a wrapped one that has other weights and settings."""
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions,
        set_model_state_dict,
        set_optimizer_state_dict,
    )

    plain, title = network(), f"{kind}, broadcast={broadcast}"
    reference = with_state(plain)
    is_given = ctx.place.rank == 0 or not broadcast
    of_model, of_optimiser = copy.deepcopy(whole(plain, reference)) if is_given else ({}, {})
    model = of_kinds(ctx)[kind](emptied(network()))
    optimiser = adam(model, LOADED_RATE)
    chosen = StateDictOptions(full_state_dict=True, broadcast_from_rank0=broadcast)
    set_model_state_dict(model, of_model, options=chosen)
    set_optimizer_state_dict(model, optimiser, of_optimiser, options=chosen)
    found = states(model, optimiser)
    yield networks.off(f"weights off, {title}", networks.weights(model), networks.weights(plain), 0.0)
    wanted = plain_moments(plain, reference)
    yield networks.off(f"moments off, {title}", moments(found["optimiser"]), wanted, 0.0)
    yield equal(f"settings, {title}", settings_of(optimiser), settings_of(reference))
    for each, rows in ((plain, None), (model, ctx)):
        networks.train(each, reference if each is plain else optimiser, range(2, 4), rows)
    yield networks.off(
        f"weights off after training, {title}", networks.weights(model), networks.weights(plain), MOMENTS
    )


def of_kinds(ctx: Context) -> dict[str, Wrap]:
    from cases.behaviour.parallel.replicating import replicated

    return {
        "plain": lambda model: model,
        "FSDP1": lambda model: sharded_networks.fsdp1(model, ctx, use_orig_params=True),
        "FSDP2": lambda model: sharded_networks.fsdp2(model, ctx),
        "FSDP1, flat": lambda model: sharded_networks.fsdp1(model, ctx, use_orig_params=False),
        "DDP": replicated,
        "FSDP2 in one unit": lambda model: sharded_networks.fsdp2(model, ctx, ()),
    }


@call(GROUP, phase=Phase.RESUME, ranks=2, requires=(*jobs.FSDP2, *OWN_NAMES))
def dcp_other_strategy(ctx: Context) -> Iterator[Check]:
    """A checkpoint of a plain, DDP, FSDP1 or FSDP2 model loads into others: names and values are the same.

    The state dicts have "canonical FQNs" whatever wraps the model; here each rank has rows of every parameter.
    """
    yield from exchanged(ctx, of_kinds(ctx), ROWS_FOR_ALL)


@call(GROUP, phase=Phase.RESUME, ranks=2, requires=OWN_NAMES)
def dcp_fsdp1_rank_without_rows(ctx: Context) -> Iterator[Check]:
    """A sharded checkpoint of FSDP1 loads if a rank holds nothing of a parameter, as of one with a single row.

    DefaultLoadPlanner of torch 2.5 to 2.15 takes a tensor that a rank lacks for a sign of a checkpoint by torch 2.3.
    """
    yield from exchanged(ctx, {"FSDP1": of_kinds(ctx)["FSDP1"]}, networks.WIDTHS)


def exchanged(ctx: Context, kinds: dict[str, Wrap], widths: Sequence[int]) -> Iterator[Check]:
    """Save trained models of each kind, and load each checkpoint into models of its own kind and of the next."""
    import torch
    import torch.distributed.checkpoint as dcp

    plain = network(widths)
    reference = trained_by(plain)
    for name, wrap in kinds.items():
        model = wrap(network(widths))
        optimiser = trained_by(model, None if name == "plain" else ctx)
        dcp.save(states(model, optimiser), checkpoint_id=str(ctx.kept / name))
    names = list(kinds)
    for saved, loading in zip(names * 2, names[1:] + names + names[:1], strict=True):
        model = kinds[loading](emptied(network(widths)))
        optimiser = torch.optim.AdamW(model.parameters(), lr=LOADED_RATE)
        restored(model, optimiser, str(ctx.kept / saved))
        of_model, of_optimiser = whole(model, optimiser)
        kind = f"{saved} into {loading}"
        yield networks.off(f"weights off, {kind}", plain_names(of_model), networks.weights(plain))
        yield networks.off(f"moments off, {kind}", moments(of_optimiser), plain_moments(plain, reference), MOMENTS)
        yield equal(f"rate, {kind}", optimiser.param_groups[0]["lr"], RATE)


def trained_by(model: Any, ctx: Context | None = None) -> Any:
    """AdamW after two steps of the model."""
    import torch

    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE, eps=1e-3)
    networks.train(model, optimiser, range(2), ctx)
    return optimiser


def whole(model: Any, optimiser: Any) -> Any:
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict

    return get_state_dict(model, optimiser, options=StateDictOptions(full_state_dict=True))


@call(GROUP, phase=Phase.SAVE, requires=("dcp_overwrite",))
def dcp_overwrite(ctx: Context) -> Iterator[Check]:
    """With overwrite=False, a writer stores a first checkpoint and refuses a second; save returns what it stored.

    https://docs.pytorch.org/docs/stable/distributed.checkpoint.html#torch.distributed.checkpoint.FileSystemWriter
    """
    import torch.distributed.checkpoint as dcp

    first, second = networks.weights(network()), {n: 2 * t for n, t in networks.weights(network()).items()}
    for kept in (True, False):
        folder = ctx.kept / f"kept-{kept}"
        stored = dcp.save(first, storage_writer=dcp.FileSystemWriter(folder, overwrite=not kept))
        names = "+".join(sorted(stored.state_dict_metadata)) if stored else "nothing"
        yield equal(f"names that save returns, overwrite={not kept}", names, "+".join(sorted(first)))
        try:
            dcp.save(second, storage_writer=dcp.FileSystemWriter(folder, overwrite=not kept))
        except (dcp.api.CheckpointException, RuntimeError):
            raised = True
        else:
            raised = False
        yield equal(f"a second save raises, overwrite={not kept}", raised, bound=kept)
        found = {name: each.clone().zero_() for name, each in first.items()}
        dcp.load(found, checkpoint_id=str(folder))
        yield networks.off(f"weights loaded off, overwrite={not kept}", found, first if kept else second, 0.0)


@call(GROUP, phase=Phase.SAVE, ranks=2, requires=("dcp_without_collectives",))
def dcp_without_collectives(ctx: Context) -> Iterator[Check]:
    """With use_collectives=False, each rank stores its own tensors with its own metadata, and loads them again."""
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp

    rank, folder = ctx.place.rank, ctx.kept / "alone"
    expected = {name: (1 + rank) * each for name, each in networks.weights(network()).items()}
    dcp.save(expected, checkpoint_id=str(folder), use_collectives=False)
    dist.barrier()
    files = sorted(each.name for each in folder.glob("*.metadata"))
    yield equal("metadata files", "+".join(files), "__0.metadata+__1.metadata")
    found = {name: each.clone().zero_() for name, each in expected.items()}
    dcp.load(found, checkpoint_id=str(folder))
    yield networks.off("weights loaded off, of this rank", found, expected, 0.0)
