"""Sizes of modules and device maps that accelerate infers, against sizes that are counted by hand."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.parallel import offloading
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "accelerate: offloading"
WIDTHS = {"float32": 4, "float64": 8, "bfloat16": 2}
LAYERS = 6


def tensors(model: Any) -> dict[str, Any]:
    """Parameters and persistent buffers; a tied head is the embedding's tensor."""
    return {name: each for name, each in model.state_dict().items() if name != "head.weight"}


def covered(held: Mapping[str, Any], entry: str, width: int) -> int:
    return offloading.size_of(dict(held), entry, width)


@call(GROUP, phase=Phase.LOAD)
def accelerate_module_sizes(_ctx: Context) -> Iterator[Check]:
    """compute_module_sizes counts the bytes of every module and tensor, in their dtype, in another, or in special ones.

    A smaller dtype shrinks larger weights; larger ones leave them. With buffers_only, only buffers count.
    """
    import torch
    from accelerate.utils import compute_module_sizes

    made = offloading.model()
    held = dict(made.named_parameters()) | dict(made.named_buffers())
    names = {"", *(name for name, _ in made.named_modules()), *held}
    special = {"layers.1.up.weight": torch.float64}
    settings: dict[str, tuple[dict[str, Any], dict[str, int]]] = {
        "as they are": ({}, {}),
        "bfloat16": ({"dtype": torch.bfloat16}, dict.fromkeys(held, 2)),
        "by name": ({"dtype": "float16"}, dict.fromkeys(held, 2)),
        "float64": ({"dtype": torch.float64}, {}),  # no larger than they are
        "special": ({"special_dtypes": special}, {"layers.1.up.weight": 8}),
        "special and bfloat16": (
            {"dtype": torch.bfloat16, "special_dtypes": special},
            {**dict.fromkeys(held, 2), "layers.1.up.weight": 8},
        ),
    }
    for title, (more, widths) in settings.items():
        found = compute_module_sizes(made, **more)
        wrong = []
        for name in sorted(names):
            inside = [key for key in held if not name or f"{key}.".startswith(f"{name}.")]
            if name == "head" or name == "head.weight":  # noqa: PLR1714 - tied to the embeddings, which count
                continue
            if sum(held[key].numel() * widths.get(key, 4) for key in inside) != found.get(name, 0):
                wrong.append(name or "model")
        yield equal(f"modules of another size, {title}", ", ".join(wrong) or "none", "none")
    shifts = sum(each.numel() * 4 for each in made.buffers())
    yield equal("bytes of buffers", compute_module_sizes(made, buffers_only=True)[""], shifts)


@call(GROUP, phase=Phase.LOAD)
def accelerate_largest_layers(_ctx: Context) -> Iterator[Check]:
    """calculate_maximum_sizes and get_max_layer_size find the whole model's bytes and its largest layers.

    A layer is a module without children or one whose class is not split.
    """
    from accelerate.utils import calculate_maximum_sizes, compute_module_sizes, get_max_layer_size

    made = offloading.model()
    made._no_split_modules = ["Layer"]  # noqa: SLF001 - the attribute that models have
    sizes = compute_module_sizes(made)
    layer = sum(each.numel() * 4 for each in [*made.layers[0].parameters(), *made.layers[0].buffers()])
    total, (largest, names) = calculate_maximum_sizes(made)
    yield equal("bytes of the model", total, sizes[""])
    yield equal("bytes of the largest layer", largest, layer)
    yield equal("largest layers", ", ".join(names), ", ".join(f"layers.{number}" for number in range(3)))
    split, parts = get_max_layer_size(list(made.named_children()), sizes, [])
    weight = sum(each.numel() * 4 for each in made.layers[0].up.parameters())
    yield equal("bytes of the largest part", split, weight)
    whole, (part, leaves) = calculate_maximum_sizes(offloading.model())  # which states no classes
    yield equal("bytes of the model, without such classes", whole, sizes[""])
    yield equal("bytes of the largest part, without such classes", part, weight)
    yield equal("largest parts, without such classes", ", ".join(leaves), ", ".join(parts))
    yield from of_the_model_itself()
    yield equal("largest parts", ", ".join(parts), ", ".join(f"layers.{number}.up" for number in range(3)))


def of_the_model_itself() -> Iterator[Check]:
    """A parameter of the model itself counts as a layer, also if nothing else is there."""
    import torch
    from accelerate.utils import calculate_maximum_sizes

    for title, children in (("beside a small layer", {"small": torch.nn.Linear(3, 3)}), ("alone", {})):
        made = torch.nn.Module()
        made.table = torch.nn.Parameter(torch.zeros(20, 20))
        for name, child in children.items():
            made.add_module(name, child)
        total, (largest, names) = calculate_maximum_sizes(made)
        yield equal(f"bytes, {title}", total, 4 * (400 + 12 * len(children)))
        yield equal(f"bytes of the largest, {title}", largest, 1600)
        yield equal(f"names of the largest, {title}", ", ".join(names), "table")


def budgets(layer: int, whole: int) -> dict[str, dict[Any, Any]]:
    return {
        "one device": {0: 3 * layer, "cpu": 2 * whole},
        "one device, nothing on the CPU": {0: 3 * layer, "cpu": 0},
        "one large device": {0: 2 * whole, "cpu": 2 * whole},
        "two devices": {0: 3 * layer, 1: 3 * layer, "cpu": 2 * whole},
        "two devices and disk": {0: 3 * layer, 1: 2 * layer, "cpu": 2 * layer},
        "cpu": {"cpu": 4 * layer},
        "first device full": {0: 0, 1: 4 * layer, "cpu": 2 * whole},
    }


@call(GROUP, phase=Phase.LOAD)
def accelerate_room_for_layers(_ctx: Context) -> Iterator[Check]:
    """infer_auto_device_map fills devices in order, and leaves room on the first GPU for the largest offloaded layer.

    The CPU leaves it for layers on disk. No more room is left, so that the next layer would not fit. Each other device
    holds as many layers as fit. https://huggingface.co/docs/accelerate/concept_guides/big_model_inference
    """
    from accelerate import infer_auto_device_map

    made = offloading.model(layers=LAYERS)
    held = tensors(made)
    layer, whole = (covered(held, entry, 4) + 24 * count for entry, count in (("layers.0", 1), ("", LAYERS)))
    for title, budget in budgets(layer, whole).items():
        found = infer_auto_device_map(made, max_memory=dict(budget), no_split_module_classes=["Layer"])
        order = {f"layers.{number}": place_of(f"layers.{number}", found) for number in range(LAYERS)}
        order = {"embed": place_of("embed", found), **order}
        used: dict[Any, int] = {}
        for entry, device in order.items():
            used[device] = used.get(device, 0) + covered(held, entry, 4) + 24 * entry.startswith("layers")
        devices = [*budget, "disk"]
        away = [entry for entry, device in order.items() if device in ("cpu", "disk")]
        if 0 in budget and away and budget[0] > 0:
            needed = used.get(0, 0) + layer
            yield at_most(f"bytes on the first device with the largest layer, {title}", needed, budget[0])
        yield from full(title, [*order.items()], used, budget, devices, layer)


def place_of(entry: str, found: Mapping[str, Any]) -> Any:
    """The device of a module by the map: its own entry, that of a parent, or that of its first part."""
    own = (key for key in found if key == "" or f"{entry}.".startswith(f"{key}.") or key.startswith(f"{entry}."))
    return found[next(own)]


def full(
    title: str,
    order: list[tuple[str, Any]],
    used: dict[Any, int],
    budget: dict[Any, Any],
    devices: list[Any],
    layer: int,
) -> Iterator[Check]:
    """Check that each layer is on the first device with room for it after those before it."""
    early = []
    for (_, before), (entry, after) in itertools.pairwise(order):
        if devices.index(after) < devices.index(before):
            early.append(entry)
        for device in devices[devices.index(before) : devices.index(after)]:
            spare = budget[device] - used.get(device, 0) - (layer if device in (0, "cpu") else 0)
            early += [entry] * (spare >= layer)
    yield equal(f"layers that an earlier device had room for, {title}", ", ".join(early) or "none", "none")


def by_rule(sizes: list[int], budget: Mapping[Any, int]) -> list[Any]:
    """The device of each layer by the documented rule.

    Layers fill devices in order. The first GPU and the CPU keep room for the largest layer that is still to come.
    """
    devices = [*budget, "disk"]
    keeps_room = {next((each for each in budget if each != "cpu"), "cpu"), "cpu"}
    places: list[Any] = []
    used = 0
    for number, size in enumerate(sizes):
        room = max(sizes[number + 1 :], default=0)
        while devices[0] != "disk" and used + size > budget[devices[0]] - room * (devices[0] in keeps_room):
            devices, used = devices[1:], 0
        places.append(devices[0])
        used += size
    return places


@call(GROUP, phase=Phase.LOAD)
def maps_of_layers_of_every_size(_ctx: Context) -> Iterator[Check]:
    """infer_auto_device_map places layers of many sizes as its documentation says, also once the largest is placed.

    "There is always room left on GPU 0 to put back the layer offloaded on CPU that has the largest size."
    """
    import random

    import torch
    from accelerate import infer_auto_device_map

    drawn = random.Random(0)  # noqa: S311 - sizes, no secrets
    for devices in (("cpu",), (0, "cpu"), (0, 1, "cpu"), (0, 1, 2, "cpu")):
        wrong, seen = [], set()
        for _ in range(40):
            sizes = [drawn.choice((1, 2, 3, 5, 8, 13)) for _ in range(drawn.randint(1, 9))]
            made = torch.nn.Sequential(*(torch.nn.Linear(1, size, bias=False, device="meta") for size in sizes))
            budget = {device: 4 * drawn.randint(0, 30) for device in devices}
            found = infer_auto_device_map(made, max_memory=dict(budget), clean_result=False)
            wanted = by_rule([4 * size for size in sizes], budget)
            wrong += [(sizes, budget)] * ([found[str(number)] for number in range(len(sizes))] != wanted)
            seen |= set(wanted)
        title = f"{len(devices)} devices"
        yield equal(f"models with another map, {title}", str(wrong[:2]), "[]")
        yield equal(
            f"devices of the maps, {title}", str(sorted(map(str, seen))), str(sorted(map(str, (*devices, "disk"))))
        )
