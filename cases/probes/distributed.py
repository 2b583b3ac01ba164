"""Probes of what a version of torch offers to distributed training beyond a plain wrapper."""

from __future__ import annotations

import inspect
from functools import partial
from typing import TYPE_CHECKING

from cases.apply import compat
from cases.probes.data import Offer
from cases.space.verdict import LackingError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from cases.space.place import Place

    Probe = Callable[[Place, Path], None]


def fsdp2_argument(_place: Place, _cache: Path, name: str) -> None:
    if name not in inspect.signature(compat.fully_shard()).parameters:
        raise LackingError(f"fully_shard has no {name}")


def divided_gradients(place: Place, cache: Path) -> None:
    """Differentiate one layer with a divide factor, which not every backend of torch.distributed supports."""
    import torch

    from cases.probes import arithmetic

    fsdp2_methods(place, cache, DIVIDE_FACTOR)
    layer = torch.nn.Linear(64, 64, device=place.device)
    compat.fully_shard()(layer, mesh=compat.mesh(place))
    getattr(layer, next(name for name in DIVIDE_FACTOR if hasattr(layer, name)))(3.0)
    arithmetic.differentiate(layer, torch.float32, place)


def fsdp1_optimiser_state(place: Place, _cache: Path) -> None:
    """Gather the state of one layer's optimiser, with parameters under their own names."""
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel

    device = torch.device("cpu") if place.kind == "cpu" else place.device
    layer = torch.nn.Linear(64, 64, device=place.device)
    model = FullyShardedDataParallel(layer, device_id=device, use_orig_params=True)
    optimiser = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 64, device=place.device)).sum().backward()
    optimiser.step()
    FullyShardedDataParallel.optim_state_dict(model, optimiser)


def fsdp2_methods(_place: Place, _cache: Path, names: tuple[str, ...]) -> None:
    """Check that FSDP2's modules have at least one of these methods."""
    if not any(hasattr(compat.fsdp2_class(), name) for name in names):
        raise LackingError(f"FSDP2's modules have no {names[0]}")


def save_planner_argument(_place: Place, _cache: Path, name: str) -> None:
    from torch.distributed.checkpoint import DefaultSavePlanner

    if name not in inspect.signature(DefaultSavePlanner).parameters:
        raise LackingError(f"DefaultSavePlanner has no {name}")


def load_planner_argument(_place: Place, _cache: Path, name: str) -> None:
    from torch.distributed.checkpoint import DefaultLoadPlanner

    if name not in inspect.signature(DefaultLoadPlanner).parameters:
        raise LackingError(f"DefaultLoadPlanner has no {name}")


def checkpoint_id(_place: Place, _cache: Path) -> None:
    import torch.distributed.checkpoint as dcp

    if "checkpoint_id" not in inspect.signature(dcp.save).parameters:
        raise LackingError("torch.distributed.checkpoint.save has no checkpoint_id")


def writer_argument(_place: Place, _cache: Path, name: str) -> None:
    from torch.distributed.checkpoint import FileSystemWriter

    if name not in inspect.signature(FileSystemWriter).parameters:
        raise LackingError(f"FileSystemWriter has no {name}")


def save_argument(_place: Place, _cache: Path, name: str) -> None:
    import torch.distributed.checkpoint as dcp

    if name not in inspect.signature(dcp.save).parameters:
        raise LackingError(f"torch.distributed.checkpoint.save has no {name}")


def broadcasting_reader(_place: Place, _cache: Path) -> None:
    """Read the code of the reader: with torch 2.3 on a CPU, it would raise on one rank, and the others would wait."""
    from torch.distributed.checkpoint.format_utils import BroadcastingTorchSaveReader

    if ".cuda()" in inspect.getsource(BroadcastingTorchSaveReader.read_data):
        raise LackingError("BroadcastingTorchSaveReader moves tensors to CUDA")


def public_placements(_place: Place, _cache: Path) -> None:
    from torch.distributed.tensor import distribute_tensor

    assert distribute_tensor  # noqa: S101 - the import is the probe


DIVIDE_FACTOR = ("set_gradient_divide_factor", "set_reduce_scatter_divide_factor")
PARTS: Mapping[str, tuple[Probe, str]] = {  # requirement: probe and the reason of a skip; only calls name them
    "fsdp1_optimiser_state": (fsdp1_optimiser_state, "FSDP1's optimiser state needs a GPU in this torch"),
    "fsdp2_prefetch": (
        partial(fsdp2_methods, names=("set_modules_to_forward_prefetch",)),
        "this torch lets nobody choose what FSDP2 prefetches",
    ),
    "fsdp2_keep_after_backward": (
        partial(fsdp2_methods, names=("set_reshard_after_backward",)),
        "FSDP2 of this torch always frees weights after a backward pass",
    ),
    "fsdp2_divide_factor": (
        divided_gradients,
        "FSDP2 of this torch cannot divide gradients by another number here",
    ),
    "fsdp2_unused_parameters_reduced": (
        partial(fsdp2_methods, names=("set_reduce_scatter_unused_params",)),
        "FSDP2 of this torch needs the same used parameters on all ranks",
    ),
    "fsdp2_placement": (
        partial(fsdp2_argument, name="shard_placement_fn"),
        "FSDP2 of this torch shards the first dimension only",
    ),
    "fsdp2_ignored": (partial(fsdp2_argument, name="ignored_params"), "FSDP2 of this torch cannot ignore parameters"),
    "dcp_cached_plans": (
        partial(save_planner_argument, name="enable_plan_caching"),
        "this torch plans every checkpoint anew",
    ),
    "dcp_without_collectives": (
        partial(save_argument, name="use_collectives"),
        "in this torch, all ranks store a checkpoint together",
    ),
    "public_placements": (public_placements, "this torch does not publish its sharded tensors"),
}


def fsdp_plugin(_place: Place, _cache: Path) -> None:
    """Early versions look for the GPU that a plugin should broadcast from."""
    from accelerate import FullyShardedDataParallelPlugin

    try:
        FullyShardedDataParallelPlugin(sync_module_states=False)
    except RuntimeError as error:
        raise LackingError(str(error)) from None


ONE_RANK: Mapping[str, tuple[Probe, str]] = {  # as PARTS, for probes without communication
    "quantised_gradients": (
        Offer("torch.distributed.algorithms.ddp_comm_hooks.quantization_hooks", "_quantize_per_tensor_backend"),
        "this torch quantises gradients on GPUs only",
    ),
    "dcp_checkpoint_id": (checkpoint_id, "this torch saves checkpoints with a writer and a process group only"),
    "dcp_overwrite": (partial(writer_argument, name="overwrite"), "this torch always overwrites checkpoints"),
    "fsdp1_plugin": (fsdp_plugin, "this accelerate has no FSDP plugin without a GPU"),
    "dcp_lowest_rank": (
        partial(save_planner_argument, name="dedup_save_to_lowest_rank"),
        "this torch lets nobody choose the rank that stores what several ranks hold",
    ),
    "dcp_partial_load": (
        partial(load_planner_argument, name="allow_partial_load"),
        "this torch loads whole checkpoints only",
    ),
}
