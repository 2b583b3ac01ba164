"""DDP among some ranks, and FSDP1's dtypes outside of passes, scalers and names of state dicts.

https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
https://docs.pytorch.org/docs/stable/fsdp.html
"""

from __future__ import annotations

import copy
import functools
from itertools import product
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.distributed.replicated_edges import tied
from cases.behaviour.optimising.old_states import refusal
from cases.behaviour.parallel import networks, sharded_networks
from cases.behaviour.parallel.networks import loss, network
from cases.behaviour.parallel.replicating import GROUP, SMALL_BUCKETS, momentum, replicated
from cases.behaviour.parallel.uneven_shards import OWN_NAMES
from cases.space.verdict import Check, Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cases.apply.context import Context

STATE = "State of parallel models"
GROUPS = 50  # made and destroyed one after another


@call(GROUP, phase=Phase.BACKWARD, ranks=2)
def ddp_groups_of_ranks(ctx: Context) -> Iterator[Check]:
    """DDP averages over the ranks of its process_group or its device_mesh alone, and has them as its attributes."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    world = ctx.place.world_size
    alone = [dist.new_group([rank]) for rank in range(world)][ctx.place.rank]
    mesh = init_device_mesh(ctx.place.kind, (world,))
    ways: Mapping[str, tuple[dict[str, Any], Any, int]] = {
        "the default group": ({}, dist.group.WORLD, world),
        "a group of one rank": ({"process_group": alone}, alone, 1),
        "a mesh": ({"device_mesh": mesh}, mesh.get_group(), world),
    }
    for title, (more, group, ranks) in ways.items():
        for buckets in ({}, SMALL_BUCKETS):
            model = replicated(network(), **more, **buckets)
            for step in range(2):
                model.zero_grad()
                loss(model, step, ctx).backward()
                plain = network()
                loss(plain, step, ctx if ranks == 1 else None).backward()
                yield networks.off(f"gradients off, {title}", networks.gradients(model), networks.gradients(plain))
            yield equal(f"group, {title}", model.process_group is group, bound=True)
            yield equal(f"ranks, {title}", dist.get_world_size(model.process_group), ranks)


@call("torch.distributed: process groups", phase=Phase.WRAP, ranks=2)
def gloo_groups_destroyed(ctx: Context) -> Iterator[Check]:
    """destroy_process_group ends Gloo groups whose last collective has just ended, fifty times.

    https://github.com/pytorch/pytorch/issues/56297.
    """
    import torch
    import torch.distributed as dist

    gathered = 0
    for _ in range(GROUPS):
        group = dist.new_group(backend="gloo")
        parts = [torch.empty(1) for _ in range(ctx.place.world_size)]
        dist.all_gather(parts, torch.ones(1), group=group)
        gathered += int(sum(parts))
        del parts  # the group's thread frees the tensors
        dist.destroy_process_group(group)
        del group
        ctx.reporter.beat()
    yield equal("gathered", gathered, GROUPS * ctx.place.world_size)


@call(GROUP, phase=Phase.WRAP, ranks=2)
def ddp_refuses_arguments(ctx: Context) -> Iterator[Check]:
    """DDP refuses frozen models, two groups at once, meshes of two dimensions and dim 0, and keeps its arguments."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.nn.parallel import DistributedDataParallel

    world = ctx.place.world_size
    mesh = init_device_mesh(ctx.place.kind, (world,))
    square = init_device_mesh(ctx.place.kind, (world, 1))
    frozen = network().requires_grad_(False)  # noqa: FBT003 - torch's own argument
    attempts: Mapping[str, tuple[Any, dict[str, Any], str]] = {
        "frozen parameters": (frozen, {}, "DistributedDataParallel is not needed when a module doesn't have any"),
        "a group and a mesh": (
            network(),
            {"process_group": dist.group.WORLD, "device_mesh": mesh},
            "Cannot specify both process_group and device_mesh arguments.",
        ),
        "a mesh of two dimensions": (network(), {"device_mesh": square}, "Only 1D device mesh is supported"),
    }
    for title, (model, more, words) in attempts.items():
        action = functools.partial(DistributedDataParallel, model, **more)
        yield equal(title, refusal(action, words, RuntimeError), words)
    chosen: dict[str, Any] = {
        "broadcast_buffers": False,
        "find_unused_parameters": True,
        "gradient_as_bucket_view": True,
        "static_graph": True,
    }
    plain, model = replicated(network()), replicated(network(), **chosen)
    for name, value in chosen.items():
        yield equal(f"{name} by default", getattr(plain, name), name == "broadcast_buffers")
        yield equal(name, getattr(model, name), value)
    yield equal("dim", plain.dim, 0)
    yield equal("gradients are reduced", plain.require_backward_grad_sync, bound=True)
    with plain.no_sync():
        yield equal("gradients are reduced in no_sync", plain.require_backward_grad_sync, bound=False)
    yield equal("gradients are reduced afterwards", plain.require_backward_grad_sync, bound=True)
    yield equal("training", f"{plain.train().module.training} {plain.eval().module.training}", "True False")
    yield equal("dtypes", dtypes(plain.parameters()), "torch.float32")


@call("FSDP's mixed precision", phase=Phase.FORWARD, ranks=2, requires=("fsdp1", "fsdp1_mixed"))
def fsdp1_dtypes_outside_of_passes(ctx: Context) -> Iterator[Check]:
    """With mixed precision, FSDP1's weights are whole and float32 when summoned or saved; passes cast them.

    Gradients are float32, or stay in the reduced dtype with keep_low_precision_grads. Evaluation casts like training.
    """
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision

    half = torch.bfloat16
    expected = networks.weights(network())
    for own_names, keep in product((False, True), repeat=2):
        title = f"use_orig_params={own_names}, keep_low_precision_grads={keep}"
        policy = MixedPrecision(
            param_dtype=half,
            reduce_dtype=half if keep else torch.float32,
            buffer_dtype=half,
            keep_low_precision_grads=keep,
        )
        model = sharded_networks.fsdp1(network(), ctx, mixed_precision=policy, use_orig_params=own_names)
        for moment in ("at first", "after a pass", "after an evaluation"):
            if moment == "after a pass":
                loss(model, 0, ctx).backward()
            elif moment == "after an evaluation":
                outputs = model.eval()(networks.share(networks.data(1)[0], ctx))
                yield equal(f"dtype of outputs, {title}", str(outputs.dtype), str(half))
            with FullyShardedDataParallel.summon_full_params(model):
                yield networks.off(f"summoned off, {title}, {moment}", networks.weights(model), expected, 0.0)
                yield equal(f"summoned dtypes, {title}, {moment}", dtypes(model.parameters()), "torch.float32")
            state = {name: value.clone() for name, value in model.state_dict().items()}
            yield networks.off(f"state off, {title}, {moment}", state, expected, 0.0)
            yield equal(f"dtypes of the state, {title}, {moment}", dtypes(state.values()), "torch.float32")
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        yield equal(f"dtypes of gradients, {title}", dtypes(gradients), str(half if keep else torch.float32))


def dtypes(tensors: Iterable[Any]) -> str:
    return " ".join(sorted({str(each.dtype) for each in tensors}))


@call("FSDP's mixed precision", phase=Phase.OPTIMIZER, ranks=2, requires=("fsdp1",))
def sharded_scaler_by_unit(ctx: Context) -> Iterator[Check]:
    """ShardedGradScaler divides the gradients of one or of several units, and all ranks skip what overflowed on one.

    Its scale grows after growth_interval steps without an overflow, and is cut by backoff_factor after one.
    """
    import torch
    from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

    for title, units in {"one unit": (), "several units": sharded_networks.UNITS}.items():
        model = sharded_networks.fsdp1(network(), ctx, units=units, use_orig_params=False)
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = ShardedGradScaler(
            ctx.place.kind, init_scale=2.0**8, growth_factor=4.0, backoff_factor=0.25, growth_interval=2
        )
        plain = network()
        alone = torch.optim.SGD(plain.parameters(), lr=0.1)
        scales, steps = [], [False, False, True, False, False]
        for step, overflows in enumerate(steps):
            optimiser.zero_grad()
            scaler.scale(loss(model, step, ctx)).backward()
            if overflows:
                if ctx.place.rank == 0:
                    next(p for p in model.parameters() if p.grad is not None).grad.view(-1)[0] = float("inf")
            else:
                networks.train(plain, alone, [step])
            scaler.unscale_(optimiser)
            words = "unscale_() has already been called on this optimizer since the last update()."
            again = refusal(functools.partial(scaler.unscale_, optimiser), words, RuntimeError)
            yield equal(f"unscaling twice, {title}", again, words)
            scaler.step(optimiser)
            scaler.update()
            scales.append(scaler.get_scale())
        yield equal(f"scales, {title}", str(scales), str([2.0**8, 2.0**10, 2.0**8, 2.0**8, 2.0**10]))
        with torch.distributed.fsdp.FullyShardedDataParallel.summon_full_params(model):
            yield networks.off(f"weights off, {title}", networks.weights(model), networks.weights(plain))
        state = scaler.state_dict()
        found = {name: state[name] for name in ("scale", "growth_factor", "backoff_factor", "growth_interval")}
        wanted = {"scale": 2.0**10, "growth_factor": 4.0, "backoff_factor": 0.25, "growth_interval": 2}
        yield equal(f"state, {title}", str(found), str(wanted))


def with_inner(model: Any) -> Any:
    """A model whose only child has the name that wrappers give theirs."""
    import torch

    class Outer(torch.nn.Module):  # type: ignore[misc]  # torch has no types here
        def __init__(self) -> None:
            super().__init__()
            self.module = model

        def forward(self, inputs: Any) -> Any:
            return self.module(inputs)

    return Outer()


@call(STATE, phase=Phase.SAVE, ranks=2, requires=OWN_NAMES)
def dcp_names_below_wrappers(ctx: Context) -> Iterator[Check]:
    """get_model_state_dict names weights as the plain model does: checkpointed, compiled, or below a child "module".

    set_model_state_dict takes the same names.
    """
    import torch
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict

    def checkpointed(model: Any) -> Any:
        model.first = checkpoint_wrapper(model.first)
        return model

    wraps: Mapping[str, Any] = {
        "alone": lambda model: model,
        "ddp": replicated,
        "fsdp1": lambda model: sharded_networks.fsdp1(model, ctx, units=(), use_orig_params=True),
    }
    kinds: Mapping[str, Any] = {
        "plain": lambda wrap: wrap(network()),
        "checkpointed": lambda wrap: wrap(checkpointed(network())),
        "compiled": lambda wrap: torch.compile(wrap(network()), backend="eager"),
        "below a module": lambda wrap: wrap(with_inner(network())),
    }
    whole = StateDictOptions(full_state_dict=True)
    for (kind, make), (title, wrap) in product(kinds.items(), wraps.items()):
        prefix = "module." if kind == "below a module" else ""
        expected = {f"{prefix}{name}": value for name, value in networks.weights(network()).items()}
        model = make(wrap)
        found = {name: networks.whole(each) for name, each in get_model_state_dict(model, options=whole).items()}
        yield networks.off(f"state off, {kind}, {title}", found, expected, 0.0)
        half = {name: each * 0.5 for name, each in expected.items()}
        keys = set_model_state_dict(model, {name: each.clone() for name, each in half.items()}, options=whole)
        yield equal(f"other names, {kind}, {title}", f"{keys.missing_keys} {keys.unexpected_keys}", "[] []")
        found = {name: networks.whole(each) for name, each in get_model_state_dict(model, options=whole).items()}
        yield networks.off(f"loaded off, {kind}, {title}", found, half, 0.0)


@call(STATE, phase=Phase.SAVE, ranks=2, requires=OWN_NAMES)
def dcp_names_compiled_in_fsdp1(ctx: Context) -> Iterator[Check]:
    """get_model_state_dict names the weights of a compiled model inside FSDP1 as the plain model does.

    torch 2.5 to 2.15 keeps the prefix of torch.compile: below FSDP1, it takes the compiled model for one with a child.
    """
    import torch
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    compiled = torch.compile(network(), backend="eager")
    model = sharded_networks.fsdp1(compiled, ctx, units=(), use_orig_params=True)
    found = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    wanted = " ".join(sorted(networks.weights(network())))
    yield equal("names, compiled in FSDP1", " ".join(sorted(found)), wanted)


@call(STATE, phase=Phase.RESUME, ranks=2)
def dcp_optimiser_of_tied_weights(ctx: Context) -> Iterator[Check]:
    """The state of an optimiser of a model with tied weights is saved by names and loads into another of the kind."""
    import torch
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict

    missing = KeyError if torch.__version__ < (2, 10) else RuntimeError  # 2.10 made an error with a message of it
    wraps: Mapping[str, Any] = {"plain": lambda model: model, "ddp": replicated}
    for title, wrap in wraps.items():
        rows = None if title == "plain" else ctx
        model = wrap(tied())
        optimiser = momentum(model)
        networks.train(model, optimiser, range(2), rows)
        state = copy.deepcopy(get_optimizer_state_dict(model, optimiser))
        again = wrap(tied())
        again.load_state_dict(model.state_dict())
        later = momentum(again)
        set_optimizer_state_dict(again, later, optim_state_dict=state)
        networks.train(model, optimiser, range(2, 4), rows)
        networks.train(again, later, range(2, 4), rows)
        yield networks.off(f"weights off, {title}", networks.weights(again), networks.weights(model), 0.0)
        buffers = sum("momentum_buffer" in each for each in later.state.values())
        yield equal(f"momenta, {title}", buffers, len([*model.parameters()]))
        lacking = copy.deepcopy(state)
        lacking["state"].pop("middle.bias", None)
        fresh = wrap(tied())
        action = functools.partial(set_optimizer_state_dict, fresh, momentum(fresh), optim_state_dict=lacking)
        yield equal(f"refused without a name, {title}", refusal(action, "middle.bias", missing), "middle.bias")
