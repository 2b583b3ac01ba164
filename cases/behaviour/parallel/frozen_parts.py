"""FSDP1 and FSDP2 with trained and frozen parameters in one unit, in each precision, with and without accumulation.

https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html, https://docs.pytorch.org/docs/stable/fsdp.html
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

from cases.api import call, jobs
from cases.apply import compat
from cases.behaviour.parallel import networks, sharded_networks
from cases.behaviour.parallel.flat_strategies import STRATEGIES, sharded
from cases.behaviour.parallel.networks import loss, network
from cases.behaviour.parallel.precision_of_units import explicit_fsdp1, mean_gradients
from cases.model import tiny
from cases.space.verdict import Phase, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "FSDP's documented behaviour"
FSDP1, FSDP2 = jobs.FSDP1, (*jobs.FSDP2, "fsdp2_mixed")
# Which parameters are frozen: a part of each unit, or all of some units.
FROZEN: Mapping[str, Callable[[str], bool]] = {
    "weights": lambda name: name.endswith("weight"),
    "biases": lambda name: name.endswith("bias"),
    "the first layers": lambda name: name.startswith(("first", "second")),
    "the last layers": lambda name: name.startswith(("third", "fourth")),
    "all but one": lambda name: name != "second.bias",
}


def freeze(model: Any, chosen: Callable[[str], bool]) -> Any:
    for name, parameter in model.named_parameters():
        parameter.requires_grad = not chosen(name)
    return model


def trained(gradients: Mapping[str, Any], chosen: Callable[[str], bool]) -> dict[str, Any]:
    return {name: each for name, each in gradients.items() if not chosen(name)}


@call(GROUP, phase=Phase.BACKWARD, ranks=2, requires=FSDP2)
def fsdp2_frozen_parts(ctx: Context) -> Iterator[Check]:
    """FSDP2 gives trained parameters beside frozen ones the gradients of one process, however it reshards."""
    expected = networks.expected_gradients(network(), [loss])
    for (name, chosen), reshard in product(FROZEN.items(), (True, False, ctx.place.world_size)):
        model = freeze(network(), chosen)
        for unit in networks.NAMES[:3]:
            compat.fully_shard()(
                model.get_submodule(unit), mesh=sharded_networks.mesh(ctx), reshard_after_forward=reshard
            )
        compat.fully_shard()(model, mesh=sharded_networks.mesh(ctx))
        for _ in range(2):
            model.zero_grad()
            loss(model, 0, ctx).backward()
        found = networks.gradients(model)
        yield networks.off(f"gradients off, {name} frozen, reshard={reshard}", found, trained(expected, chosen))


@call(GROUP, phase=Phase.BACKWARD, ranks=2, requires=FSDP2)
def fsdp2_frozen_parts_in_precisions(ctx: Context) -> Iterator[Check]:
    """Each pair of param_dtype and reduce_dtype casts and reduces trained parameters beside frozen ones as it says.

    Without reduce_dtype, torch 2.15 reduces in the dtype of the parameters, and earlier versions in param_dtype, each
    as the documentation of its ``MixedPrecisionPolicy`` says.
    """
    import torch

    half, single = torch.bfloat16, torch.float32
    policy = compat.fsdp2().MixedPrecisionPolicy
    for (name, chosen), (compute, reduce) in product(FROZEN.items(), product((None, half), (None, single, half))):
        model = freeze(network(), chosen)
        made = policy(param_dtype=compute, reduce_dtype=reduce)
        sharded_networks.fsdp2(model, ctx, mp_policy=made)
        loss(model, 0, ctx).backward()
        passes = compute or single
        unset = single if "grad_dtype" in (policy.__doc__ or "") else passes
        reductions = dict.fromkeys(networks.NAMES, (passes, reduce or unset))
        expected = trained(mean_gradients(ctx, explicit_fsdp1, network(), 0, reductions), chosen)
        short = f"{name} frozen, {dtype(compute)}, {dtype(reduce)}"
        yield networks.off(f"gradients off, {short}", networks.gradients(model), expected)
        kinds = {dtype(each.dtype) for p in model.parameters() for each in (p, p.grad) if each is not None}
        yield equal(f"dtypes of parameters and gradients, {short}", "+".join(sorted(kinds)), "fp32")


def dtype(kind: Any) -> str:
    return "none" if kind is None else compat.dtype_name(kind)


@call(GROUP, phase=Phase.BACKWARD, ranks=2, requires=FSDP2)
def fsdp2_accumulation_in_precisions(ctx: Context) -> Iterator[Check]:
    """Accumulated gradients of bfloat16 passes add up in reduce_dtype=float32, with and without synchronisation."""
    import torch

    half, single = torch.bfloat16, torch.float32
    steps = range(3)
    reductions = dict.fromkeys(networks.NAMES, (half, single))
    terms = [mean_gradients(ctx, explicit_fsdp1, network(), step, reductions) for step in steps]
    expected = {name: sum(term[name] for term in terms) for name in terms[0]}
    for (name, chosen), local in product(FROZEN.items(), (True, False)):
        model = freeze(network(), chosen)
        made = compat.fsdp2().MixedPrecisionPolicy(param_dtype=half, reduce_dtype=single)
        sharded_networks.fsdp2(model, ctx, mp_policy=made)
        for step in steps:
            model.set_requires_gradient_sync(not local or step == steps[-1])
            loss(model, step, ctx).backward()
        kind = "local" if local else "synchronised"
        found = networks.gradients(model)
        yield networks.off(f"gradients off, {name} frozen, {kind}", found, trained(expected, chosen))


@call(GROUP, phase=Phase.BACKWARD, ranks=2, requires=FSDP1)
def fsdp1_frozen_parts(ctx: Context) -> Iterator[Check]:
    """FSDP1 with use_orig_params gives trained parameters beside frozen ones the gradients of one process.

    With every strategy, for one forward pass and for two before one backward pass.
    """
    for (name, chosen), strategy, passes in product(FROZEN.items(), STRATEGIES, (1, 2)):
        model = sharded(ctx, strategy, use_orig_params=True)
        for full, parameter in tiny.named(model):
            parameter.requires_grad = not chosen(full)
        sum(loss(model, step, ctx) for step in range(passes)).backward()
        found = sharded_networks.fsdp1_gradients(model)
        expected = networks.expected_gradients(network(), networks.losses(range(passes)))
        short = f"{name} frozen, {strategy}, {passes} passes"
        yield networks.off(f"gradients off, {short}", trained(found, chosen), trained(expected, chosen))
        moved = {each for each in found if chosen(each) and bool(found[each].any())}
        yield equal(f"frozen parameters with a gradient, {short}", "+".join(sorted(moved)) or "none", "none")
