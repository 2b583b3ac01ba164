"""FSDP1 around layers that other wrappers, precisions and scalers treat apart: names, values and gradients stay.

https://docs.pytorch.org/docs/stable/fsdp.html
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from cases.api import call, jobs, sharding
from cases.apply import compat
from cases.behaviour.parallel import networks, sharded_networks
from cases.behaviour.parallel.flat_state import OWN_NAMES, adam, changed, kind_of_state, together, whole_weights
from cases.behaviour.parallel.networks import loss, network
from cases.behaviour.parallel.sharded_parts import GROUP
from cases.space.verdict import Check, Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

RECOMPUTED = ("first", "second")  # a unit of its own, and a layer of the root
SCALE = 1024.0
ODD = (7, 12, 5, 3, 1)  # widths: the second layer has 65 weights and biases


@call(GROUP, phase=Phase.SAVE, ranks=2, requires=jobs.FSDP1)
def fsdp1_state_of_recomputed_layers(ctx: Context) -> Iterator[Check]:
    """State dicts of FSDP1 name weights of recomputed layers as the plain model does, and load."""
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    def made(*, own_names: bool) -> Any:
        model = network()
        for name in RECOMPUTED:
            setattr(model, name, checkpoint_wrapper(getattr(model, name)))
        return sharded_networks.fsdp1(model, ctx, use_orig_params=own_names)

    expected = networks.weights(network())
    for kind in ("full", "sharded"):
        for own_names in (True, False):
            model, title = made(own_names=own_names), f"{kind}, use_orig_params={own_names}"
            with kind_of_state(model, kind):
                held = model.state_dict()
                whole = {name: together(each) if kind == "sharded" else each.clone() for name, each in held.items()}
            yield networks.off(f"state off, {title}", whole, expected, 0.0)
            other = changed(made(own_names=own_names))
            with kind_of_state(other, kind):
                other.load_state_dict(whole if kind == "full" else held)
            found = {plain(name): each for name, each in whole_weights(other).items()}
            yield networks.off(f"weights loaded off, {title}", found, expected, 0.0)


def plain(name: str) -> str:
    return name.replace("_checkpoint_wrapped_module.", "")


@call(GROUP, phase=Phase.FORWARD, ranks=2, requires=("fsdp1", "fsdp1_mixed"))
def fsdp1_batch_norm_in_full_precision(ctx: Context) -> Iterator[Check]:
    """With a policy of mixed precision, FSDP1 computes batch norms in float32, and returns what the others compute in.

    https://docs.pytorch.org/docs/stable/fsdp.html#torch.distributed.fsdp.MixedPrecision
    """
    import torch
    from torch.distributed.fsdp import MixedPrecision
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy, transformer_auto_wrap_policy

    seen: list[str] = []

    class Norm(torch.nn.BatchNorm1d):  # type: ignore[misc]  # torch has no types here
        def forward(self, inputs: Any) -> Any:
            seen.extend(compat.dtype_name(each.dtype) for each in (inputs, self.weight))
            return super().forward(inputs)

    half, layers = MixedPrecision(param_dtype=torch.bfloat16), {torch.nn.Linear}
    policies = {
        "class": ModuleWrapPolicy(layers),
        "function": functools.partial(transformer_auto_wrap_policy, transformer_layer_cls=layers),
    }
    for kind, policy in policies.items():
        seen.clear()
        model = networks.filled(torch.nn.Sequential(torch.nn.Linear(7, 13), Norm(13), torch.nn.Linear(13, 1)))
        wrapped = sharding.fsdp1(model, ctx, mixed_precision=half, auto_wrap_policy=policy, use_orig_params=True)
        outputs = wrapped(networks.share(networks.data(0)[0], ctx))
        outputs.float().sum().backward()
        yield equal(f"dtypes of a norm's input and weight, policy by {kind}", " ".join(seen), "fp32 fp32")
        yield equal(f"dtype of the outputs, policy by {kind}", compat.dtype_name(outputs.dtype), "bf16")


@call(GROUP, phase=Phase.BACKWARD, ranks=2, requires=jobs.FSDP1)
def fsdp1_odd_numbers_of_weights(ctx: Context) -> Iterator[Check]:
    """Units whose number of weights the ranks do not divide have the gradients of one process under FSDP1."""
    expected = networks.expected_gradients(network(ODD), [loss])
    for own_names in (True, False):
        model = sharded_networks.fsdp1(network(ODD), ctx, networks.NAMES, use_orig_params=own_names)
        loss(model, 0, ctx).backward()
        found = sharded_networks.fsdp1_gradients(model)
        yield networks.off(f"gradients off, use_orig_params={own_names}", found, expected)


@call(GROUP, phase=Phase.SAVE, ranks=2, requires=OWN_NAMES)
def fsdp1_layers_named_module(ctx: Context) -> Iterator[Check]:
    """FSDP1 keeps the names of parameters in layers that a model calls ``module``, also in an optimiser's state."""
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel

    class Around(torch.nn.Module):  # type: ignore[misc]  # torch has no types here
        def __init__(self) -> None:
            super().__init__()
            self.module = torch.nn.ModuleDict({"module": torch.nn.Linear(7, 5)})
            self.head = torch.nn.Linear(5, 1)

        def forward(self, inputs: Any) -> Any:
            return self.head(self.module["module"](inputs).tanh())

    names = "+".join(sorted(name for name, _ in Around().named_parameters()))
    model = sharding.fsdp1(networks.filled(Around()), ctx, use_orig_params=True)
    optimiser = adam(model)
    networks.train(model, optimiser, range(1), ctx)
    with kind_of_state(model, "full"):
        yield equal("names of weights", "+".join(sorted(model.state_dict())), names)
        moments = FullyShardedDataParallel.optim_state_dict(model, optimiser)["state"]
    yield equal("names of moments", "+".join(sorted(moments)), names)


@call(GROUP, phase=Phase.BACKWARD, ranks=2, requires=jobs.FSDP1)
def fsdp1_gradients_cleared_late(ctx: Context) -> Iterator[Check]:
    """Gradients that zero_grad clears between a forward and its backward pass do not come back under FSDP1."""
    for own_names in (True, False):
        model = sharded_networks.fsdp1(network(), ctx, use_orig_params=own_names)
        for step in range(3):
            term = loss(model, step, ctx)
            model.zero_grad()
            term.backward()
            expected = networks.expected_gradients(network(), networks.losses([step]))
            yield networks.off(
                f"gradients off, use_orig_params={own_names}", sharded_networks.fsdp1_gradients(model), expected
            )


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2, requires=(*jobs.FSDP1, "cpu_scaler"))
def fsdp1_sharded_scaler(ctx: Context) -> Iterator[Check]:
    """If gradients of one rank overflow, ShardedGradScaler skips the step on all ranks and halves the scale.

    The scale doubles after growth_interval good steps: https://docs.pytorch.org/docs/stable/amp.html.
    """
    import torch
    from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

    model, twin = sharded_networks.fsdp1(network(), ctx, use_orig_params=True), network()
    scaler = ShardedGradScaler(ctx.place.kind, init_scale=SCALE, growth_interval=2)
    mine, theirs = (torch.optim.SGD(each.parameters(), lr=0.1) for each in (model, twin))
    for step, (overflows, scale) in enumerate(
        ((False, SCALE), (True, SCALE / 2), (False, SCALE / 2), (False, SCALE), (False, SCALE))
    ):
        mine.zero_grad()
        theirs.zero_grad()
        scaler.scale(loss(model, step, ctx)).backward()
        if overflows and ctx.place.rank == 1:
            next(p for p in model.parameters() if p.grad is not None and p.numel()).grad.fill_(float("inf"))
        scaler.step(mine)
        scaler.update()
        loss(twin, step).backward()
        if not overflows:
            theirs.step()
        yield equal(f"scale after step {step}", scaler.get_scale(), scale)
        yield networks.off(f"weights off after step {step}", whole_weights(model), networks.weights(twin))
