"""Small networks of plain torch under FSDP1 and FSDP2, in several units."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import jobs, sharding
from cases.apply import compat

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cases.apply.context import Context

UNITS = ("first", "third")  # the root holds the rest


def mesh(ctx: Context) -> Any:
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh(ctx.place.kind, (ctx.place.world_size,))


def fsdp2(model: Any, ctx: Context, units: Iterable[str] = UNITS, **arguments: Any) -> Any:
    """Shard some layers as units of their own, and the rest with the root."""
    fully_shard = compat.fully_shard()
    whole = {"mesh": mesh(ctx), **arguments}
    for name in units:
        fully_shard(model.get_submodule(name), **whole)
    fully_shard(model, **whole)
    return model


def fsdp1(model: Any, ctx: Context, units: Iterable[str] = UNITS, **arguments: Any) -> Any:
    for name in units:
        setattr(model, name, sharding.fsdp1(getattr(model, name), ctx, **arguments))
    return sharding.fsdp1(model, ctx, **arguments)


def fsdp1_gradients(model: Any) -> dict[str, Any]:
    """The whole gradients of FSDP1's flat parameters, by canonical name."""
    return jobs.gradients(model, strategy="fsdp1")
