"""What a distributed checkpoint writes: a key for each value of nested states, and files of like sizes.

https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.parallel.checkpoint_files import GROUP, blank, unlike
from cases.model import tiny
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

DCP = ("dcp_checkpoint_id",)
SIZES = (40, 30, 24, 24, 16, 10, 8, 4, 4)  # thousands of numbers


@call(GROUP, phase=Phase.SAVE, requires=DCP)
def dcp_keys_of_nested_states(ctx: Context) -> Iterator[Check]:
    """Values of nested dictionaries, and of lists with tensors or dictionaries, have keys of their own with dots.

    So a part of them can be read by name, and a checkpoint of another release is read alike. Lists of plain values are
    one value.
    """
    import torch.distributed.checkpoint as dcp

    tensor = tiny.values("kept", (3, 2))
    state = {
        "model": {"layer": {"weight": tensor, "count": 3}},
        "optim": {
            "state": {"layer.weight": {"step": tensor[0], "exp_avg": tensor + 1}},
            "param_groups": [{"lr": 0.5, "betas": (0.9, 0.99), "params": ["layer.weight"]}],
        },
        "mixed": [tensor, {"inner": 7, "deep": {"er": tensor + 2}}],
        "plain": [1, 2, 3],
        "text": "words",
        "nothing": {},
    }
    dcp.save(state, checkpoint_id=str(ctx.kept / "nested"))
    found = dcp.FileSystemReader(str(ctx.kept / "nested")).read_metadata()
    tensors = {name for name, each in found.state_dict_metadata.items() if hasattr(each, "size")}
    wanted = {
        "model.layer.weight",
        "optim.state.layer.weight.step",
        "optim.state.layer.weight.exp_avg",
        "mixed.0",
        "mixed.1.deep.er",
    }
    yield equal("keys of tensors", " ".join(sorted(tensors)), " ".join(sorted(wanted)))
    values = {"model.layer.count", "mixed.1.inner", "plain", "text"}
    lost = values - found.state_dict_metadata.keys()
    yield equal("keys of values that are missing", " ".join(sorted(lost)) or "none", "none")
    groups = sorted(name for name in found.state_dict_metadata if name.startswith("optim.param_groups"))
    wanted_groups = [f"optim.param_groups.0.{name}" for name in ("betas", "lr", "params")]
    yield equal("keys of groups", " ".join(groups), " ".join(wanted_groups))
    part = {"mixed.1.deep.er": tensor * 0}
    dcp.load(part, checkpoint_id=str(ctx.kept / "nested"))
    yield equal("a part by its key", unlike(part, {"mixed.1.deep.er": tensor + 2}), "none")
    paths = {key: ".".join(map(str, path)) for key, path in (found.planner_data or {}).items()}
    yield equal("paths of keys", str([key for key, path in paths.items() if key != path]), "[]")


@call(GROUP, phase=Phase.SAVE, requires=DCP)
def dcp_files_of_like_sizes(ctx: Context) -> Iterator[Check]:
    """With several threads, a rank writes as many files, of which none is larger than the others by a tensor.

    What is read back is the same, whichever file holds it.
    """
    import torch.distributed.checkpoint as dcp

    state: dict[str, Any] = {f"tensor {n}": tiny.values(f"{n}", (size * 1000,)) for n, size in enumerate(SIZES)}
    state["words"] = ["some", "words"]
    state["count"] = 5
    for threads in (1, 2, 3):
        folder = ctx.kept / f"by-{threads}"
        dcp.save(state, storage_writer=dcp.FileSystemWriter(folder, thread_count=threads))
        files = [each.stat().st_size for each in folder.iterdir() if each.name.endswith(".distcp")]
        yield equal(f"files, {threads} threads", len(files), threads)
        slack = (max(files) - min(files)) / (4000 * max(SIZES)) if threads > 1 else 0.0
        yield at_most(f"difference of files in units of the largest tensor, {threads} threads", slack, 1.1)
        tensors = {name: each for name, each in state.items() if hasattr(each, "shape")}
        found = {**blank(tensors), "words": [], "count": 0}
        dcp.load(found, checkpoint_id=str(folder))
        yield equal(f"tensors that differ, {threads} threads", unlike(found, tensors), "none")
        yield equal(f"values, {threads} threads", str((found["words"], found["count"])), "(['some', 'words'], 5)")
        stored = dcp.FileSystemReader(str(folder)).read_metadata().storage_data
        places = {each.relative_path for each in stored.values()}
        yield equal(f"files that the metadata names, {threads} threads", len(places), threads)


@call(GROUP, phase=Phase.SAVE, requires=DCP)
def dcp_own_planners(ctx: Context) -> Iterator[Check]:
    """Planners of a script may rename what is saved and loaded, and store another dtype, as torch's documentation does.

    https://docs.pytorch.org/docs/stable/distributed.checkpoint.html#torch.distributed.checkpoint.SavePlanner
    """
    import torch
    import torch.distributed.checkpoint as dcp

    class Renaming(dcp.DefaultSavePlanner):  # type: ignore[misc]  # torch has no types here
        def set_up_planner(self, state_dict: Any, *given: Any, **named: Any) -> None:
            super().set_up_planner({f"foo_{name}": each for name, each in state_dict.items()}, *given, **named)

    class Halving(dcp.DefaultSavePlanner):  # type: ignore[misc]  # torch has no types here
        def create_local_plan(self) -> Any:
            plan = super().create_local_plan()
            for item in plan.items:
                if item.tensor_data is not None:
                    item.tensor_data.properties.dtype = torch.float16
            self.plan = plan
            return plan

        def resolve_data(self, item: Any) -> Any:
            found = super().resolve_data(item)
            return found.to(torch.float16) if isinstance(found, torch.Tensor) else found

    class RenamedAgain(dcp.DefaultLoadPlanner):  # type: ignore[misc]  # torch has no types here
        def set_up_planner(self, state_dict: Any, *given: Any, **named: Any) -> None:
            super().set_up_planner({f"foo_{name}": each for name, each in state_dict.items()}, *given, **named)

    state = {"one": tiny.values("one", (5, 3)), "other": tiny.values("other", (4,))}
    folder = str(ctx.kept / "renamed")
    dcp.save(state, checkpoint_id=folder, planner=Renaming())
    names = sorted(dcp.FileSystemReader(folder).read_metadata().state_dict_metadata)
    yield equal("names saved by a planner", str(names), "['foo_one', 'foo_other']")
    found = blank(state)
    dcp.load(found, checkpoint_id=folder, planner=RenamedAgain())
    yield equal("tensors that differ, renamed", unlike(found, state), "none")
    folder = str(ctx.kept / "halved")
    dcp.save(state, checkpoint_id=folder, planner=Halving())
    halved = {name: each.half() for name, each in state.items()}
    found = blank(halved)
    dcp.load(found, checkpoint_id=folder)
    yield equal("tensors that differ, halved", unlike(found, halved), "none")
    kinds = {
        str(each.properties.dtype) for each in dcp.FileSystemReader(folder).read_metadata().state_dict_metadata.values()
    }
    yield equal("dtypes of the metadata, halved", str(kinds), "{'torch.float16'}")


@call(GROUP, phase=Phase.RELOAD, requires=DCP)
def dcp_without_flattening(ctx: Context) -> Iterator[Check]:
    """With flatten_state_dict=False, a state without nesting is saved and loaded as it is, numbers included.

    torch 2.5 to 2.15 puts numbers that it loads into a copy of the given dictionary.
    """
    import torch
    import torch.distributed.checkpoint as dcp

    state = {"one": tiny.values("one", (5, 3))}
    flat = {"model.weight": state["one"], "step": 4}
    folder = str(ctx.kept / "flat")
    dcp.save(flat, checkpoint_id=folder, planner=dcp.DefaultSavePlanner(flatten_state_dict=False))
    given = {"model.weight": torch.zeros(5, 3), "step": 0}
    dcp.load(given, checkpoint_id=folder, planner=dcp.DefaultLoadPlanner(flatten_state_dict=False))
    yield equal("tensors that differ, not flattened", unlike({"": given["model.weight"]}, {"": state["one"]}), "none")
    yield equal("number, not flattened", given["step"], 4)
