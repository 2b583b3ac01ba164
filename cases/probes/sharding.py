"""Probes of FSDP in torch and in accelerate."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from cases.apply import compat
from cases.probes import arithmetic
from cases.space.verdict import LackingError

if TYPE_CHECKING:
    from pathlib import Path

    from cases.space.place import Place


def bare_fsdp1(place: Place, _cache: Path, **arguments: Any) -> None:
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel

    device = torch.device("cpu") if place.kind == "cpu" else place.device
    layer = torch.nn.Linear(64, 64, device=place.device)
    arithmetic.differentiate(FullyShardedDataParallel(layer, device_id=device, **arguments), torch.float32, place)


def synced_fsdp1(place: Place, cache: Path) -> None:
    bare_fsdp1(place, cache, sync_module_states=True)


def mixed_fsdp1(place: Place, cache: Path) -> None:
    import torch
    from torch.distributed.fsdp import MixedPrecision

    half = torch.bfloat16
    bare_fsdp1(place, cache, mixed_precision=MixedPrecision(param_dtype=half, reduce_dtype=half))


def hybrid_fsdp1(place: Place, cache: Path) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import ShardingStrategy

    mesh = init_device_mesh(place.kind, (2, 2), mesh_dim_names=("replicate", "shard"))
    bare_fsdp1(place, cache, sharding_strategy=ShardingStrategy.HYBRID_SHARD, device_mesh=mesh)


def whole_fsdp1(place: Place, _cache: Path) -> None:
    """Gather a full state dict: in some versions, its tensors share memory that is then freed."""
    import torch
    from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel, StateDictType

    device = torch.device("cpu") if place.kind == "cpu" else place.device
    model = FullyShardedDataParallel(torch.nn.Linear(64, 64, device=place.device), device_id=device)
    config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    with FullyShardedDataParallel.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
        state = model.state_dict()
    if any(each.untyped_storage().nbytes() < each.numel() * each.element_size() for each in state.values()):
        raise LackingError("the tensors that FSDP1 gathered have no memory")


def bare_fsdp2(place: Place, _cache: Path, **arguments: Any) -> None:
    import torch

    fully_shard = compat.fully_shard()
    layer = torch.nn.Linear(64, 64, device=place.device)
    fully_shard(layer, **{"mesh": compat.mesh(place), **arguments})
    arithmetic.differentiate(layer, torch.float32, place)


def mixed_fsdp2(place: Place, cache: Path) -> None:
    import torch

    half = torch.bfloat16
    bare_fsdp2(place, cache, mp_policy=compat.fsdp2().MixedPrecisionPolicy(param_dtype=half, reduce_dtype=half))


def hybrid_fsdp2(place: Place, cache: Path) -> None:
    from torch.distributed.device_mesh import init_device_mesh

    bare_fsdp2(place, cache, mesh=init_device_mesh(place.kind, (2, 2), mesh_dim_names=("replicate", "shard")))


def fsdp2_exists(_place: Place, _cache: Path) -> None:
    compat.fully_shard()


def broadcast_option(_place: Place, _cache: Path) -> None:
    from torch.distributed.checkpoint.state_dict import StateDictOptions

    if "broadcast_from_rank0" not in inspect.signature(StateDictOptions).parameters:
        raise LackingError("StateDictOptions has no broadcast_from_rank0")


def unsharding_method(_place: Place, _cache: Path) -> None:
    if not hasattr(compat.fsdp2_class(), "unshard"):
        raise LackingError("FSDP2's modules have no unshard")


def accelerate_half(place: Place, _cache: Path) -> None:
    from accelerate import Accelerator

    Accelerator(cpu=place.kind == "cpu", mixed_precision="fp16")


def accelerate_sharded(place: Place, version: int) -> None:
    """Shard one layer with accelerate, with its launcher's variables."""
    import os

    import torch
    from accelerate import Accelerator

    from cases.apply import front_ends

    os.environ.update(front_ends.launched(place))
    os.environ.update({"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": str(version)})
    layer = torch.nn.Linear(64, 64, device=place.device)
    optimiser = torch.optim.SGD(layer.parameters(), lr=0.1)
    layer, _ = Accelerator(cpu=place.kind == "cpu").prepare(layer, optimiser)
    arithmetic.differentiate(layer, torch.float32, place)


def accelerate_fsdp2_option(_place: Place, _cache: Path) -> None:
    from accelerate import FullyShardedDataParallelPlugin

    if "fsdp_version" not in inspect.signature(FullyShardedDataParallelPlugin).parameters:
        raise LackingError("FullyShardedDataParallelPlugin has no fsdp_version")
