"""Distributed checkpoints as files: what comes back, of which kinds of values, and in how many files.

https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.parallel import networks
from cases.behaviour.parallel.flat_strategies import join
from cases.behaviour.parallel.networks import network
from cases.model import tiny
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "Distributed checkpoints"
SHARED_BYTES = 20_000  # more than a rank's own tensors take
DTYPES = ("float32", "float64", "bfloat16", "float16", "int64", "int8", "uint8", "bool", "complex64")


def tensors(seed: str = "saved") -> dict[str, Any]:
    """Tensors of every dtype and of awkward shapes and strides."""
    import torch

    values = 100 * tiny.values(seed, (5, 3))
    whole = 100 * tiny.values(f"{seed} whole", (6, 8))
    return {
        **{name: values.abs().to(getattr(torch, name)) for name in DTYPES},
        "a number": values[0, 0].clone(),
        "nothing": values[:0],
        "transposed": whole.T,
        "a part": whole[1:4, ::2],
        "its neighbour": whole[4:, 1:3],
        "special": torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 1e-45]),
    }


def bits(tensor: Any) -> bytes:
    import torch

    return bytes(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())


def unlike(found: dict[str, Any], expected: dict[str, Any]) -> str:
    """The names of tensors that are missing, or differ in a bit, in dtype or in shape."""
    wrong = [
        name
        for name, wanted in expected.items()
        if name not in found
        or found[name].dtype != wanted.dtype
        or found[name].shape != wanted.shape
        or bits(found[name]) != bits(wanted)
    ]
    return "+".join(sorted(wrong)) or "none"


def blank(state: dict[str, Any]) -> dict[str, Any]:
    import torch

    return {name: torch.zeros_like(each) for name, each in state.items()}


@call(GROUP, phase=Phase.SAVE, requires=("dcp_checkpoint_id",))
def dcp_files_of_tensors(ctx: Context) -> Iterator[Check]:
    """Tensors of every dtype, stride and shape come back bit for bit, in one file or many, by one thread or several.

    A part of a tensor does not store the whole one.
    """
    import torch
    import torch.distributed.checkpoint as dcp

    expected = tensors()
    large = torch.zeros(300_000)
    for single, threads, synced in product((True, False), (1, 3), (True, False)):
        name = f"{single}-{threads}-{synced}"
        writer = dcp.FileSystemWriter(
            ctx.kept / name, single_file_per_rank=single, thread_count=threads, sync_files=synced
        )
        dcp.save({**expected, "small": large[:10]}, storage_writer=writer)
        found = {**blank(expected), "small": torch.ones(10)}
        dcp.load(found, checkpoint_id=str(ctx.kept / name))
        kind = f"single file: {single}, threads: {threads}, synced: {synced}"
        yield equal(f"tensors that differ, {kind}", unlike(found, {**expected, "small": large[:10]}), "none")
        files = [each for each in (ctx.kept / name).iterdir() if each.name.endswith(".distcp")]
        yield equal(f"files, {kind}", len(files), threads if single else len(expected) + 1)
        yield at_most(f"bytes, {kind}", sum(each.stat().st_size for each in files), 100_000.0)


@call(GROUP, phase=Phase.SAVE, requires=("dcp_checkpoint_id",))
def dcp_nested_values(ctx: Context) -> Iterator[Check]:
    """Values of every kind in nested dictionaries and lists come back, as do objects with a state of their own."""
    import torch.distributed.checkpoint as dcp

    class Counter:
        """An object with state_dict and load_state_dict."""

        def __init__(self, count: int) -> None:
            self.count, self.moment = count, tiny.values(str(count), (3,))

        def state_dict(self) -> dict[str, Any]:
            return {"count": self.count, "moment": self.moment}

        def load_state_dict(self, given: dict[str, Any]) -> None:
            self.count, self.moment = given["count"], given["moment"]

    def state(seed: int) -> dict[str, Any]:
        first, second = tiny.values(f"first {seed}", (2, 3)), tiny.values(f"second {seed}", (4,))
        return {
            "numbers": {"whole": seed, "real": seed / 3, "text": f"text {seed}", "none": None, "yes": seed == 1},
            "pair": (seed, -seed),
            "texts": [f"a{seed}", f"b{seed}"],
            "groups": [{"lr": seed / 7, "params": ["weight", "bias"]}, {"lr": seed / 9, "params": []}],
            "tensors": [first, {"of a list": second}],
            "a.dotted": {"name": first + 1},
            "bytes": bytes([seed, 0, 255]),
            "counter": Counter(seed),
        }

    dcp.save(state(1), checkpoint_id=str(ctx.kept / "nested"))
    found, expected = state(2), state(1)
    counter = found["counter"]
    dcp.load(found, checkpoint_id=str(ctx.kept / "nested"))
    for name in ("numbers", "pair", "texts", "groups", "bytes"):
        yield equal(name, str(found[name]), str(expected[name]))
    yield equal("tensor of a list", bool((found["tensors"][0] == expected["tensors"][0]).all()), bound=True)
    same = found["tensors"][1]["of a list"] == expected["tensors"][1]["of a list"]
    yield equal("tensor of a dictionary of a list", bool(same.all()), bound=True)
    same = found["a.dotted"]["name"] == expected["a.dotted"]["name"]
    yield equal("below a dotted name", bool(same.all()), bound=True)
    yield equal("count of an object", counter.count, 1)
    yield equal("tensor of an object", bool((counter.moment == expected["counter"].moment).all()), bound=True)


@call(GROUP, phase=Phase.LOAD, requires=("dcp_partial_load",))
def dcp_partial_loads(ctx: Context) -> Iterator[Check]:
    """Loading takes what the given state names: a part is fine, a missing name or another size raises.

    With allow_partial_load, a name that the checkpoint lacks keeps its value. A reader of a script may change the plan.
    """
    import torch
    import torch.distributed.checkpoint as dcp

    folder = str(ctx.kept / "partial")
    expected = networks.weights(network())
    dcp.save({"model": expected, "step": 3}, checkpoint_id=folder)
    part = {"model": {"second.weight": torch.zeros_like(expected["second.weight"])}}
    dcp.load(part, checkpoint_id=folder)
    yield networks.off("part of the state off", part["model"], {"second.weight": expected["second.weight"]}, 0.0)
    yield equal("names after loading a part", str(sorted(part)), "['model']")

    more: dict[str, Any] = {"model": {**blank(expected), "fifth.weight": torch.ones(3)}, "step": 1, "rate": 0.5}
    yield equal("a missing name raises", raises(more, folder), bound=True)
    more = {"model": {**blank(expected), "fifth.weight": torch.ones(3)}, "step": 1, "rate": 0.5}
    dcp.load(more, checkpoint_id=folder, planner=dcp.DefaultLoadPlanner(allow_partial_load=True))
    kept = {**expected, "fifth.weight": torch.ones(3)}
    yield networks.off("partly loaded state off", more["model"], kept, 0.0)
    yield equal("values, partly loaded", f"{more['step']} {more['rate']}", "3 0.5")

    for name, shape in (("more rows", (14, 7)), ("fewer columns", (13, 6)), ("another rank", (91,))):
        other = {"model": {"first.weight": torch.zeros(shape)}}
        yield equal(f"another size raises: {name}", raises(other, folder), bound=True)
    yield from planned_by_readers(expected, folder)


def planned_by_readers(expected: dict[str, Any], folder: str) -> Iterator[Check]:
    """A reader's prepare_local_plan and prepare_global_plan decide what is read: StorageReader documents both."""
    import torch.distributed.checkpoint as dcp

    def without(plan: Any, name: str) -> Any:
        return replace(plan, items=[each for each in plan.items if name not in each.dest_index.fqn])

    class Choosing(dcp.FileSystemReader):  # type: ignore[misc]  # torch has no types here
        def prepare_local_plan(self, plan: Any) -> Any:
            return without(super().prepare_local_plan(plan), "second.")

        def prepare_global_plan(self, plans: Any) -> Any:
            return [without(plan, "third.") for plan in super().prepare_global_plan(plans)]

    found = {"model": blank(expected)}
    dcp.load(found, storage_reader=Choosing(folder))
    left = {name: name.startswith(("second.", "third.")) for name in expected}
    wanted = {name: 0 * each if left[name] else each for name, each in expected.items()}
    yield networks.off("weights off, chosen by a reader", found["model"], wanted, 0.0)


def raises(state: dict[str, Any], folder: str) -> bool:
    import torch.distributed.checkpoint as dcp

    try:
        dcp.load(state, checkpoint_id=folder)
    except (dcp.api.CheckpointException, ValueError, RuntimeError):
        return True
    return False


@call(GROUP, phase=Phase.SAVE, ranks=2, requires=("dcp_lowest_rank",))
def dcp_replicated_once(ctx: Context) -> Iterator[Check]:
    """Tensors that both ranks hold are stored once, by both ranks in parts or by the lowest; own ones of each rank too.

    https://docs.pytorch.org/docs/stable/distributed.checkpoint.html#torch.distributed.checkpoint.DefaultSavePlanner
    """
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp

    rank = ctx.place.rank
    shared = {f"shared {number}": tiny.values(f"shared {number}", (5000,)) for number in range(4)}
    own = [{f"of {each}": tiny.values(f"of {each}", (30 + each,))} for each in range(2)]
    for lowest in (False, True):
        folder = ctx.kept / f"lowest-{lowest}"
        planner = dcp.DefaultSavePlanner(dedup_save_to_lowest_rank=lowest)
        dcp.save({**shared, **own[rank], "step": 5}, checkpoint_id=str(folder), planner=planner)
        dist.barrier()
        sizes = [sum(each.stat().st_size for each in folder.glob(f"__{number}_*")) for number in range(2)]
        yield at_most(f"bytes stored over bytes, lowest: {lowest}", sum(sizes) / 80_000, 1.3)
        yield equal(f"rank 1 stores shared tensors, lowest: {lowest}", sizes[1] > SHARED_BYTES, bound=not lowest)
        found = {**blank(shared), **blank(own[rank]), "step": 0}
        dcp.load(found, checkpoint_id=str(folder))
        yield equal(f"tensors that differ, lowest: {lowest}", unlike(found, {**shared, **own[rank]}), "none")
        yield equal(f"number, lowest: {lowest}", found["step"], 5)
        other = blank(own[1 - rank])  # what the other rank alone had
        dcp.load(other, checkpoint_id=str(folder))
        yield equal(f"tensors of the other rank that differ, lowest: {lowest}", unlike(other, own[1 - rank]), "none")


PLACED = ("rows", "columns", "whole")


@call(GROUP, phase=Phase.RELOAD, ranks=2, requires=("public_placements",))
def dcp_other_placements(ctx: Context) -> Iterator[Check]:
    """Tensors saved in shards of rows, of columns or whole come back in any other placement.

    The sizes leave ranks with fewer rows, with none, and with a dimension of its own.
    """
    import torch.distributed.checkpoint as dcp

    shapes = {"5 x 3": (5, 3), "1 x 4": (1, 4), "2 x 1 x 3": (2, 1, 3), "7": (7,), "1": (1,)}
    expected = {name: tiny.values(name, shape) for name, shape in shapes.items()}
    for saved in PLACED:
        dcp.save({n: placed(ctx, each, saved) for n, each in expected.items()}, checkpoint_id=str(ctx.kept / saved))
    for saved, loading in product(PLACED, (*PLACED, "plain")):
        found = {name: placed(ctx, each, loading) for name, each in blank(expected).items()}
        dcp.load(found, checkpoint_id=str(ctx.kept / saved))
        whole = {name: networks.whole(each) for name, each in found.items()}
        yield equal(f"tensors that differ, {saved} into {loading}", unlike(whole, expected), "none")


def placed(ctx: Context, tensor: Any, how: str) -> Any:
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    from cases.behaviour.parallel.sharded_networks import mesh

    if how == "plain":
        return tensor
    last = max(tensor.dim() - 1, 0)
    return distribute_tensor(tensor, mesh(ctx), [{"rows": Shard(0), "columns": Shard(last), "whole": Replicate()}[how]])


@call(GROUP, phase=Phase.SAVE, requires=("dcp_checkpoint_id",))
def dcp_async_save(ctx: Context) -> Iterator[Check]:
    """async_save stores the values that it staged, whatever a script does to the tensors before the files are there.

    Each of several saves has its own values, also with a stager that the script uses again. In newer releases, a
    script of one process needs no process group.
    """
    import torch.distributed as dist

    needs_group = len(stagers()) == 1  # as torch 2.3 does
    alone = [] if needs_group or dist.is_initialized() else [*saved_in_background(ctx, "alone", {})]
    join(ctx)
    for kind, more in stagers().items():
        yield from saved_in_background(ctx, kind, more)
    yield from alone


def saved_in_background(ctx: Context, kind: str, more: dict[str, Any]) -> Iterator[Check]:
    """Save three times, and change the tensors as soon as they are staged."""
    import torch.distributed.checkpoint as dcp

    for number in range(3):
        state = {**tensors(f"save {number}"), "nested": {"step": number}}
        if number == 2:  # noqa: PLR2004 - the last save has other contents
            state |= {"late": tiny.values("late", (3,))}
        expected = {name: each.clone() for name, each in state.items() if name != "nested"}
        folder = str(ctx.kept / f"{kind}-{number}")
        done = dcp.async_save(state, checkpoint_id=folder, **more)
        if hasattr(done, "staging_completion"):
            done.staging_completion.result()
        for name in expected:
            state[name].zero_()
        getattr(done, "upload_completion", done).result()
        found = {**blank(expected), "nested": {"step": -1}}
        dcp.load(found, checkpoint_id=folder)
        yield equal(f"tensors that differ, save {number}, {kind}", unlike(found, expected), "none")
        yield equal(f"number, save {number}, {kind}", found["nested"]["step"], number)


def stagers() -> dict[str, dict[str, Any]]:
    """Arguments of async_save: the default, and a stager that later saves use again, if a version has one for CPUs."""
    try:
        from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
    except ImportError:
        return {"default": {}}
    none = {"use_pinned_memory": False, "use_shared_memory": False, "use_non_blocking_copy": False}
    chosen = {"one stager": False, "one stager with a thread": True}
    return {
        "default": {},
        **{
            name: {"async_stager": DefaultStager(StagingOptions(**none, use_async_staging=apart))}
            for name, apart in chosen.items()
        },
    }


@call(GROUP, phase=Phase.SAVE, ranks=2, requires=("dcp_cached_plans", "public_placements"))
def dcp_cached_plans(ctx: Context) -> Iterator[Check]:
    """With enable_plan_caching, each of several saves holds its own values, also after names or sizes change."""
    import torch.distributed.checkpoint as dcp

    rank = ctx.place.rank
    contents = [("a", 4), ("a", 4), ("a", 6), ("b", 6), ("b", 6)]
    for number, (name, size) in enumerate(contents):
        state = {
            name: tiny.values(f"{name} {number}", (size,)),
            f"own {rank}": tiny.values(f"own {rank} {number}", (3,)),
            "rows": placed(ctx, tiny.values(f"rows {number}", (size, 2)), "rows"),
        }
        folder = str(ctx.kept / str(number))
        dcp.save(state, checkpoint_id=folder, planner=dcp.DefaultSavePlanner(enable_plan_caching=True))
        found = {each: tensor.clone().zero_() for each, tensor in state.items()}
        dcp.load(found, checkpoint_id=folder)
        whole, expected = ({each: networks.whole(t) for each, t in held.items()} for held in (found, state))
        yield equal(f"tensors that differ, save {number}", unlike(whole, expected), "none")


@call(GROUP, phase=Phase.LOAD, requires=("dcp_checkpoint_id",))
def dcp_converted_files(ctx: Context) -> Iterator[Check]:
    """dcp_to_torch_save and torch_save_to_dcp keep each tensor and number, and their nesting.

    https://docs.pytorch.org/tutorials/recipes/distributed_checkpoint_recipe.html#formats
    """
    import torch
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save, torch_save_to_dcp

    moments = {"weight": {"step": 3, "exp_avg": tiny.values("moment", (4,))}}
    optimiser = {"state": moments, "param_groups": [{"lr": 0.5}]}
    state = {"model": tensors(), "optimiser": optimiser}
    dcp.save(state, checkpoint_id=str(ctx.kept / "first"))
    dcp_to_torch_save(str(ctx.kept / "first"), str(ctx.kept / "whole.pt"))
    whole = torch.load(ctx.kept / "whole.pt", weights_only=False)
    yield equal("tensors that differ in one file", unlike(whole["model"], state["model"]), "none")
    yield equal("optimiser in one file", str(whole["optimiser"]), str(optimiser))
    torch_save_to_dcp(str(ctx.kept / "whole.pt"), str(ctx.kept / "again"))
    found = {"model": blank(state["model"])}
    dcp.load(found, checkpoint_id=str(ctx.kept / "again"))
    yield equal("tensors that differ in a checkpoint again", unlike(found["model"], state["model"]), "none")


@call(GROUP, phase=Phase.LOAD, ranks=2, requires=("dcp_checkpoint_id", "broadcasting_reader"))
def dcp_broadcast_file(ctx: Context) -> Iterator[Check]:
    """BroadcastingTorchSaveReader lets rank 0 alone read a file of torch.save, and every rank has its values.

    DynamicMetaLoadPlanner takes names and sizes from the given state, which may be a part of the file.
    """
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.format_utils import BroadcastingTorchSaveReader, DynamicMetaLoadPlanner

    expected = networks.weights(network())
    path = ctx.kept / f"whole-{ctx.place.rank}.pt"
    torch.save(expected if ctx.place.rank == 0 else {}, path)
    dist.barrier()
    part = {name: each for name, each in expected.items() if not name.startswith("third")}
    for wanted in (expected, part):
        state = blank(wanted)
        reader = BroadcastingTorchSaveReader()
        dcp.load(state, planner=DynamicMetaLoadPlanner(), storage_reader=reader, checkpoint_id=path)
        yield equal(f"tensors that differ, of {len(wanted)}", unlike(state, wanted), "none")
