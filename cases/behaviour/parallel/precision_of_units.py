"""FSDP's mixed-precision policies, a different one in each unit, compared with explicit casts in one process.

https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html#torch.distributed.fsdp.MixedPrecisionPolicy
https://docs.pytorch.org/docs/stable/fsdp.html#torch.distributed.fsdp.MixedPrecision
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call, jobs, sharding
from cases.apply import compat
from cases.behaviour.parallel import networks, sharded_networks
from cases.model import tiny
from cases.space.verdict import Check, Phase, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cases.apply.context import Context

    Forward = Callable[[dict[str, Any], Any], Any]

GROUP = "FSDP's mixed precision"
STEPS = 2
FSDP1 = ("fsdp1", "fsdp1_mixed")
FSDP2 = (*jobs.FSDP2, "fsdp2_mixed")


def recording() -> tuple[Any, dict[str, str]]:
    """A network, and a record of the dtypes of each layer's input, weight and output before casts of FSDP."""
    import torch

    seen: dict[str, str] = {}

    class RecordingLinear(torch.nn.Linear):  # type: ignore[misc]  # torch has no types here
        called = ""

        def forward(self, inputs: Any) -> Any:
            outputs = super().forward(inputs.to(self.weight.dtype))
            seen[self.called] = " ".join(compat.dtype_name(each.dtype) for each in (inputs, self.weight, outputs))
            return outputs

    model = networks.network()
    for name in networks.NAMES:
        layer = model.get_submodule(name)
        layer.__class__, layer.called = RecordingLinear, name
    return model, seen


def mean_gradients(ctx: Context, forward: Forward, model: Any, step: int, reductions: dict[str, Any]) -> dict[str, Any]:
    """The mean over ranks of the gradients that ``forward`` gives of cast weights.

    ``reductions`` has a pair of dtypes for each layer: of its weights in the passes and of the mean.
    """
    import torch

    world = ctx.place.world_size
    inputs, targets = (each.tensor_split(world) for each in networks.data(step))
    sums: dict[str, Any] = {}
    for rank in range(world):
        cast = {n: p.detach().to(reductions[n.split(".")[0]][0]).requires_grad_() for n, p in tiny.named(model)}
        (forward(cast, inputs[rank]).float() - targets[rank]).square().mean().backward()
        for name, weight in cast.items():
            part = weight.grad.to(reductions[name.split(".")[0]][1])
            sums[name] = sums[name] + part if name in sums else part
    return {name: (total / world).to(torch.float32) for name, total in sums.items()}


def linear(weights: dict[str, Any], name: str, inputs: Any) -> Any:
    """A layer that casts its inputs to the dtype of its weights."""
    import torch

    weight = weights[f"{name}.weight"]
    return torch.nn.functional.linear(inputs.to(weight.dtype), weight, weights[f"{name}.bias"])


@call(GROUP, phase=Phase.BACKWARD, ranks=2, requires=FSDP2)
def fsdp2_policy_of_each_unit(ctx: Context) -> Iterator[Check]:
    """Each unit of FSDP2 follows its own param_dtype, reduce_dtype, output_dtype and cast_forward_inputs."""
    import torch

    half, single = torch.bfloat16, torch.float32
    policy = compat.fsdp2().MixedPrecisionPolicy
    policies = {
        "first": policy(param_dtype=half, reduce_dtype=single),
        "second": policy(param_dtype=half, reduce_dtype=half, output_dtype=single),
        "third": policy(param_dtype=half, reduce_dtype=single, cast_forward_inputs=False),
    }
    model, seen = recording()
    for name, chosen in policies.items():
        compat.fully_shard()(model.get_submodule(name), mesh=sharded_networks.mesh(ctx), mp_policy=chosen)
    compat.fully_shard()(model, mesh=sharded_networks.mesh(ctx))
    reductions = {"first": (half, single), "second": (half, half), "third": (half, single), "fourth": (single, single)}
    expected_dtypes = {
        "first": "bf16 bf16 bf16",  # the inputs are float32
        "second": "bf16 bf16 bf16",
        "third": "fp32 bf16 bf16",  # as output_dtype of the second says
        "fourth": "bf16 fp32 fp32",  # no policy, no cast
    }
    yield from trained(ctx, model, explicit_fsdp2, reductions)
    yield from dtypes(seen, expected_dtypes)
    yield from held(model)


def explicit_fsdp2(weights: dict[str, Any], inputs: Any) -> Any:
    """The network with the casts that the policies ask for."""
    hidden = linear(weights, "first", inputs).tanh()
    hidden = linear(weights, "second", hidden).float().tanh()
    hidden = linear(weights, "third", hidden).tanh()
    return linear(weights, "fourth", hidden)


def trained(
    ctx: Context, model: Any, forward: Forward, reductions: dict[str, Any], read: Any = networks.gradients
) -> Iterator[Check]:
    """Two steps: the second starts from weights that the first changed in their own dtype."""
    import torch

    plain = networks.network()
    mine, theirs = (torch.optim.SGD(each.parameters(), lr=0.1) for each in (model, plain))
    for step in range(STEPS):
        networks.loss(model, step, ctx).backward()
        expected = mean_gradients(ctx, forward, plain, step, reductions)
        yield networks.off("gradients off", read(model), expected)
        for name, parameter in plain.named_parameters():
            parameter.grad = expected[name]
        for optimiser in (mine, theirs):
            optimiser.step()
        if step < STEPS - 1:
            mine.zero_grad()


def dtypes(seen: dict[str, str], expected: dict[str, str]) -> Iterator[Check]:
    for name, wanted in expected.items():
        yield equal(f"dtypes of {name}: input, weight, output", seen[name], wanted)


def held(model: Any) -> Iterator[Check]:
    """What the optimiser sees: parameters and gradients in the parameters' own dtype."""
    kinds = {compat.dtype_name(each.dtype) for p in model.parameters() for each in (p, p.grad) if each is not None}
    yield equal("dtypes of parameters and gradients", "+".join(sorted(kinds)), "fp32")


@call(GROUP, phase=Phase.BACKWARD, ranks=2, requires=FSDP1)
def fsdp1_policy_of_each_unit(ctx: Context) -> Iterator[Check]:
    """Each unit of FSDP1 follows its own param_dtype, reduce_dtype, cast_forward_inputs and cast of root inputs."""
    import torch
    from torch.distributed.fsdp import MixedPrecision

    half, single = torch.bfloat16, torch.float32
    policies = {
        "first": MixedPrecision(param_dtype=half, reduce_dtype=single),
        "second": MixedPrecision(param_dtype=half, reduce_dtype=half),
        "third": MixedPrecision(param_dtype=single, reduce_dtype=half, cast_forward_inputs=True),
        "": MixedPrecision(param_dtype=half, cast_root_forward_inputs=False),
    }
    model, seen = recording()
    for name in networks.NAMES[:3]:
        setattr(model, name, sharding.fsdp1(getattr(model, name), ctx, mixed_precision=policies[name]))
    model = sharding.fsdp1(model, ctx, mixed_precision=policies[""])
    reductions = {"first": (half, single), "second": (half, half), "third": (single, half), "fourth": (half, half)}
    expected_dtypes = {
        "first": "fp32 bf16 bf16",  # the root does not cast its inputs
        "second": "bf16 bf16 bf16",
        "third": "fp32 fp32 fp32",
        "fourth": "fp32 bf16 bf16",  # the root casts no inputs of its own layers
    }
    yield from trained(ctx, model, explicit_fsdp1, reductions, sharded_networks.fsdp1_gradients)
    yield from dtypes(seen, expected_dtypes)
    yield from held(model)


def explicit_fsdp1(weights: dict[str, Any], inputs: Any) -> Any:
    hidden = linear(weights, "first", inputs).tanh()
    hidden = linear(weights, "second", hidden).tanh()
    hidden = linear(weights, "third", hidden).tanh()
    return linear(weights, "fourth", hidden)


@call(GROUP, phase=Phase.FORWARD, ranks=2, requires=FSDP1)
def fsdp1_buffer_dtype(ctx: Context) -> Iterator[Check]:
    """FSDP1 casts buffers to buffer_dtype and root inputs to param_dtype; keep_low_precision_grads keeps gradients."""
    import torch
    from torch.distributed.fsdp import MixedPrecision

    class Shifted(torch.nn.Module):  # type: ignore[misc]  # torch has no types here
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(7, 4)
            self.register_buffer("shift", torch.full((4,), 1 / 3))
            self.register_buffer("count", torch.ones((), dtype=torch.int64))

        def forward(self, inputs: Any) -> Any:
            seen.extend(compat.dtype_name(each.dtype) for each in (inputs, self.shift, self.layer.weight))
            return self.layer(inputs).half() + self.shift * self.count

    seen: list[str] = []
    policy = MixedPrecision(param_dtype=torch.bfloat16, buffer_dtype=torch.float16, keep_low_precision_grads=True)
    model = sharding.fsdp1(networks.filled(Shifted()), ctx, mixed_precision=policy, use_orig_params=True)
    model(networks.data(0)[0]).float().sum().backward()
    yield equal("dtypes of input, buffer and weight", " ".join(seen), "bf16 fp16 bf16")
    yield equal("dtype of a whole number in a buffer", compat.dtype_name(model.module.count.dtype), "int64")
    kinds = {compat.dtype_name(p.grad.dtype) for p in model.parameters() if p.grad is not None}
    yield equal("dtypes of gradients", "+".join(sorted(kinds)), "bf16")


@call(GROUP, phase=Phase.BACKWARD, ranks=2, requires=FSDP2)
def fsdp2_units_of_different_dtypes(ctx: Context) -> Iterator[Check]:
    """Units of FSDP2 without a policy compute, reduce and keep gradients in the dtype of their parameters."""
    import torch

    half, single = torch.bfloat16, torch.float32
    model, seen = recording()
    for name in ("first", "third"):
        model.get_submodule(name).to(half)
    model = sharded_networks.fsdp2(model, ctx)
    reductions = {name: (half, half) if name in ("first", "third") else (single, single) for name in networks.NAMES}
    networks.loss(model, 0, ctx).backward()
    expected = mean_gradients(ctx, explicit_fsdp1, networks.network(), 0, reductions)
    found = networks.gradients(model)
    yield networks.off("gradients off", {name: each.float() for name, each in found.items()}, expected)
    kinds = {name: compat.dtype_name(each.dtype) for name, each in found.items()}
    wanted = {name: "bf16" if name.split(".")[0] in ("first", "third") else "fp32" for name in expected}
    yield equal("parameters whose gradient has another dtype", sum(kinds[n] != k for n, k in wanted.items()), 0)
    expected_dtypes = {
        "first": "fp32 bf16 bf16",
        "second": "bf16 fp32 fp32",
        "third": "fp32 bf16 bf16",
        "fourth": "bf16 fp32 fp32",
    }
    yield from dtypes(seen, expected_dtypes)


@call(GROUP, phase=Phase.INFER, ranks=2, requires=FSDP2)
def fsdp2_output_dtype(ctx: Context) -> Iterator[Check]:
    """output_dtype of FSDP2's policy casts outputs in training and without gradients, also of units."""
    import torch

    half, single = torch.bfloat16, torch.float32
    policy = compat.fsdp2().MixedPrecisionPolicy(param_dtype=half, output_dtype=single)
    model, seen = recording()
    sharded_networks.fsdp2(model, ctx, mp_policy=policy)
    inputs = networks.share(networks.data(0)[0], ctx)
    for differentiated in (True, False):
        with torch.set_grad_enabled(differentiated):
            outputs = model(inputs)
        kind = f"gradients={differentiated}"
        yield equal(f"dtype of the outputs, {kind}", compat.dtype_name(outputs.dtype), "fp32")
        yield equal(f"dtypes of second: input, weight, output, {kind}", seen["second"], "fp32 bf16 bf16")
