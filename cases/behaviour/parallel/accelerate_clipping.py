"""accelerator.clip_grad_norm_ under FSDP1 and FSDP2: the norm that it clips by and returns.

https://huggingface.co/docs/accelerate/package_reference/accelerator#accelerate.Accelerator.clip_grad_norm_. accelerate
has no FSDP on a CPU, so the cells change the type and the plugin in accelerate's state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call, jobs, sharded_saving
from cases.behaviour.parallel import networks, sharded_networks
from cases.behaviour.parallel.accelerate_loops import descent
from cases.behaviour.parallel.clipping import FINITE, GROUP, NORMS, clipped, of_all
from cases.behaviour.parallel.networks import loss, network
from cases.space.verdict import Check, Phase, at_most

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cases.apply.context import Context

NEEDS1, NEEDS2 = (*jobs.FSDP1, "fsdp1_plugin"), (*jobs.FSDP2, "accelerate_has_fsdp2")
UNIT = 50  # parameters; the first two layers are units inside the root
FROZEN = "second"
SHARE = 0.25  # the bound, over the norm


def prepared(ctx: Context, version: int, models: Sequence[Any]) -> tuple[Any, list[Any]]:
    """An accelerator with a version of FSDP, and the models that it sharded, each with its optimiser."""
    from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy

    plugin = sharded_saving.plugin(models[0], version)
    plugin.auto_wrap_policy, plugin.min_num_params = size_based_auto_wrap_policy, UNIT
    made = jobs.accelerator(ctx, plugin)
    return made, [made.prepare(each, descent(each))[0] for each in models]


def gradients(model: Any, version: int) -> dict[str, Any]:
    return sharded_networks.fsdp1_gradients(model) if version == 1 else networks.gradients(model)


def whole_model(ctx: Context, version: int, norms: Sequence[float]) -> Iterator[Check]:
    """Clip all parameters, with bounds below and above the norm."""
    made, (model,) = prepared(ctx, version, [network()])
    clip = lambda bound, norm: made.clip_grad_norm_(model.parameters(), bound, norm)  # noqa: E731 - an argument
    yield from clipped(ctx, model, clip, read=lambda each: gradients(each, version), norms=norms)


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2, requires=NEEDS1)
def clip_fsdp1_by_accelerate(ctx: Context) -> Iterator[Check]:
    """accelerator.clip_grad_norm_ clips an FSDP1 model by the norm over all ranks, and returns it on each."""
    yield from whole_model(ctx, 1, NORMS)


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2, requires=NEEDS2)
def clip_fsdp2_by_accelerate(ctx: Context) -> Iterator[Check]:
    """accelerator.clip_grad_norm_ clips an FSDP2 model by the norm over all ranks, and returns it on each."""
    yield from whole_model(ctx, 2, FINITE)


def each_by_its_own(ctx: Context, version: int) -> Iterator[Check]:
    """Prepare two models, and clip only the second one."""
    widths = (7, 9, 4)
    made, (one, other) = prepared(ctx, version, [network(), network(widths)])
    exact = [networks.expected_gradients(network(each), [inner_loss]) for each in (networks.WIDTHS, widths)]
    for model in (one, other):
        inner_loss(model, ctx).backward()
    total = of_all(exact[1], 2.0)
    found = float(networks.whole(made.clip_grad_norm_(other.parameters(), SHARE * total)))
    yield at_most("norm of the second off", abs(found / total - 1), networks.SAME)
    yield networks.off("gradients of the first off", gradients(one, version), exact[0])
    factor = SHARE * total / (total + 1e-6)
    clipped_second = {name: factor * each for name, each in exact[1].items()}
    yield networks.off("gradients of the second off", gradients(other, version), clipped_second)


def inner_loss(model: Any, ctx: Context | None = None) -> Any:
    """The mean square of the outputs, of this rank's rows or of all."""
    inputs, _ = networks.data(0)
    return model(inputs if ctx is None else networks.share(inputs, ctx)).square().mean()


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2, requires=NEEDS1)
def clip_one_of_two_fsdp1(ctx: Context) -> Iterator[Check]:
    """With two FSDP1 models, accelerator.clip_grad_norm_ clips the one whose parameters it gets by its own norm."""
    yield from each_by_its_own(ctx, 1)


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2, requires=NEEDS2)
def clip_one_of_two_fsdp2(ctx: Context) -> Iterator[Check]:
    """With two FSDP2 models, accelerator.clip_grad_norm_ clips the one whose parameters it gets by its own norm."""
    yield from each_by_its_own(ctx, 2)


def trained_only(ctx: Context, version: int) -> Iterator[Check]:
    """Freeze a unit, and give the parameters that require a gradient, as scripts for adapters do."""
    model = network()
    model.get_submodule(FROZEN).requires_grad_(False)  # noqa: FBT003 - torch's argument
    exact = networks.expected_gradients(network(), [loss])
    exact = {name: each for name, each in exact.items() if not name.startswith(FROZEN)}
    made, (sharded,) = prepared(ctx, version, [model])
    loss(sharded, 0, ctx).backward()
    total = of_all(exact, 2.0)
    chosen = [parameter for parameter in sharded.parameters() if parameter.requires_grad]
    found = float(networks.whole(made.clip_grad_norm_(chosen, SHARE * total)))
    yield at_most("norm off", abs(found / total - 1), networks.SAME)
    factor = SHARE * total / (total + 1e-6)
    kept = {name: each for name, each in gradients(sharded, version).items() if not name.startswith(FROZEN)}
    yield networks.off("gradients off", kept, {name: factor * each for name, each in exact.items()})


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2, requires=NEEDS1)
def clip_trained_fsdp1_by_accelerate(ctx: Context) -> Iterator[Check]:
    """accelerator.clip_grad_norm_ clips an FSDP1 model by the norm over all ranks if it gets only what is trained."""
    yield from trained_only(ctx, 1)


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2, requires=NEEDS2)
def clip_trained_fsdp2_by_accelerate(ctx: Context) -> Iterator[Check]:
    """accelerator.clip_grad_norm_ clips an FSDP2 model by the norm over all ranks if it gets only what is trained."""
    yield from trained_only(ctx, 2)
