"""The evidence of the options that DDP and FSDP share: the wrapper, its ranks, and what it copies from rank 0."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.checks import observers, shards
from cases.checks.engagement.recorder import class_names, wrapper_class
from cases.space.verdict import at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.checks.engagement.recorder import EngagementRecorder
    from cases.space.options import Options
    from cases.space.verdict import Check


def strategy(recorder: EngagementRecorder) -> Iterator[Check]:
    name = wrapper_class(recorder.options)
    if name is not None:
        yield equal(
            "wrapped as", name if name in class_names(recorder.wrapped) else type(recorder.wrapped).__name__, name
        )
    if recorder.options.strategy == "ddp":
        yield from sync_module_states(recorder)  # DDP always synchronises them
    if recorder.options.strategy in ("fsdp1", "fsdp2"):
        share = held_bytes(recorder.wrapped, recorder.options) * recorder.place.world_size / recorder.total_bytes
        yield at_most("parameter bytes x ranks / total", share, shards.copies(recorder.options) * shards.SLACK)


def held_bytes(model: Any, options: Options) -> int:
    if options.strategy == "fsdp2":
        return observers.local_bytes(model)
    flats = observers.flat_parameters(model)
    return sum(flat._local_shard.numel() * flat._local_shard.element_size() for flat in flats)  # noqa: SLF001 - no public way


def world_size(recorder: EngagementRecorder) -> Iterator[Check]:
    if recorder.options.world_size == 1:
        return
    import torch
    import torch.distributed as dist

    device = None if recorder.place.backend == "gloo" else recorder.place.device
    mine = torch.tensor(recorder.losses, dtype=torch.float64, device=device)
    everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, mine)
    different = len({tuple(losses.tolist()) for losses in everyone})
    yield equal("ranks with a loss of their own", different, recorder.options.world_size)


def sync_module_states(recorder: EngagementRecorder) -> Iterator[Check]:
    if recorder.synced is not None:  # None: no weights were corrupted, so there is nothing to check
        yield equal("spoilt weights replaced by rank 0's", recorder.synced, bound=True)
