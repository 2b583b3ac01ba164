"""FSDP1 where its flat parameters are odd: units without any, every split, ignored parts, gradients of some cleared.

https://docs.pytorch.org/docs/stable/fsdp.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call, jobs, sharding
from cases.behaviour.parallel import networks, sharded_networks
from cases.behaviour.parallel.flat_state import copied, kind_of_state, whole_weights
from cases.behaviour.parallel.flat_strategies import sharded
from cases.behaviour.parallel.networks import loss, network
from cases.behaviour.parallel.sharded_parts import GROUP, with_local
from cases.model import tiny
from cases.reference import tolerance
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

RATE = 0.1
OF_NUMBERS = 10 * networks.SAME  # tensors of one to four numbers, whose roundings do not cancel
STEPS = range(3)
# The second rank begins within a parameter, at its first or last number, or with a parameter of one number.
SPLITS = ((1, 1, 1), (2, 1, 3), (4, 3, 1), (3, 1, 2), (1, 2, 1), (4, 1, 3), (1, 3, 3))


def wrapped_in_all_layers(ctx: Context, *, own_names: bool) -> Any:
    """Every layer is a unit, so that the root has no parameters of its own."""
    return sharded_networks.fsdp1(network(), ctx, networks.NAMES, use_orig_params=own_names)


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2, requires=jobs.FSDP1)
def fsdp1_root_without_parameters(ctx: Context) -> Iterator[Check]:
    """A root whose layers are all units trains, is summoned, clipped, saved and loaded as any other model."""
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel

    plain = network()
    networks.train(plain, torch.optim.SGD(plain.parameters(), lr=RATE), STEPS)
    expected = networks.weights(plain)
    for own_names in (True, False):
        title = f"use_orig_params={own_names}"
        model = wrapped_in_all_layers(ctx, own_names=own_names)
        optimiser = torch.optim.SGD(model.parameters(), lr=RATE)
        for step in STEPS:
            optimiser.zero_grad()
            loss(model, step, ctx).backward()
            norm = model.clip_grad_norm_(1e6)
            wanted = networks.expected_gradients(network(), [loss]) if step == 0 else None
            if wanted is not None:
                length = sum(float(each.double().square().sum()) for each in wanted.values()) ** 0.5
                yield at_most(f"norm off, {title}", abs(float(norm) / length - 1), networks.SAME)
            optimiser.step()
        yield networks.off(f"weights off, {title}", whole_weights(model), expected)
        with FullyShardedDataParallel.summon_full_params(model), torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(2)
        kind = "full" if own_names else "sharded"
        other = wrapped_in_all_layers(ctx, own_names=own_names)
        with kind_of_state(model, kind):
            held = copied(model.state_dict())
        with kind_of_state(other, kind):
            other.load_state_dict(held)
        doubled = {name: 2 * each for name, each in expected.items()}
        yield networks.off(f"weights loaded off, {kind}, {title}", whole_weights(other), doubled)
        units = FullyShardedDataParallel.fsdp_modules(model)
        roots = len(FullyShardedDataParallel.fsdp_modules(model, root_only=True))
        yield equal(f"units and roots, {title}", str((len(units), roots)), str((1 + len(networks.NAMES), 1)))


def of_sizes(*sizes: int) -> Any:
    """Parameters of these sizes, each of which bends the output in its own way."""
    import torch

    class Sizes(torch.nn.Module):  # type: ignore[misc]  # torch has no types here
        def __init__(self) -> None:
            super().__init__()
            for number, size in enumerate(sizes):
                self.register_parameter(f"part{number}", torch.nn.Parameter(torch.empty(size)))

        def forward(self, inputs: Any) -> Any:
            parts = [getattr(self, f"part{number}") for number in range(len(sizes))]
            terms = [(each * torch.arange(1, len(each) + 1)).sum() for each in parts]
            return (inputs[:, : len(sizes)] * torch.stack(terms)).tanh().sum(1, keepdim=True)

    return networks.filled(Sizes())


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2, requires=jobs.FSDP1)
def fsdp1_every_split(ctx: Context) -> Iterator[Check]:
    """Wherever the ranks split a flat parameter, also at or before a parameter's last number, all numbers train.

    Three parameters of one to four numbers each; SGD keeps a momentum of each number.
    """
    import torch

    for own_names in (True, False):
        worst, where = 0.0, "none"
        for sizes in SPLITS:
            plain, model = of_sizes(*sizes), sharding.fsdp1(of_sizes(*sizes), ctx, use_orig_params=own_names)
            for each, context in ((plain, None), (model, ctx)):
                networks.train(each, torch.optim.SGD(each.parameters(), lr=0.05, momentum=0.9), STEPS, context)
            off = tolerance.worst_tensor(whole_weights(model), networks.weights(plain))
            if not off <= worst:
                worst, where = off, str(sizes)
        yield at_most(f"weights off, use_orig_params={own_names}", worst, OF_NUMBERS)
        if worst > OF_NUMBERS:
            yield equal(f"sizes that train wrongly, use_orig_params={own_names}", where, "none")


@call(GROUP, phase=Phase.WRAP, ranks=2, requires=jobs.FSDP1)
def fsdp1_ignored_states(ctx: Context) -> Iterator[Check]:
    """ignored_states of FSDP1 takes modules or parameters, one or several, and leaves them whole.

    Their gradients are those of the rank; all others are sharded and averaged.
    """
    chosen = {
        "one module": ["second"],
        "two modules": ["second", "fourth"],
        "one parameter": ["second.weight"],
        "three parameters": ["first.bias", "second.weight", "fourth.bias"],
    }
    for title, given in chosen.items():
        for own_names in (True, False) if title == "two modules" else (True,):
            model = network()
            held = dict(model.named_parameters())
            named = {name for name in held if any(name == each or name.startswith(f"{each}.") for each in given)}
            states = [model.get_submodule(each) if each in networks.NAMES else held[each] for each in given]
            wrapped = sharding.fsdp1(model, ctx, ignored_states=states, use_orig_params=own_names)
            loss(wrapped, 0, ctx).backward()
            whole = {name: held[name] for name in named}
            kind = f"{title}, use_orig_params={own_names}"
            kept = {name for name, each in wrapped.named_parameters() if tiny.canonical(name) in named}
            yield equal(f"ignored parameters, {kind}", len(kept), len(named))
            same = all(each.shape == networks.weights(network())[name].shape for name, each in whole.items())
            yield equal(f"their shapes stay, {kind}", same, bound=True)
            found = {**sharded_networks.fsdp1_gradients(wrapped), **{n: p.grad.clone() for n, p in whole.items()}}
            yield networks.off(f"gradients off, {kind}", found, with_local(ctx, named))


@call(GROUP, phase=Phase.BACKWARD, ranks=2, requires=jobs.FSDP1)
def fsdp1_gradients_of_some_cleared(ctx: Context) -> Iterator[Check]:
    """With use_orig_params, an optimiser of some parameters clears their gradients alone; others go on adding up.

    As two optimisers do that step in turn. If none clears them, all add up.
    """
    import torch

    parts = (("bias",), ("weight",), ("first.weight", "fourth.bias"), ("second.bias", "third.weight"))
    for chosen in (*parts, ("bias", "weight"), ()):
        model = sharding.fsdp1(network(), ctx, use_orig_params=True)
        mine = [p for name, p in model.named_parameters() if name.endswith(chosen)]
        optimiser = torch.optim.SGD(mine or [torch.nn.Parameter(torch.zeros(1))], lr=0.0)
        for step in STEPS:
            optimiser.zero_grad()
            loss(model, step, ctx).backward()
            optimiser.step()
        summed = networks.expected_gradients(network(), networks.losses(STEPS))
        last = networks.expected_gradients(network(), networks.losses(STEPS[-1:]))
        wanted = {name: (last if name.endswith(chosen) else summed)[name] for name in summed}
        found = sharded_networks.fsdp1_gradients(model)
        yield networks.off(f"gradients off, cleared: {' '.join(chosen)}", found, wanted)


@call(GROUP, phase=Phase.BACKWARD, ranks=2, requires=jobs.FSDP1)
def fsdp1_clips_mixed_strategies(ctx: Context) -> Iterator[Check]:
    """clip_grad_norm_ of FSDP1 counts each gradient once, in units that are sharded and in others that are not.

    https://docs.pytorch.org/docs/stable/fsdp.html#torch.distributed.fsdp.FullyShardedDataParallel.clip_grad_norm_
    """
    from torch.distributed.fsdp import ShardingStrategy

    expected = networks.expected_gradients(network(), [loss])
    for root, inner in (("NO_SHARD", "FULL_SHARD"), ("FULL_SHARD", "NO_SHARD"), ("NO_SHARD", "NO_SHARD")):
        for norm, own_names in ((2.0, True), (1.0, False), (float("inf"), True)):
            model = network()
            for name in sharded_networks.UNITS:
                unit = sharding.fsdp1(
                    getattr(model, name),
                    ctx,
                    sharding_strategy=ShardingStrategy[inner],
                    use_orig_params=own_names,
                )
                setattr(model, name, unit)
            wrapped = sharding.fsdp1(model, ctx, sharding_strategy=ShardingStrategy[root], use_orig_params=own_names)
            loss(wrapped, 0, ctx).backward()
            found = float(wrapped.clip_grad_norm_(0.01, norm_type=norm))
            sizes = [each.double().abs() for each in expected.values()]
            if norm == float("inf"):
                wanted = max(float(each.max()) for each in sizes)
            else:
                wanted = sum(float(each.pow(norm).sum()) for each in sizes) ** (1 / norm)
            title = f"{inner} in {root}, norm {norm:g}, use_orig_params={own_names}"
            yield at_most(f"norm off, {title}", abs(found / wanted - 1), networks.SAME)
            if (root, inner) != ("NO_SHARD", "NO_SHARD"):
                continue
            clipped = {name: each * min(1.0, 0.01 / (wanted + 1e-6)) for name, each in expected.items()}
            yield networks.off(f"clipped gradients off, {title}", sharded_networks.fsdp1_gradients(wrapped), clipped)


@call(GROUP, phase=Phase.BACKWARD, ranks=2, requires=jobs.FSDP1)
def fsdp1_debug_level(ctx: Context) -> Iterator[Check]:
    """TORCH_DISTRIBUTED_DEBUG=INFO, which torch recommends to find faults, changes no gradient of FSDP1.

    https://docs.pytorch.org/docs/stable/distributed.html#torch-distributed-debug
    """
    import torch.distributed as dist

    level = dist.get_debug_level()
    dist.set_debug_level(dist.DebugLevel.INFO)
    try:
        expected = networks.expected_gradients(network(), [loss])
        for own_names in (True, False):
            model = sharded(ctx, "FULL_SHARD", use_orig_params=own_names)
            loss(model, 0, ctx).backward()
            found = sharded_networks.fsdp1_gradients(model)
            yield networks.off(f"gradients off, use_orig_params={own_names}", found, expected)
    finally:
        dist.set_debug_level(level)


@call(GROUP, phase=Phase.SAVE, ranks=2, requires=jobs.FSDP1)
def fsdp1_kinds_of_state_come_back(ctx: Context) -> Iterator[Check]:
    """After a state_dict_type context, what set_state_dict_type chose is back: the type and all settings, nested too.

    https://docs.pytorch.org/docs/stable/fsdp.html#torch.distributed.fsdp.FullyShardedDataParallel.set_state_dict_type
    """
    import warnings

    from torch.distributed import fsdp

    Wrapped = fsdp.FullyShardedDataParallel  # noqa: N806 - a class
    chosen = (
        fsdp.FullStateDictConfig(rank0_only=True, offload_to_cpu=True),
        fsdp.FullOptimStateDictConfig(rank0_only=True, offload_to_cpu=True),
    )
    model = sharded_networks.fsdp1(network(), ctx, use_orig_params=True)

    def settings() -> str:
        found = Wrapped.get_state_dict_type(model)
        return str((found.state_dict_type.name, found.state_dict_config, found.optim_state_dict_config))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the API will go
        Wrapped.set_state_dict_type(model, fsdp.StateDictType.FULL_STATE_DICT, *chosen)
        wanted = str(("FULL_STATE_DICT", *chosen))
        yield equal("settings", settings(), wanted)
        with Wrapped.state_dict_type(model, fsdp.StateDictType.SHARDED_STATE_DICT):
            sharded_ones = settings()
            with Wrapped.state_dict_type(model, fsdp.StateDictType.FULL_STATE_DICT):
                yield equal("settings of the inner context", settings().split(",")[0], "('FULL_STATE_DICT'")
            yield equal("settings of the outer context", settings(), sharded_ones)
        yield equal("settings afterwards", settings(), wanted)
