"""What save_state writes of several models, what load_state restores, and tensors that accelerate sets one by one.

https://huggingface.co/docs/accelerate/usage_guides/checkpoint
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.parallel.clipping import accelerator
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cases.apply.context import Context

GROUP = "Whole states of accelerate"
EXTENSIONS = {True: ("model", "safetensors"), False: ("pytorch_model", "bin")}
LIMIT = 400  # bytes of a part: a matrix and its bias


class Diary:
    """An object with a state of its own, whose contents are no tensors."""

    def __init__(self, day: Any) -> None:
        self.day = day

    def state_dict(self) -> dict[str, Any]:
        return {"day": self.day, "pages": [1, 2]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.day = state["day"]


def line(number: int) -> Any:
    """A linear layer whose weights depend on the number."""
    import torch

    made = torch.nn.Linear(3, 2)
    with torch.no_grad():
        made.weight.copy_(torch.arange(6.0).view(2, 3) + number)
        made.bias.fill_(number)
    return made


def step(layer: Any, optimiser: Any, schedule: Any, size: float) -> None:
    import torch

    layer(torch.full((2, 3), size)).sum().backward()
    optimiser.step()
    schedule.step()
    optimiser.zero_grad()


def training(ctx: Context, count: int, days: tuple[Any, Any]) -> tuple[Any, list[Any], list[Any], list[Any], Any]:
    """An Accelerator with so many models, optimisers and schedules, and two diaries."""
    import torch

    made = accelerator(ctx)
    layers = [line(number + 1) for number in range(count)]
    optimisers = [torch.optim.Adam(each.parameters(), lr=0.1 * (number + 1)) for number, each in enumerate(layers)]
    schedules = [torch.optim.lr_scheduler.StepLR(each, 1, 0.5) for each in optimisers]
    prepared = made.prepare(*layers, *optimisers, *schedules)
    diaries = [Diary(day) for day in days]
    made.register_for_checkpointing(*diaries)
    parts = [list(prepared[begin * count : (begin + 1) * count]) for begin in range(3)]
    return made, parts[0], parts[1], parts[2], diaries


def held(layers: list[Any], optimisers: list[Any], schedules: list[Any]) -> str:
    """All numbers of a training, as text."""
    weights = [each.tolist() for layer in layers for each in layer.state_dict().values()]
    moments = [
        {name: float(value.sum()) for name, value in state.items()}
        for each in optimisers
        for state in each.state_dict()["state"].values()
    ]
    return str((weights, moments, [each.get_last_lr() for each in schedules]))


def name_of(stem: str, number: int, ending: str) -> str:
    return f"{stem}.{ending}" if number == 0 else f"{stem}_{number}.{ending}"


def drawn() -> list[Any]:
    """The next random numbers of torch, NumPy and Python, whose states save_state writes."""
    import random

    import numpy as np
    import torch

    return [torch.rand(3).tolist(), np.random.rand(3).tolist(), random.random()]  # noqa: NPY002, S311 - global states


@call(GROUP, phase=Phase.RESUME)
def accelerate_saves_several_of_each(ctx: Context) -> Iterator[Check]:
    """save_state writes a file for each model, optimiser, schedule and object; load_state restores them all.

    The second of a kind has the number 1 in its name, of both formats. Random numbers go on as after the save.
    """
    import datetime as dt

    days = (dt.date(2024, 2, 29), "a day of words")
    for count in (1, 3):
        for safe, (stem, ending) in EXTENSIONS.items():
            made, layers, optimisers, schedules, diaries = training(ctx, count, days)
            for number in range(count):
                step(layers[number], optimisers[number], schedules[number], 1.0 + number)
            folder = ctx.kept / f"{count} {ending}"
            returned = made.save_state(str(folder), safe_serialization=safe)
            title = f"{count}, {ending}"
            wanted = {name_of(stem, number, ending) for number in range(count)}
            for kind in ("optimizer", "scheduler"):
                wanted |= {name_of(kind, number, "bin") for number in range(count)}
            wanted |= {"random_states_0.pkl", "custom_checkpoint_0.pkl", "custom_checkpoint_1.pkl"}
            found = {each.name for each in folder.iterdir()}
            yield equal(f"files missing or too many, {title}", str(sorted(found ^ wanted)), "[]")
            yield equal(f"folder returned, {title}", str(returned), str(folder))
            numbers = drawn()
            before = held(layers, optimisers, schedules)
            for number in range(count):
                step(layers[number], optimisers[number], schedules[number], -3.0)
            yield equal(f"moved by another step, {title}", held(layers, optimisers, schedules) == before, bound=False)
            diaries[0].day = diaries[1].day = None
            made.load_state(str(folder))
            yield equal(f"as saved, {title}", held(layers, optimisers, schedules) == before, bound=True)
            yield equal(f"objects, {title}", str([each.day for each in diaries]), str([*days]))
            yield equal(f"random numbers, {title}", str(drawn()), str(numbers))


@call(GROUP, phase=Phase.LOAD)
def accelerate_prepares_once(ctx: Context) -> Iterator[Check]:
    """Optimisers, schedules and loaders that prepare returned come back as they are, and are not stepped twice."""
    import torch

    made = accelerator(ctx)
    layer = line(2)
    optimiser = torch.optim.SGD(layer.parameters(), lr=1.0)
    schedule = torch.optim.lr_scheduler.StepLR(optimiser, 1, 0.5)
    loader = torch.utils.data.DataLoader(list(range(6)), batch_size=2)
    first = made.prepare(layer, optimiser, schedule, loader)
    again = made.prepare(*first)
    single = [made.prepare(each) for each in first[1:]]
    for place, name in enumerate(("optimiser", "schedule", "loader"), start=1):
        yield equal(f"the same {name}", again[place] is first[place], bound=True)
        yield equal(f"the same {name}, alone", single[place - 1] is first[place], bound=True)
    given = [batch.tolist() for batch in again[3]]
    yield equal("batches", str(given), "[[0, 1], [2, 3], [4, 5]]")
    step(again[0], again[1], again[2], 1.0)
    yield equal("rate after a step", str(again[2].get_last_lr()), "[0.5]")
    yield equal("bias after a step", str(layer.bias.tolist()), "[0.0, 0.0]")
    other = torch.nn.Linear(1, 1)
    yield equal("another object comes back", str(made.prepare("text", 3)), "('text', 3)")
    yield equal(
        "a device of its own", str(next(made.prepare_model(other, device_placement=False).parameters()).device), "cpu"
    )


def network() -> Any:
    import torch

    return torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(4)))


def index(folder: Path, stem: str, ending: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f"{stem}.{ending}.index.json").read_text())
    return found


@call(GROUP, phase=Phase.SAVE)
def accelerate_names_parts(ctx: Context) -> Iterator[Check]:
    """save_model names parts and their index by the format; one part alone has no number and no index.

    Loading the folder gives every tensor back.
    """
    import torch
    from accelerate import load_checkpoint_in_model

    for safe, (stem, ending) in EXTENSIONS.items():
        for limit, parts in ((LIMIT, 4), ("1GB", 1)):
            made, model = accelerator(ctx), network()
            folder = ctx.kept / f"{ending} {parts}"
            made.save_model(made.prepare(model), str(folder), max_shard_size=limit, safe_serialization=safe)
            numbered = {f"{stem}-{part:05d}-of-{parts:05d}.{ending}" for part in range(1, parts + 1)}
            wanted = {f"{stem}.{ending}"} if parts == 1 else {*numbered, f"{stem}.{ending}.index.json"}
            title = f"{ending}, {parts}"
            found = {each.name for each in folder.iterdir()}
            yield equal(f"files missing or too many, {title}", str(sorted(found ^ wanted)), "[]")
            if parts > 1:
                held = index(folder, stem, ending)
                yield equal(f"total size, {title}", held["metadata"]["total_size"], 4 * 4 * (64 + 8))
                yield equal(
                    f"tensors of the index, {title}", str(sorted(held["weight_map"])), str(sorted(model.state_dict()))
                )
            other = network()
            load_checkpoint_in_model(other, str(folder))
            errors = [
                float((p - q).detach().abs().max()) for p, q in zip(model.parameters(), other.parameters(), strict=True)
            ]
            yield at_most(f"tensors off, {title}", max(errors), 0.0)
            yield equal(
                f"modules in training, {title}", isinstance(model, torch.nn.Module) and model.training, bound=True
            )
