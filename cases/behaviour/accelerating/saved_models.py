"""Files that accelerate writes: models in one file and in parts, and the state of a training between two of them.

https://huggingface.co/docs/accelerate/package_reference/accelerator
"""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.parallel import offloading
from cases.behaviour.parallel.clipping import accelerator
from cases.space.verdict import Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "accelerate: saved models"
SIZES = {"whole": "1MB", "two layers": 1500, "less than a weight": 10}  # of a part; a layer has 760 bytes


def read(folder: Path) -> dict[str, dict[str, Any]]:
    """The tensors of each file of weights in a folder."""
    import torch
    from safetensors.torch import load_file

    found = {path.name: load_file(path) for path in sorted(folder.glob("*.safetensors"))}
    found |= {path.name: torch.load(path, weights_only=True) for path in sorted(folder.glob("*.bin"))}
    return found


def weights() -> dict[str, Any]:
    """What a saved model has: each tensor once, though its head is tied to its embeddings."""
    return {name: each for name, each in offloading.model().state_dict().items() if name != "head.weight"}


def stored(parts: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {name: each for part in parts.values() for name, each in part.items() if name != "head.weight"}


def wrong_tensors(found: dict[str, Any], wanted: dict[str, Any]) -> str:
    differ = [name for name in wanted if name in found and offloading.differing(found[name], wanted[name])]
    return ", ".join(sorted({*differ, *(found.keys() ^ wanted.keys())})) or "none"


@call(GROUP, phase=Phase.SAVE)
def accelerate_saves_in_parts(ctx: Context) -> Iterator[Check]:
    """save_model writes each tensor once, in parts of max_shard_size with an index that says where and how many bytes.

    A weight that is larger has a part of its own. Both formats load again by load_checkpoint_in_model.
    """
    from accelerate import load_checkpoint_in_model

    made = accelerator(ctx)
    wanted = weights()
    for (title, size), safe in product(SIZES.items(), (True, False)):
        name = f"{title}, safe_serialization={safe}"
        folder = ctx.kept / f"{title.replace(' ', '-')}-{safe}"
        made.save_model(offloading.model(), str(folder), max_shard_size=size, safe_serialization=safe)
        parts = read(folder)
        yield equal(f"tensors off or missing, {name}", wrong_tensors(stored(parts), wanted), "none")
        yield equal(f"parts, {name}", len(parts) > 1, title != "whole")
        bytes_of = {part: sum(each.nbytes for each in stored({"": held}).values()) for part, held in parts.items()}
        limit = size if isinstance(size, int) else 10**6
        over = [part for part, number in bytes_of.items() if number > limit and len(stored({"": parts[part]})) > 1]
        yield equal(f"parts over the limit, {name}", ", ".join(over) or "none", "none")
        yield from indexed(folder, parts, name)
        fresh = offloading.model()
        for each in fresh.parameters():
            each.data.zero_()
        load_checkpoint_in_model(fresh, folder)
        yield equal(f"tensors off, loaded, {name}", wrong_tensors(stored({"": fresh.state_dict()}), wanted), "none")


def indexed(folder: Path, parts: dict[str, dict[str, Any]], name: str) -> Iterator[Check]:
    """Compare the index of a model in parts with its files; a model in one file has none."""
    found = [path.name for path in folder.glob("*.index.json")]
    if len(parts) == 1:
        yield equal(f"indices, {name}", len(found), 0)
        return
    text = (folder / found[0]).read_text(encoding="utf-8") if found else ""
    index = json.loads(text) if text else {"weight_map": {}, "metadata": {}}
    where = {tensor: part for part, held in parts.items() for tensor in held}
    yield equal(f"index of the tensors, {name}", index["weight_map"] == where, bound=True)
    total = sum(each.nbytes for each in stored(parts).values())
    yield equal(f"total_size, {name}", int(index["metadata"].get("total_size", 0)), total)


def saved_twice(ctx: Context, *, safe: bool) -> tuple[Path, set[str], dict[str, Any]]:
    """Save in many parts, then other weights in fewer into the same folder: it, the first parts, the other weights."""
    import torch

    made, changed = accelerator(ctx), offloading.model()
    folder = ctx.kept / f"again-{safe}"
    folder.mkdir()
    (folder / "notes.txt").write_text("kept")
    made.save_model(offloading.model(), folder, max_shard_size=100, safe_serialization=safe)
    first = set(read(folder))
    with torch.no_grad():
        for each in changed.parameters():
            each.mul_(2)
    made.save_model(changed, folder, max_shard_size=1500, safe_serialization=safe)
    return folder, first, {name: each for name, each in changed.state_dict().items() if name != "head.weight"}


@call(GROUP, phase=Phase.SAVE)
def accelerate_saves_again(ctx: Context) -> Iterator[Check]:
    """save_model into a folder that exists replaces the weights there: its index names the new ones alone.

    Other files stay.
    """
    for safe in (True, False):
        folder, first, wanted = saved_twice(ctx, safe=safe)
        index = json.loads(next(folder.glob("*.index.json")).read_text(encoding="utf-8"))["weight_map"]
        parts = read(folder)
        found = {tensor: parts[part][tensor] for tensor, part in index.items() if tensor != "head.weight"}
        name = f"safe_serialization={safe}"
        yield equal(f"tensors off or missing, {name}", wrong_tensors(found, wanted), "none")
        yield at_most(f"parts, {name}", len(set(index.values())), len(first) - 1)
        yield equal(f"another file, {name}", (folder / "notes.txt").read_text(), "kept")


def left(ctx: Context, *, safe: bool) -> Check:
    folder, first, _ = saved_twice(ctx, safe=safe)
    return equal("parts of the first save that are left", len(first & set(read(folder))), 0)


@call(GROUP, phase=Phase.SAVE)
def accelerate_saves_again_pickled(ctx: Context) -> Iterator[Check]:
    """save_model with safe_serialization=False removes the parts of a former save with more of them."""
    yield left(ctx, safe=False)


@call(GROUP, phase=Phase.SAVE)
def accelerate_saves_again_safely(ctx: Context) -> Iterator[Check]:
    """save_model to safetensors removes the parts of a former save with more of them, as it does with other files."""
    yield left(ctx, safe=True)


@call(GROUP, phase=Phase.SAVE, ranks=2)
def accelerate_saves_wrapped(ctx: Context) -> Iterator[Check]:
    """save_model and get_state_dict of a model that prepare wrapped have its own names, and rank 0 writes once."""
    made = accelerator(ctx)
    prepared = made.prepare(offloading.model())
    yield equal(
        "tensors off or missing, get_state_dict",
        wrong_tensors(stored({"": made.get_state_dict(prepared)}), weights()),
        "none",
    )
    folder = ctx.kept.parent / f"{ctx.kept.name}-shared"
    made.save_model(prepared, folder, max_shard_size=1500)
    made.wait_for_everyone()
    yield equal("tensors off or missing", wrong_tensors(stored(read(folder)), weights()), "none")


class StepCounter:
    """An object of a script that a checkpoint keeps."""

    def __init__(self) -> None:
        self.value = 0

    def state_dict(self) -> dict[str, int]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.value = state["value"]


def trained(made: Any, seed: int, **loader: Any) -> list[Any]:
    """A prepared model after a step, with its optimiser, schedule and loader."""
    import torch

    torch.manual_seed(seed)
    model = torch.nn.Linear(3, 1)
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimiser, 1, gamma=0.5)
    rows = torch.utils.data.DataLoader(torch.randn(8, 3), batch_size=2, shuffle=True, **loader)
    prepared = list(made.prepare(model, optimiser, schedule, rows))
    for batch in prepared[3]:
        made.backward(prepared[0](batch).sum())
        prepared[1].step()
        prepared[2].step()
        prepared[1].zero_grad()
        made.step += 1
    return prepared


@call(GROUP, phase=Phase.SAVE)
def accelerate_saves_after_clearing(ctx: Context) -> Iterator[Check]:
    """free_memory and clear forget all that prepare was given, so that save_state writes the next training alone.

    "You should call this method between two trainings with different models/optimizers. Also will reset
    Accelerator.step to 0" (documentation of free_memory).
    """
    from accelerate.utils import DataLoaderConfiguration

    for method in ("free_memory", "clear"):
        made = accelerator(ctx, dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True))
        first = trained(made, 1)
        written = files(made, ctx.kept / f"{method}-first")
        released = getattr(made, method)(*first)
        yield equal(f"objects that are left, {method}", str([each is None for each in released]), str([True] * 4))
        yield equal(f"step, {method}", made.step, 0)
        second = trained(made, 2)
        wanted = {name: each.detach().clone() for name, each in second[0].state_dict().items()}
        again = files(made, ctx.kept / f"{method}-second")
        yield equal(f"files of the second training, {method}", str(again), str(written))
        for each in second[0].parameters():
            each.data.zero_()
        made.load_state(ctx.kept / f"{method}-second")
        off = [name for name, each in second[0].state_dict().items() if offloading.differing(each, wanted[name])]
        yield equal(f"tensors off after load_state, {method}", ", ".join(off) or "none", "none")
        getattr(made, method)(*second)


def files(made: Any, folder: Path) -> list[str]:
    """The names of the files that save_state writes."""
    made.save_state(str(folder))
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


@call(GROUP, phase=Phase.SAVE, ranks=2)
def accelerate_saves_on_each_node(ctx: Context) -> Iterator[Check]:
    """With save_on_each_node=True, the first process of each node writes a whole checkpoint, and without, one node.

    Both ranks are first on a node of their own; each node has its own folder. Random states are of each process.
    """
    from accelerate.state import PartialState
    from accelerate.utils import ProjectConfiguration

    shown = {}
    for each_node in (False, True):
        made = accelerator(ctx, project_config=ProjectConfiguration(save_on_each_node=each_node))
        PartialState().local_process_index = 0  # a machine of its own for each rank
        counter = StepCounter()
        made.register_for_checkpointing(counter)
        trained(made, 1)
        found = files(made, Path(f"{ctx.kept}-node{ctx.place.rank}-{each_node}"))
        shown[each_node] = [name for name in found if not name.startswith("random_states")]
        made.free_memory()
        made._custom_objects.clear()  # noqa: SLF001 - which free_memory keeps
    yield at_least("files of this node, each node", len(shown[True]), 4)
    yield equal("a counter, each node", "custom_checkpoint_0.pkl" in shown[True], bound=True)
    expected = len(shown[True]) if ctx.place.rank == 0 else 0
    yield equal("files of this node, one node", len(shown[False]), expected)
