"""FSDP2 through accelerate with mixed precision: the dtypes of weights, computations and moments.

accelerate has no FSDP on a CPU, so the cells change the type and the plugin in accelerate's state.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from cases.api import call, jobs
from cases.api.loading import launched
from cases.behaviour.parallel import networks
from cases.behaviour.parallel.networks import network
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "FSDP2 in a user's script"
NEEDS = (*jobs.FSDP2, "accelerate_has_fsdp2")
TINY = 1e-5  # a learning rate below the resolution of bfloat16 weights


def accelerator(ctx: Context, precision: str) -> Any:
    from accelerate import Accelerator, FullyShardedDataParallelPlugin
    from accelerate.utils import DistributedType

    known = inspect.signature(FullyShardedDataParallelPlugin).parameters
    quiet = {"sync_module_states": False, "cpu_ram_efficient_loading": False}
    chosen = {name: no for name, no in quiet.items() if name in known}
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, **chosen)
    if precision != "no":
        plugin.set_mixed_precision(precision)
    launched(ctx)
    made = Accelerator(cpu=ctx.place.kind == "cpu", mixed_precision=precision)
    made.state.distributed_type = DistributedType.FSDP
    made.state.fsdp_plugin = plugin
    return made


def stepped(ctx: Context, precision: str, dtype: str) -> tuple[Any, Any, dict[str, Any], set[str]]:
    """A model of a dtype and its Adam after one step, its weights before, and the dtypes of a layer's outputs."""
    import torch

    model = network().to(getattr(torch, dtype))
    before = {name: weight.double() for name, weight in networks.weights(model).items()}
    made = accelerator(ctx, precision)
    inside: set[str] = set()
    model.second.register_forward_hook(lambda _module, _inputs, output: inside.add(str(output.dtype)))
    wrapped, optimiser = made.prepare(model, torch.optim.Adam(model.parameters(), lr=TINY, eps=0.0))
    inputs, targets = (networks.share(each, ctx).to(getattr(torch, dtype)) for each in networks.data(0))
    made.backward((wrapped(inputs) - targets).float().square().mean())
    optimiser.step()
    return wrapped, optimiser, before, inside


def dtypes(tensors: Any) -> str:
    return str({str(each.dtype) for each in tensors})


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2, requires=NEEDS)
def fsdp2_bf16_master_weights(ctx: Context) -> Iterator[Check]:
    """With mixed_precision="bf16", a bfloat16 model under FSDP2 has float32 weights and moments.

    It computes in bfloat16. The first step of Adam moves each weight by the learning rate, which bfloat16 would lose.
    """
    wrapped, optimiser, before, inside = stepped(ctx, "bf16", "bfloat16")
    after = networks.weights(wrapped)
    held = [each for state in optimiser.state_dict()["state"].values() for each in state.values() if each.dim()]
    yield equal("dtypes of parameters", dtypes(wrapped.parameters()), "{'torch.float32'}")
    yield equal("dtypes of moments", dtypes(held), "{'torch.float32'}")
    yield equal("dtypes within", str(inside), "{'torch.bfloat16'}")
    steps = [(after[name].double() - weight).abs() / TINY for name, weight in before.items()]
    yield at_most("steps off the learning rate", max(float((each - 1).abs().max()) for each in steps), 0.05)


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2, requires=NEEDS)
def fsdp2_without_mixed_precision(ctx: Context) -> Iterator[Check]:
    """Without mixed precision, a bfloat16 model under FSDP2 stays in bfloat16: weights, moments and computations."""
    wrapped, optimiser, _, inside = stepped(ctx, "no", "bfloat16")
    held = [each for state in optimiser.state_dict()["state"].values() for each in state.values() if each.dim()]
    yield equal("dtypes of parameters", dtypes(wrapped.parameters()), "{'torch.bfloat16'}")
    yield equal("dtypes of moments", dtypes(held), "{'torch.bfloat16'}")
    yield equal("dtypes within", str(inside), "{'torch.bfloat16'}")
