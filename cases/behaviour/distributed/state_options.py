"""The options of torch.distributed.checkpoint.state_dict: each must leave names and values of one process.

https://docs.pytorch.org/docs/stable/distributed.checkpoint.html#torch.distributed.checkpoint.state_dict.StateDictOptions
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from cases.api import call, jobs
from cases.behaviour.parallel import networks, sharded_networks
from cases.behaviour.parallel.networks import network
from cases.behaviour.parallel.replicating import replicated
from cases.behaviour.parallel.uneven_shards import GROUP, OWN_NAMES
from cases.model import tiny
from cases.space.verdict import Check, Phase, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cases.apply.context import Context

    Wrap = Callable[[Any], Any]

STEPS = range(2)
RATES = (0.05, 0.1)  # of weights, and of biases


def optimiser(model: Any, times: float = 1.0) -> Any:
    """SGD with momentum and two groups: its first step from zero momentum is that without."""
    import torch

    kinds = ("weight", "bias")
    groups = [
        {"params": [p for name, p in tiny.named(model) if name.endswith(kind)], "lr": rate * times}
        for kind, rate in zip(kinds, RATES, strict=True)
    ]
    return torch.optim.SGD(groups, momentum=0.9)


UNSHARDED: Mapping[str, Wrap] = {"plain": lambda model: model, "ddp": replicated}


def sharded(ctx: Context) -> Mapping[str, Wrap]:
    return {"fsdp2": lambda model: sharded_networks.fsdp2(model, ctx)}


def rows_of(title: str, ctx: Context) -> Context | None:
    """The rows of the rank for a wrapped model, which averages over the ranks; all rows for a plain one."""
    return None if title == "plain" else ctx


def plainly(state: Mapping[str, Any]) -> dict[str, Any]:
    return {name: networks.whole(each) for name, each in state.items()}


def buffers(state: Mapping[str, Any]) -> dict[str, Any]:
    """The momentum of each parameter, by name."""
    return {name: networks.whole(each["momentum_buffer"]) for name, each in state["state"].items()}


def reference(*steps: int) -> tuple[Any, dict[str, Any]]:
    """A plain network after some steps, and its momentum."""
    plain = network()
    made = optimiser(plain)
    networks.train(plain, made, steps)
    return plain, {n: made.state[p]["momentum_buffer"].clone() for n, p in plain.named_parameters() if made.state}


def wrong_settings(chosen: Any, state: Mapping[str, Any], times: float = 1.0) -> str:
    """The rates of groups that differ from those of the names in them, in an optimiser and in its state."""
    rates = {name: RATES[name.endswith("bias")] * times for group in state["param_groups"] for name in group["params"]}
    found = {name: group["lr"] for group in state["param_groups"] for name in group["params"]}
    of_groups = [group["lr"] for group in chosen.param_groups]
    same = found == rates and of_groups == [each * times for each in RATES]
    return "none" if same else f"{found} {of_groups}"


@call(GROUP, phase=Phase.SAVE, ranks=2)
def dcp_optimiser_state_before_training(ctx: Context) -> Iterator[Check]:
    """Asking for an optimiser's state before its first step changes nothing: no rate, weight, gradient or later step.

    A loading script does so to know which tensors it needs.
    """
    yield from before_training(ctx, UNSHARDED)


@call(GROUP, phase=Phase.SAVE, ranks=2, requires=jobs.FSDP2)
def dcp_optimiser_state_before_training_fsdp2(ctx: Context) -> Iterator[Check]:
    """As dcp_optimiser_state_before_training, under FSDP2: no rate, weight, gradient or later step changes."""
    yield from before_training(ctx, sharded(ctx))


def before_training(ctx: Context, ways: Mapping[str, Wrap]) -> Iterator[Check]:
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

    plain, _ = reference(*STEPS)
    for title, wrap in ways.items():
        model = wrap(network())
        made = optimiser(model)
        before = networks.weights(model)
        for number in range(2):
            state = get_optimizer_state_dict(model, made)
            yield equal(f"rates lost, {title}, time {number}", wrong_settings(made, state), "none")
            still = {name: 0 * each for name, each in before.items()}
            yield networks.off(f"momentum off, {title}, time {number}", buffers(state), still, 0.0)
        yield networks.off(f"weights changed, {title}", networks.weights(model), before, 0.0)
        yield equal(f"gradients, {title}", len(networks.gradients(model)), 0)
        networks.train(model, made, STEPS, rows_of(title, ctx))
        yield networks.off(f"weights off after training, {title}", networks.weights(model), networks.weights(plain))


@call(GROUP, phase=Phase.RELOAD, ranks=2)
def dcp_state_of_one_model(ctx: Context) -> Iterator[Check]:
    """get_model_state_dict and set_model_state_dict use the plain names, and whole tensors, for every wrapper."""
    del ctx
    yield from of_one_model(UNSHARDED)


def of_one_model(ways: Mapping[str, Wrap]) -> Iterator[Check]:
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict

    expected = {name: each * 0.5 for name, each in networks.weights(network()).items()}
    whole = StateDictOptions(full_state_dict=True)
    for title, wrap in ways.items():
        model = wrap(network())
        found = plainly(get_model_state_dict(model))
        yield networks.off(f"state off, {title}", found, networks.weights(network()), 0.0)
        set_model_state_dict(model, {name: each.clone() for name, each in expected.items()}, options=whole)
        yield networks.off(f"weights loaded off, {title}", networks.weights(model), expected, 0.0)


@call(GROUP, phase=Phase.SAVE, ranks=2, requires=(*jobs.FSDP2, *OWN_NAMES))
def dcp_state_on_rank_0(ctx: Context) -> Iterator[Check]:
    """With full_state_dict and cpu_offload, rank 0 alone has the whole state; without full_state_dict, each its shards.

    "only the rank0 will get the state_dict and all other ranks will get empty state_dict"
    """
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict

    plain, momenta = reference(*STEPS)
    wrappers: dict[str, Wrap] = {
        "ddp": replicated,
        "fsdp1": lambda model: sharded_networks.fsdp1(model, ctx, use_orig_params=True),
        **sharded(ctx),
    }
    for title, wrap in wrappers.items():
        model = wrap(network())
        made = optimiser(model)
        networks.train(model, made, STEPS, rows_of(title, ctx))
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        weights, state = deepcopy(get_state_dict(model, made, options=options))
        if ctx.place.rank == 0:
            yield networks.off(f"weights off, {title}", plainly(weights), networks.weights(plain))
            yield networks.off(f"momentum off, {title}", buffers(state), momenta)
            yield equal(f"rates lost, {title}", wrong_settings(made, state), "none")
            devices = {str(each.device) for each in weights.values()}
            yield equal(f"devices, {title}", str(devices), "{'cpu'}")
        else:
            yield equal(f"names on another rank, {title}", str((weights, state)), "({}, {})")
        if title == "fsdp2":
            shards, _ = get_state_dict(model, made, options=StateDictOptions(cpu_offload=True))
            kinds = {hasattr(each, "to_local") for each in shards.values()}
            yield equal("shards of all ranks", str(kinds), "{True}")
