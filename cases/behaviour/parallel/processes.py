"""Which process runs what with accelerate, and what its collectives return for nested data, dtypes and senders.

https://huggingface.co/docs/accelerate/package_reference/accelerator.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.apply import front_ends
from cases.behaviour.parallel import networks
from cases.behaviour.parallel.clipping import accelerator
from cases.behaviour.parallel.networks import loss, network
from cases.behaviour.trainers.stock_trainer import gathered
from cases.space.verdict import Check, Phase, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cases.apply.context import Context

GROUP = "accelerate: processes"
CALLS = 2  # of each decorated function


def deciders(made: Any) -> dict[str, tuple[Any, Callable[[int, int], bool]]]:
    """Decorators, and whether a rank of so many runs what they decorate."""
    return {
        "on_main_process": (made.on_main_process, lambda rank, _: rank == 0),
        "on_local_main_process": (made.on_local_main_process, lambda rank, _: rank == 0),
        "on_last_process": (made.on_last_process, lambda rank, world: rank == world - 1),
        "on_process(process_index=1)": (made.on_process(process_index=1), lambda rank, _: rank == 1),
        "on_local_process(local_process_index=1)": (
            made.on_local_process(local_process_index=1),
            lambda rank, _: rank == 1,
        ),
    }


def runs(decorate: Any) -> int:
    """The calls of a decorated function that ran."""
    seen: list[int] = []

    def note(number: int) -> None:
        seen.append(number)

    decorated = decorate(note)
    decorated(1)
    decorated(number=2)
    return len(seen)


@call(GROUP, phase=Phase.WRAP, ranks=2)
def accelerate_decides_processes(ctx: Context) -> Iterator[Check]:
    """on_main_process and its kin run a function on the process that they name, and on no other."""
    made = accelerator(ctx)
    world = ctx.place.world_size
    for name, (decorate, decides) in deciders(made).items():
        wanted = [CALLS * decides(rank, world) for rank in range(world)]
        yield equal(f"runs by rank, {name}", str(gathered(ctx, runs(decorate))), str(wanted))
    flags = [made.is_main_process, made.is_local_main_process, made.is_last_process, made.use_distributed]
    expected = [[rank == 0, rank == 0, rank == world - 1, True] for rank in range(world)]
    yield equal("flags by rank", str(gathered(ctx, flags)), str(expected))
    yield equal("number of processes", made.num_processes, world)


@call(GROUP, phase=Phase.WRAP)
def accelerate_single_process(ctx: Context) -> Iterator[Check]:
    """In a single process, launched or not, every decorator runs the function, and collectives return their input."""
    import torch
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    os.environ.update(front_ends.launched(ctx.place))
    for name in ("script", "launcher"):
        AcceleratorState._reset_state(reset_partial_state=True)  # noqa: SLF001 - as accelerate's own tests do
        synchronised = {"rng_types": ["torch"]}
        made = (
            accelerator(ctx, **synchronised)
            if name == "launcher"
            else Accelerator(cpu=ctx.place.kind == "cpu", **synchronised)
        )
        found = {kind: runs(decorate) for kind, (decorate, _) in deciders(made).items()}
        yield equal(
            f"decorators that run nothing, {name}", str([kind for kind, each in found.items() if each != CALLS]), "[]"
        )
        yield equal(f"use_distributed, {name}", made.use_distributed, bound=False)
        value = {"a": torch.arange(3.0), "b": [torch.tensor(2.0)]}
        same = {
            "gather": made.gather(value)["a"],
            "reduce": made.reduce(value)["a"],
            "pad_across_processes": made.pad_across_processes(value)["a"],
            "gather_for_metrics": made.gather_for_metrics(value)["a"],
        }
        wrong = [kind for kind, tensor in same.items() if not tensor.equal(value["a"])]
        yield equal(f"collectives that change their input, {name}", str(wrong), "[]")
        with made.main_process_first(), made.local_main_process_first():
            made.wait_for_everyone()
        for given in ([1, 2, 3], ("a", "b"), {"a": [1, 2], "b": (3, 4)}):
            for padding in (False, True):
                with made.split_between_processes(given, apply_padding=padding) as rows:
                    yield equal(f"rows, {name}", str(rows), str(given))
        loader = made.prepare(torch.utils.data.DataLoader(list(range(6)), batch_size=2, shuffle=True))
        yield equal(f"rows, {name}", str(sorted(int(row) for batch in loader for row in batch)), str([*range(6)]))


@call(GROUP, phase=Phase.WRAP, ranks=2)
def accelerate_main_first(ctx: Context) -> Iterator[Check]:
    """Within main_process_first, the main process finishes before others begin; wait_for_everyone waits for all.

    Each process writes a line; the main one only after a while.
    """
    import time

    made = accelerator(ctx)
    for name, first in (("main", made.main_process_first), ("local main", made.local_main_process_first)):
        log = ctx.kept / f"order-{name}"
        with first():
            if ctx.place.rank == 0:
                time.sleep(0.05)  # the others would be faster
            with log.open("a") as file:
                file.write(f"{ctx.place.rank}\n")
        made.wait_for_everyone()
        yield equal(f"order of processes, {name}", log.read_text().split()[0], "0")
        yield equal(f"processes, {name}", len(log.read_text().split()), ctx.place.world_size)


@call(GROUP, phase=Phase.WRAP, ranks=2)
def accelerate_collectives(ctx: Context) -> Iterator[Check]:
    """Collectives keep dtypes and nesting: gather, reduce, broadcasts from any rank, and padding of any side.

    Ranks hold rank + 1, so that each result is known.
    """
    import torch
    from accelerate import utils

    made, rank, world = accelerator(ctx), ctx.place.rank, ctx.place.world_size
    total = sum(range(1, world + 1))
    for dtype in ("float32", "float16", "bfloat16", "int64", "int32", "uint8", "bool"):
        kind = getattr(torch, dtype)
        whole = made.gather(torch.full((2, 1), rank + 1).to(kind))
        wanted = torch.arange(1, world + 1).repeat_interleave(2)[:, None].to(kind)
        yield equal(f"gathered, {dtype}", str((whole.dtype, whole.tolist())), str((kind, wanted.tolist())))
    nested = {"a": torch.tensor(float(rank + 1)), "b": (torch.ones(1) * rank, [torch.arange(2) + rank])}
    found = made.gather(nested)
    yield equal("single numbers gathered", str(found["a"].tolist()), str([float(each + 1) for each in range(world)]))
    yield equal(
        "nested tensors gathered", str(found["b"][1][0].tolist()), str([n + r for r in range(world) for n in (0, 1)])
    )
    yield equal("kinds of the nested", str((type(found["b"]), type(found["b"][1]))), str((tuple, list)))
    strided = torch.arange(6.0).reshape(2, 3).t() + rank
    rows = [[0.0 + r, 3.0 + r] for r in range(1)]
    yield equal("first rows of strided tensors gathered", str(made.gather(strided)[:1].tolist()), str(rows))
    for reduction, wanted_value in (("sum", total), ("mean", total / world)):
        value = made.reduce({"x": torch.tensor([float(rank + 1)])}, reduction=reduction)["x"].tolist()
        yield equal(f"reduced, {reduction}", str(value), str([float(wanted_value)]))
    for sender in range(world):
        sent = utils.broadcast({"x": torch.tensor([rank * 2.0])}, from_process=sender)["x"].tolist()
        yield equal(f"broadcast from {sender}", str(sent), str([sender * 2.0]))
        objects = utils.broadcast_object_list([rank, f"rank {rank}"], from_process=sender)
        yield equal(f"objects broadcast from {sender}", str(objects), str([sender, f"rank {sender}"]))
    yield equal(
        "objects gathered",
        str(utils.gather_object([rank, str(rank)])),
        str([x for r in range(world) for x in (r, str(r))]),
    )
    for dim in (0, 1):
        for first in (False, True):
            mine = torch.full((1 + rank, 1 + rank), 5)
            padded = made.pad_across_processes(mine, dim=dim, pad_index=9, pad_first=first)
            lacking = world - 1 - rank
            extra = torch.full((lacking, 1 + rank) if dim == 0 else (1 + rank, lacking), 9)
            expected = torch.cat([extra, mine] if first else [mine, extra], dim=dim)
            yield equal(f"padded, dim {dim}, pad_first {first}", str(padded.tolist()), str(expected.tolist()))


@call(GROUP, phase=Phase.WRAP, ranks=2)
def accelerate_reduce_none(ctx: Context) -> Iterator[Check]:
    """With reduction="none", reduce returns what the rank gave: "If 'none', will not perform any operation".

    https://huggingface.co/docs/accelerate/package_reference/accelerator#accelerate.Accelerator.reduce
    """
    import torch

    found = accelerator(ctx).reduce(torch.tensor([ctx.place.rank + 1.0]), reduction="none")
    yield equal("reduced", str(found.tolist()), str([ctx.place.rank + 1.0]))


@call(GROUP, phase=Phase.WRAP)
def accelerate_folders(ctx: Context) -> Iterator[Check]:
    """project_dir is where trackers log, unless logging_dir names another folder, also after set_directories."""
    from accelerate.utils import ProjectConfiguration

    project, logs = str(ctx.kept / "project"), str(ctx.kept / "logs")
    made = {
        "project_dir": accelerator(ctx, project_dir=project),
        "project_config": accelerator(ctx, project_config=ProjectConfiguration(project_dir=project, logging_dir=logs)),
    }
    wanted = {"project_dir": (project, project), "project_config": (project, logs)}
    for name, each in made.items():
        yield equal(f"folders, {name}", str((each.project_dir, each.logging_dir)), str(wanted[name]))
    made["project_dir"].project_configuration.set_directories(logs)
    found = (made["project_dir"].project_dir, made["project_dir"].logging_dir)
    yield equal("folders, set_directories", str(found), str((logs, project)))


@call(GROUP, phase=Phase.RESUME)
def accelerate_state_hooks(ctx: Context) -> Iterator[Check]:
    """Hooks of save_state and load_state can take over models; load_state takes the newest folder and counts on.

    "You can remove the weights from the list so that they are not saved": register_save_state_pre_hook.
    """
    import torch
    from accelerate.utils import ProjectConfiguration

    project = ProjectConfiguration(project_dir=str(ctx.kept / "project"), automatic_checkpoint_naming=True)
    made = accelerator(ctx, project_config=project)
    model = network()
    wrapped, optimiser = made.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    seen: list[str] = []

    def save(models: list[Any], weights: list[Any], folder: str) -> None:
        seen.append("save")
        torch.save(weights.pop(), os.path.join(folder, "own.pt"))  # noqa: PTH118 - the library gives a string
        assert models  # noqa: S101 - the library gives them

    def load(models: list[Any], folder: str) -> None:
        seen.append("load")
        models.pop().load_state_dict(torch.load(os.path.join(folder, "own.pt")))  # noqa: PTH118

    handles = [made.register_save_state_pre_hook(save), made.register_load_state_pre_hook(load)]
    states = []
    for number in range(3):
        made.backward(loss(wrapped, number))
        optimiser.step()
        optimiser.zero_grad()
        made.save_state()
        states.append(networks.weights(model))
    folders = sorted((ctx.kept / "project" / "checkpoints").iterdir())
    files = sorted(each.name for each in folders[-1].iterdir() if "model" in each.name or "own" in each.name)
    yield equal("files of weights", str(files), "['own.pt']")
    made.backward(loss(wrapped, 7))
    optimiser.step()
    made.load_state()
    yield networks.off("weights off, the newest", networks.weights(model), states[2], 0.0)
    made.load_state(str(folders[0]))
    yield networks.off("weights off, the first", networks.weights(model), states[0], 0.0)
    yield equal("hooks called", ", ".join(seen), "save, save, save, load, load")
    for handle in handles:
        handle.remove()
    made.save_state()
    newest = max((ctx.kept / "project" / "checkpoints").iterdir())
    yield equal("hooks called after they were removed", len(seen), 5)
    yield equal("name of the next folder", newest.name, "checkpoint_3")
