"""Builders for calls about sharding: a tiny model, adapted and wrapped, and its expected gradients.

``chosen`` are options of a case, which ``cases.apply.build`` applies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api.loading import launched
from cases.apply import build
from cases.checks import observers
from cases.model import tiny
from cases.reference import tolerance
from cases.space.options import Options
from cases.space.verdict import Check, at_most

if TYPE_CHECKING:
    from cases.apply.context import Context

FSDP1, FSDP2 = ("fsdp1",), ("fsdp2_exists", "fsdp2")  # needs
PACKED = ("4bit", "4bit_loading")
SAME = 1e-5  # relative: the same arithmetic in float32, in another order
HALF = 2.0**-4  # relative: bfloat16 through two layers, rounded in another place


def options(**chosen: Any) -> Options:
    return Options().but(**chosen)


def lora_config(**more: Any) -> Any:
    from peft import LoraConfig

    return LoraConfig(task_type="CAUSAL_LM", r=tiny.RANK, target_modules=list(tiny.TARGETS), **more)


def base(ctx: Context, **chosen: Any) -> Any:
    return build.load(options(**chosen), ctx.place, ctx.cache)


def adapted(ctx: Context, **chosen: Any) -> Any:
    """The base with a LoRA adapter, not wrapped."""
    return build.adapt(base(ctx, **chosen), options(**chosen))


def wrapped(ctx: Context, model: Any = None, **chosen: Any) -> Any:
    """The model, by default the base with a LoRA adapter, wrapped as a case with these options wraps it."""
    return build.wrap(adapted(ctx, **chosen) if model is None else model, options(**chosen), ctx.place)


def loss(model: Any, ctx: Context, step: int = 0) -> Any:
    """The loss of this rank's rows of the batch."""
    ids = tiny.shard(step, ctx.place.rank, ctx.place.world_size).to(ctx.place.device)
    return model(input_ids=ids, labels=ids).loss


def whole_loss(model: Any, ctx: Context, step: int = 0) -> Any:
    ids = tiny.batch(step).to(ctx.place.device)
    return model(input_ids=ids, labels=ids).loss


def gradients(model: Any, **chosen: Any) -> dict[str, Any]:
    return observers.gradients(model, options(**chosen))


def expected_gradients(ctx: Context) -> dict[str, Any]:
    """The gradients of a LoRA adapter in one process, over the batch that the ranks share."""
    model = adapted(ctx)
    whole_loss(model, ctx).backward()
    return gradients(model)


def as_in_one_process(found: dict[str, Any], ctx: Context, within: float = SAME) -> Check:
    """Compare the gradients of all ranks with those of one process."""
    return at_most("gradient off", tolerance.worst_tensor(found, expected_gradients(ctx)), within)


def step(model: Any, ctx: Context, optimiser: Any, number: int = 0) -> None:
    loss(model, ctx, number).backward()
    optimiser.step()
    optimiser.zero_grad()


def trained_parameters(model: Any) -> list[Any]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def accelerator(ctx: Context, plugin: Any) -> Any:
    """Create an Accelerator that uses an FSDP plugin.

    It reads rank and world size from the environment, as launchers set them. On a CPU it would ignore the plugin, so
    its state is changed.
    """
    import torch
    from accelerate import Accelerator, PartialState
    from accelerate.utils import DistributedType

    launched(ctx)
    made = Accelerator(cpu=ctx.place.kind == "cpu")
    PartialState().distributed_type = made.state.distributed_type = DistributedType.FSDP
    if ctx.place.kind == "cpu":
        PartialState().device = made.state.device = torch.device("cpu")  # not cpu:0, which FSDP1 takes for another
    made.state.fsdp_plugin = plugin
    return made
