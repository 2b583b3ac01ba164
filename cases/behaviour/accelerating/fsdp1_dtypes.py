"""FSDP1 through accelerate with mixed precision: the dtypes of flat parameters, moments and computations.

https://huggingface.co/docs/accelerate/concept_guides/fsdp_and_deepspeed: with mixed precision, the weights that the
optimiser sees are raised to float32. accelerate has no FSDP on a CPU, so the cells change the type and the plugin in
accelerate's state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call, jobs, sharded_saving
from cases.api.loading import launched
from cases.behaviour.parallel import networks
from cases.behaviour.parallel.networks import network
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

RATE = 1e-5  # below the resolution of bfloat16 weights
FROZEN = "second"


def accelerator(ctx: Context, model: Any, precision: str) -> Any:
    """An Accelerator of this precision with FSDP1, whose units are a layer and the rest."""
    import functools

    import torch
    from accelerate import Accelerator, PartialState
    from accelerate.utils import DistributedType
    from torch.distributed.fsdp.wrap import lambda_auto_wrap_policy

    plugin = sharded_saving.plugin(model, 1)
    plugin.auto_wrap_policy = functools.partial(
        lambda_auto_wrap_policy, lambda_fn=lambda each: each is model.get_submodule(FROZEN)
    )
    if precision != "no":
        plugin.set_mixed_precision(precision)
    launched(ctx)
    made = Accelerator(cpu=ctx.place.kind == "cpu", mixed_precision=precision)
    PartialState().distributed_type = made.state.distributed_type = DistributedType.FSDP
    if ctx.place.kind == "cpu":
        PartialState().device = made.state.device = torch.device("cpu")  # not cpu:0, which FSDP1 takes for another
    made.state.fsdp_plugin = plugin
    return made


@call("accelerate: states", phase=Phase.OPTIMIZER, ranks=2, requires=(*jobs.FSDP1, "fsdp1_plugin"))
def fsdp1_half_models_by_accelerate(ctx: Context) -> Iterator[Check]:
    """With mixed precision, accelerate holds trained weights of a bfloat16 model in float32 under FSDP1.

    The first step of Adam moves each of them by the learning rate, which bfloat16 would lose. Frozen units stay in
    bfloat16, as do all weights without mixed precision.
    """
    import torch
    from accelerate.state import AcceleratorState

    for precision in ("bf16", "no"):
        AcceleratorState._reset_state(reset_partial_state=True)  # noqa: SLF001 - as accelerate's own documentation does
        model = network().to(torch.bfloat16)
        model.get_submodule(FROZEN).requires_grad_(False)  # noqa: FBT003 - torch's argument
        before = {name: weight.double() for name, weight in networks.weights(model).items()}
        inside: set[str] = set()
        model.third.register_forward_hook(lambda _module, _inputs, output, inside=inside: inside.add(str(output.dtype)))
        made = accelerator(ctx, model, precision)
        sharded = made.prepare(model)
        trained = [each for each in sharded.parameters() if each.requires_grad]
        optimiser = torch.optim.Adam(trained, lr=RATE, eps=0.0)
        inputs, targets = (networks.share(each, ctx).to(torch.bfloat16) for each in networks.data(0))
        made.backward((sharded(inputs) - targets).float().square().mean())
        optimiser.step()
        held = "torch.float32" if precision == "bf16" else "torch.bfloat16"
        moments = [each for state in optimiser.state.values() for each in state.values() if each.dim()]
        yield equal(f"dtypes of trained weights, {precision}", str({str(each.dtype) for each in trained}), str({held}))
        yield equal(f"dtypes of moments, {precision}", str({str(each.dtype) for each in moments}), str({held}))
        yield equal(f"dtypes within, {precision}", str(inside), "{'torch.bfloat16'}")
        frozen = {str(each.dtype) for each in sharded.parameters() if not each.requires_grad}
        yield equal(f"dtypes of frozen weights, {precision}", str(frozen), "{'torch.bfloat16'}")
        if precision == "no":
            continue
        after = whole(sharded)
        steps = [
            (after[name].double() - weight).abs() / RATE
            for name, weight in before.items()
            if not name.startswith(FROZEN)
        ]
        yield at_most("steps off the learning rate", max(float((each - 1).abs().max()) for each in steps), 0.05)


def whole(model: Any) -> dict[str, Any]:
    from torch.distributed.fsdp import FullyShardedDataParallel

    with FullyShardedDataParallel.summon_full_params(model, writeback=False):
        return networks.weights(model)
