"""Distributed checkpoints beyond tensors: objects in converted files, names in plans, paths, and groups of ranks.

https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.parallel.checkpoint_files import blank, unlike
from cases.model import tiny
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Distributed checkpoints"


def weights(*names: str) -> dict[str, Any]:
    return {name: tiny.values(name, (5, 3)) for name in names}


def with_objects() -> dict[str, Any]:
    """A state as scripts save it with torch.save: weights, and arguments that only a full unpickling reads."""
    return {**weights("first", "second"), "arguments": argparse.Namespace(rate=0.5, steps=3)}


@call(GROUP, phase=Phase.LOAD, requires=("dcp_checkpoint_id",))
def dcp_converts_objects(ctx: Context) -> Iterator[Check]:
    """torch_save_to_dcp and dcp_to_torch_save keep objects beside tensors, as torch.save stored them."""
    import torch
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save, torch_save_to_dcp

    state = with_objects()
    torch.save(state, ctx.kept / "whole.pt")
    torch_save_to_dcp(str(ctx.kept / "whole.pt"), str(ctx.kept / "parts"))
    found: dict[str, Any] = {**blank(weights("first", "second")), "arguments": None}
    dcp.load(found, checkpoint_id=str(ctx.kept / "parts"))
    yield equal("tensors that differ", unlike(found, weights("first", "second")), "none")
    yield equal("an object", str(found["arguments"]), str(state["arguments"]))
    dcp_to_torch_save(str(ctx.kept / "parts"), str(ctx.kept / "again.pt"))
    again = torch.load(ctx.kept / "again.pt", weights_only=False)
    yield equal("tensors that differ, converted back", unlike(again, weights("first", "second")), "none")
    yield equal("an object, converted back", str(again["arguments"]), str(state["arguments"]))


@call(GROUP, phase=Phase.LOAD, ranks=2, requires=("dcp_checkpoint_id", "broadcasting_reader"))
def dcp_broadcasts_beside_objects(ctx: Context) -> Iterator[Check]:
    """BroadcastingTorchSaveReader reads the tensors of a file that has objects beside them."""
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.format_utils import BroadcastingTorchSaveReader, DynamicMetaLoadPlanner

    path = ctx.kept / f"whole-{ctx.place.rank}.pt"
    torch.save(with_objects(), path)
    dist.barrier()
    found = blank(weights("first", "second"))
    reader = BroadcastingTorchSaveReader()
    dcp.load(found, planner=DynamicMetaLoadPlanner(), storage_reader=reader, checkpoint_id=path)
    yield equal("tensors that differ", unlike(found, weights("first", "second")), "none")


@call(GROUP, phase=Phase.SAVE, ranks=2, requires=("dcp_cached_plans",))
def dcp_plans_of_other_names(ctx: Context) -> Iterator[Check]:
    """With enable_plan_caching, saves of other names, dtypes or parts of the same sizes are stored as what they are.

    A save with the same names and sizes uses the plan again, and has its own values.
    """
    import torch.distributed.checkpoint as dcp

    contents = [weights("a", "b"), weights("c", "d"), weights("a", "d"), weights("a", "d")]
    contents.append({name: each.double() for name, each in weights("a", "d").items()})
    contents.append({name: each + 1 for name, each in weights("a", "d").items()})
    for number, state in enumerate(contents):
        folder = str(ctx.kept / str(number))
        dcp.save(state, checkpoint_id=folder, planner=dcp.DefaultSavePlanner(enable_plan_caching=True))
        found = blank(state)
        dcp.load(found, checkpoint_id=folder)
        yield equal(f"tensors that differ, save {number}", unlike(found, state), "none")


@call(GROUP, phase=Phase.SAVE, requires=("dcp_checkpoint_id",))
def dcp_metadata(ctx: Context) -> Iterator[Check]:
    """The metadata of a checkpoint state where it is, its tensors with sizes and types, and a new id each time."""
    import torch.distributed.checkpoint as dcp

    state = {**weights("first"), "nested": {"second": tiny.values("second", (4,)).double(), "step": 3}}
    identities = []
    for name in ("one", "other"):
        folder = ctx.kept / name
        dcp.save(state, checkpoint_id=str(folder))
        reader = dcp.FileSystemReader(str(folder))
        found = reader.read_metadata()
        stored = getattr(found, "storage_meta", None)
        if stored is not None:
            yield equal(f"where it was saved, {name}", str(stored.checkpoint_id), str(folder))
            identities.append(str(stored.save_id))
        yield equal(f"where it is read, {name}", str(reader.checkpoint_id), str(folder))
        kinds = {
            key: (tuple(each.size), str(each.properties.dtype))
            for key, each in found.state_dict_metadata.items()
            if hasattr(each, "size")
        }
        wanted = {"first": ((5, 3), "torch.float32"), "nested.second": ((4,), "torch.float64")}
        yield equal(f"tensors of the metadata, {name}", str(sorted(kinds.items())), str(sorted(wanted.items())))
    yield equal("ids that are the same", len(identities) - len(set(identities)), 0)


@call(GROUP, phase=Phase.SAVE, ranks=2, requires=("dcp_checkpoint_id",))
def dcp_group_of_ranks(ctx: Context) -> Iterator[Check]:
    """With process_group, the ranks of a group alone save and load, while others do something else.

    Each rank has a group of its own, and saves other values. Either rank can make the plan, by coordinator_rank.
    """
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp

    groups = [dist.new_group([rank]) for rank in range(ctx.place.world_size)]
    own = groups[ctx.place.rank]
    folder = str(ctx.kept.parent / f"{ctx.kept.name}-{ctx.place.rank}")
    state = {"weight": tiny.values(f"of {ctx.place.rank}", (5, 3)), "step": ctx.place.rank}
    if ctx.place.rank == 0:  # alone: a collective of both ranks would wait for ever
        dcp.save(state, checkpoint_id=folder, process_group=own)
        found = {"weight": state["weight"].clone().zero_(), "step": -1}
        dcp.load(found, checkpoint_id=folder, process_group=own)
        yield equal("tensors that differ", unlike({"weight": found["weight"]}, {"weight": state["weight"]}), "none")
        yield equal("number", found["step"], 0)
    dist.barrier()
    yield from coordinated(ctx)


def coordinated(ctx: Context) -> Iterator[Check]:
    """Save and load with each rank as the one that makes the plan of all."""
    import torch.distributed.checkpoint as dcp

    for rank in range(ctx.place.world_size):
        folder = str(ctx.kept / f"coordinated-{rank}")
        state = {"weight": tiny.values(f"coordinated {rank}", (5, 3)), "step": rank}
        dcp.save_state_dict(state, dcp.FileSystemWriter(folder), coordinator_rank=rank)
        found = {"weight": state["weight"].clone().zero_(), "step": -1}
        dcp.load_state_dict(found, dcp.FileSystemReader(folder), coordinator_rank=rank)
        differ = unlike({"weight": found["weight"]}, {"weight": state["weight"]})
        yield equal(f"tensors that differ, coordinator_rank={rank}", differ, "none")
        yield equal(f"number, coordinator_rank={rank}", found["step"], rank)


@call(GROUP, phase=Phase.SAVE, ranks=2, requires=("dcp_checkpoint_id",))
def dcp_shares_out_bytes(ctx: Context) -> Iterator[Check]:
    """Tensors that every rank holds are written once, and by bytes rather than by number, shared out among the ranks.

    Each rank holds the same tensors, as under DDP, so that any rank may write any of them.
    """
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp

    large, small, count = 1 << 16, 1 << 12, 15  # numbers of the first tensor, and of each of the others
    state = {f"{number:02}": torch.ones(small if number else large) * number for number in range(count + 1)}
    folder = ctx.kept / "shared-out"
    dcp.save(state, checkpoint_id=str(folder))
    dist.barrier()
    sizes = [each.stat().st_size for each in sorted(folder.glob("*.distcp"))]
    whole = 4 * (large + small * count)
    yield equal("files", len(sizes), ctx.place.world_size)
    yield at_most("bytes in files over bytes of the tensors", sum(sizes) / whole, 1.2)
    yield at_most("difference of the files, in small tensors", (max(sizes) - min(sizes)) / (4 * small), 2.0)
