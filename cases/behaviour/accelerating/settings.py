"""Settings of the Accelerator: folders of projects, compilation, what save_state returns, and gathered objects.

https://huggingface.co/docs/accelerate/package_reference/accelerator
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.accelerating.nested_tensors import refusal
from cases.behaviour.accelerating.states import accelerator
from cases.behaviour.parallel import clipping
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "accelerate: settings"
ROWS, SIZE = 7, 2
SAVES = 12  # checkpoints: numbers of one digit and of two


def line() -> Any:
    import torch

    made = torch.nn.Linear(2, 1)
    with torch.no_grad():
        for place, each in enumerate(made.parameters()):
            each.copy_(torch.arange(each.numel()).reshape(each.shape) / 4 + place)
    return made


@call(GROUP, phase=Phase.SAVE)
def accelerate_projects(ctx: Context) -> Iterator[Check]:
    """project_dir fills a ProjectConfiguration without one, and leaves one that has its own; checkpoints go there.

    With automatic_checkpoint_naming, save_state numbers folders, keeps the total_limit newest of them, and returns each
    path; load_state without a path takes the newest. Numbers are compared, not names: 10 is after 9.
    """
    import torch
    from accelerate.utils import ProjectConfiguration

    given, own = str(ctx.kept / "given"), str(ctx.kept / "own")
    naming = {"automatic_checkpoint_naming": True, "total_limit": 3}
    kinds = {
        "a directory": ({"project_dir": given, "project_config": ProjectConfiguration(**naming)}, given),
        "a configuration": ({"project_config": ProjectConfiguration(project_dir=own, **naming)}, own),
        "both": ({"project_dir": given, "project_config": ProjectConfiguration(project_dir=own, **naming)}, own),
    }
    for name, (more, wanted) in kinds.items():
        made = accelerator(ctx, **more)
        yield equal(f"directory, {name}", str(made.project_dir), wanted)
        yield equal(f"directory of the configuration, {name}", str(made.project_configuration.project_dir), wanted)
        model = made.prepare(line())
        paths = []
        newest = []
        folder = Path(wanted) / "checkpoints"
        for number in range(SAVES):
            with torch.no_grad():
                model.bias.fill_(float(number))
            paths.append(made.save_state())
            with torch.no_grad():
                model.bias.fill_(-1.0)
            made.load_state()
            newest.append(float(model.bias))
        yield equal(f"bias of the newest checkpoint, {name}", str(newest), str([float(each) for each in range(SAVES)]))
        every = [str(folder / f"checkpoint_{number}") for number in range(SAVES)]
        yield equal(f"paths returned, {name}", str([str(each) for each in paths]), str(every))
        kept = sorted(each.name for each in folder.iterdir())
        yield equal(f"checkpoints kept, {name}", ", ".join(kept), "checkpoint_10, checkpoint_11, checkpoint_9")
        for number in (9, 10):
            made.load_state(paths[number])
            yield equal(f"bias of a checkpoint by its path, {name}", float(model.bias), number)
        for each in folder.iterdir():
            for file in each.iterdir():
                file.unlink()
            each.rmdir()
    plain = accelerator(ctx)
    plain.prepare(line())
    path = plain.save_state(str(ctx.kept / "named"))
    yield equal("path returned, a name", str(path), str(ctx.kept / "named"))
    yield equal("refused, no name", refusal(plain.save_state) != "none", bound=True)
    yield equal("refused, no checkpoint named", refusal(plain.load_state), "ValueError")
    yield equal("refused, a checkpoint that is not there", refusal(plain.load_state, f"{path}_1"), "ValueError")


@call(GROUP, phase=Phase.FORWARD)
def accelerate_compiles(ctx: Context) -> Iterator[Check]:
    """dynamo_backend compiles a prepared model once, which computes the same and can be unwrapped."""
    import torch

    inputs = torch.linspace(-1, 1, 6).reshape(3, 2)
    wanted = line()(inputs)
    for backend in (None, "eager"):
        made = accelerator(ctx, **({"dynamo_backend": backend} if backend else {}))
        plain = line()
        found = made.prepare(plain)
        compiled = hasattr(found, "_orig_mod")
        yield equal(f"compiled, {backend}", compiled, backend is not None)
        yield at_most(f"outputs off, {backend}", float((found(inputs) - wanted).abs().max()), 1e-6)
        if "keep_torch_compile" not in inspect.signature(made.unwrap_model).parameters:
            continue
        yield equal(f"unwrapped, {backend}", made.unwrap_model(found, keep_torch_compile=False) is plain, bound=True)
        if backend is not None:
            again = accelerator(ctx, dynamo_backend=backend).prepare(torch.compile(line(), backend="eager"))
            yield equal("compiled twice", hasattr(again._orig_mod, "_orig_mod"), bound=False)  # noqa: SLF001 - torch's own name
            yield at_most("outputs off, compiled before", float((again(inputs) - wanted).abs().max()), 1e-6)
    yield equal("refused, an unknown backend", refusal(accelerator, ctx, dynamo_backend="other") != "none", bound=True)


@call(GROUP, phase=Phase.INFER)
def accelerate_gathers_objects_of_one(ctx: Context) -> Iterator[Check]:
    """gather_for_metrics of texts, of numbers and of mixed lists in one process gives each row once and in order."""
    import torch

    made = accelerator(ctx)
    loader = made.prepare(torch.utils.data.DataLoader(torch.arange(ROWS), batch_size=SIZE))
    texts, numbers, forced, nests = [], [], [], []
    for batch in loader:
        rows = batch.tolist()
        texts += made.gather_for_metrics([f"row {row}" for row in rows])
        numbers += made.gather_for_metrics(rows)
        forced += made.gather_for_metrics(batch.tolist(), use_gather_object=True)
        nests.append(made.gather_for_metrics({"ids": batch, "more": [batch + 1]}))
    yield equal("texts", str(texts), str([f"row {row}" for row in range(ROWS)]))
    yield equal("numbers", str(numbers), str([*range(ROWS)]))
    yield equal("objects that are forced", str(forced), str([*range(ROWS)]))
    found = [row for each in nests for row in each["ids"].tolist()]
    more = [row for each in nests for row in each["more"][0].tolist()]
    yield equal("nested tensors", str((found, more)), str(([*range(ROWS)], [*range(1, ROWS + 1)])))


@call(GROUP, phase=Phase.INFER, ranks=2)
def accelerate_gathers_texts_of_ranks(ctx: Context) -> Iterator[Check]:
    """gather_for_metrics of lists of texts on two ranks gives each row once, though the last batch is filled up."""
    import torch

    for size in (1, 2, 3):
        made = clipping.accelerator(ctx)
        loader = made.prepare(torch.utils.data.DataLoader(torch.arange(ROWS), batch_size=size))
        texts: list[str] = []
        tensors: list[int] = []
        for batch in loader:
            texts += made.gather_for_metrics([f"row {row}" for row in batch.tolist()])
            tensors += made.gather_for_metrics(batch).tolist()
        yield equal(f"texts, batches of {size}", str(texts), str([f"row {row}" for row in range(ROWS)]))
        yield equal(f"numbers, batches of {size}", str(tensors), str([*range(ROWS)]))
