"""Device maps of models whose blocks must be split, and the helpers that read sizes, ties and devices.

https://huggingface.co/docs/accelerate/concept_guides/big_model_inference
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.accelerating.nested_tensors import refusal
from cases.behaviour.parallel import offloading
from cases.space.verdict import Check, Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cases.apply.context import Context

GROUP = "accelerate: offloading"
PLENTY = 10_000  # bytes


def line(inputs: int, outputs: int) -> Any:
    """A layer with as many numbers as its weight."""
    import torch

    return torch.nn.Linear(inputs, outputs, bias=False)


def nested() -> Any:
    """Blocks of 40, 100 and 20 numbers; the middle one has parts of 40 and 60, the second of which has 10 and 50."""
    import torch

    inner = torch.nn.ModuleDict({"small": line(2, 5), "large": line(5, 10)})
    middle = torch.nn.ModuleDict({"first": line(4, 10), "second": inner})
    return torch.nn.ModuleDict({"front": line(4, 10), "middle": middle, "back": line(4, 5)})


def device_of(name: str, found: Mapping[str, Any]) -> str:
    """The device of a tensor, by the longest entry that covers it."""
    entries = [each for each in found if each in ("", name) or name.startswith(f"{each}.")]
    return str(found[max(entries, key=len)]) if entries else "none"


def placed(made: Any, found: Mapping[str, Any]) -> str:
    every = [*made.named_parameters(), *made.named_buffers()]
    return ", ".join(f"{name} {device_of(name, found)}" for name, _ in every)


@call(GROUP, phase=Phase.LOAD)
def maps_of_split_blocks(_ctx: Context) -> Iterator[Check]:
    """A block that does not fit is split, its parts and all that follow it are placed, and named classes stay whole.

    Room for the largest layer stays free on the first device. clean_result joins parts on one device.
    """
    from accelerate import infer_auto_device_map

    made, width = nested(), 4
    largest = 50
    plans: dict[str, tuple[dict[Any, int], str]] = {
        "all on one": (
            {0: (160 + largest) * width, "cpu": PLENTY},
            "front 0, middle.first 0, middle.second.small 0, middle.second.large 0, back 0",
        ),
        "split once": (
            {0: (80 + largest) * width + 1, "cpu": PLENTY},
            "front 0, middle.first 0, middle.second.small cpu, middle.second.large cpu, back cpu",
        ),
        "split twice": (
            {0: (90 + largest) * width + 1, "cpu": PLENTY},
            "front 0, middle.first 0, middle.second.small 0, middle.second.large cpu, back cpu",
        ),
        "nothing fits": (
            {0: 30 * width, "cpu": PLENTY},
            "front cpu, middle.first cpu, middle.second.small cpu, middle.second.large cpu, back cpu",
        ),
        "the rest on disk": (
            {0: (80 + largest) * width + 1, "cpu": 70 * width},
            "front 0, middle.first 0, middle.second.small cpu, middle.second.large disk, back disk",
        ),
    }
    for name, (budget, wanted) in plans.items():
        for clean in (True, False):
            found = infer_auto_device_map(made, max_memory=dict(budget), clean_result=clean)
            exact = ", ".join(
                f"{each.rpartition(' ')[0]}.weight {each.rpartition(' ')[2]}" for each in wanted.split(", ")
            )
            yield equal(f"devices, {name}, clean_result={clean}", placed(made, found), exact)
    one = {0: PLENTY, "cpu": PLENTY}
    yield equal("entries, clean", str(dict(infer_auto_device_map(made, max_memory=dict(one)))), "{'': 0}")
    raw = dict(infer_auto_device_map(made, max_memory=dict(one), clean_result=False))
    yield equal("entries, not clean", str(raw), "{'front': 0, 'middle': 0, 'back': 0}")
    kept = infer_auto_device_map(made, max_memory={0: 800, "cpu": PLENTY}, no_split_module_classes=["ModuleDict"])
    yield equal(
        "a named class stays whole", len({device_of(f"middle.{part}", kept) for part in ("first", "second")}), 1
    )


@call(GROUP, phase=Phase.LOAD)
def maps_of_top_level_tensors(_ctx: Context) -> Iterator[Check]:
    """Parameters and buffers of the model itself are placed too, also if they do not fit on the first device."""
    import torch
    from accelerate import infer_auto_device_map

    made = torch.nn.Sequential(line(4, 5), line(4, 5))
    made.register_buffer("table", torch.zeros(100))
    made.register_parameter("start", torch.nn.Parameter(torch.zeros(30)))
    for budget in ({0: PLENTY, "cpu": PLENTY}, {0: 240, "cpu": PLENTY}, {0: 0, "cpu": 200}, {0: 0, "cpu": PLENTY}):
        found = infer_auto_device_map(made, max_memory=dict(budget))
        lost = [
            name for name, _ in [*made.named_parameters(), *made.named_buffers()] if device_of(name, found) == "none"
        ]
        yield equal(f"tensors without a device, {budget[0]} and {budget['cpu']}", ", ".join(lost) or "none", "none")
        if budget[0] == PLENTY:
            yield equal("entries, all on one", str(dict(found)), "{'': 0}")
        used: dict[str, int] = {}
        for name, each in [*made.named_parameters(), *made.named_buffers()]:
            used[device_of(name, found)] = used.get(device_of(name, found), 0) + 4 * each.numel()
        over = [
            device
            for device, size in used.items()
            if device != "disk" and size > budget.get(device if device == "cpu" else 0, 0)
        ]
        yield equal(f"devices over their budget, {budget[0]} and {budget['cpu']}", str(over), "[]")


@call(GROUP, phase=Phase.LOAD, requires=("fallback_allocation",))
def maps_with_fallback(_ctx: Context) -> Iterator[Check]:
    """Only with fallback_allocation does a device for which the first block is too large get a later block that fits.

    "When regular allocation fails, try to allocate a module that fits in the size limit using BFS."
    """
    import torch
    from accelerate import infer_auto_device_map

    made = torch.nn.Sequential(line(10, 10), line(2, 5), line(10, 10))
    budget = {0: 130 * 4, "cpu": PLENTY}
    plain = infer_auto_device_map(made, max_memory=dict(budget))
    yield equal("devices without it", placed(made, plain), "0.weight cpu, 1.weight cpu, 2.weight cpu")
    found = infer_auto_device_map(made, max_memory=dict(budget), fallback_allocation=True)
    yield equal("devices with it", placed(made, found), "0.weight cpu, 1.weight 0, 2.weight cpu")
    for spare, device in ((0, "0"), (-1, "cpu"), (1, "0")):
        budget = {0: (100 + 10) * 4 + spare, "cpu": PLENTY}  # room for the largest layer stays free
        found = infer_auto_device_map(made, max_memory=budget, fallback_allocation=True)
        wanted = f"0.weight cpu, 1.weight {device}, 2.weight cpu"
        yield equal(f"devices with room for it and {spare} bytes", placed(made, found), wanted)


@call(GROUP, phase=Phase.LOAD)
def maps_of_sizes_and_devices(_ctx: Context) -> Iterator[Check]:
    """Sizes in words are numbers of bytes, "cuda" is its first device, and clean maps have an entry for each parent."""
    import torch
    from accelerate.utils import convert_file_size_to_int, get_max_memory
    from accelerate.utils.modeling import check_device_same, clean_device_map, dtype_byte_size, named_module_tensors

    sizes = {"5MB": 5 * 10**6, "2GB": 2 * 10**9, "1MiB": 2**20, "3KiB": 3 * 2**10, "2GiB": 2**31, "7KB": 7000}
    sizes |= {"8Kb": 1000, "800Mb": 10**8, "3Gb": 375 * 10**6, "1.5GiB": 3 * 2**29, "0.25KB": 250}  # b: bits
    for text, size in sizes.items():
        yield equal(f"bytes of {text}", convert_file_size_to_int(text), size)
    yield equal("bytes of a number", convert_file_size_to_int(123), 123)
    yield equal("refused, no size", refusal(convert_file_size_to_int, "many"), "ValueError")
    found = get_max_memory({0: "1MB", "cpu": "2KiB", 1: 77})
    yield equal("memory in bytes", str(dict(found)), str({0: 10**6, 1: 77, "cpu": 2048}))
    pairs = {
        ("cpu", "cpu"): True,
        ("cuda", "cuda:0"): True,
        ("cuda:0", "cuda"): True,
        ("cuda:1", "cuda"): False,
        ("cuda", "cuda:1"): False,
        ("cuda:1", "cuda:1"): True,
        ("cuda:0", "cuda:1"): False,
        ("cpu", "cuda"): False,
        ("meta", "cpu"): False,
    }
    for (one, other), same in pairs.items():
        yield equal(f"same device, {one} and {other}", check_device_same(torch.device(one), torch.device(other)), same)
    maps: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "one device": ({"a": 0, "b.c": 0, "b.d": 0}, {"": 0}),
        "one parent": ({"a": 0, "b.c": 1, "b.d": 1}, {"a": 0, "b": 1}),
        "nothing to join": ({"a": 0, "b.c": 1, "b.d": 0}, {"a": 0, "b.c": 1, "b.d": 0}),
        "deep": ({"a.b.c": 0, "a.b.d": 0, "e": "cpu"}, {"a": 0, "e": "cpu"}),
    }
    for name, (given, wanted) in maps.items():
        yield equal(
            f"clean map, {name}",
            str(dict(sorted(clean_device_map(dict(given)).items()))),
            str(dict(sorted(wanted.items()))),
        )
    widths = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "int8": 1, "bool": 0.125}
    for name, width in widths.items():
        yield equal(f"bytes of {name}", float(dtype_byte_size(getattr(torch, name))), float(width))
    made = torch.nn.Sequential(torch.nn.BatchNorm1d(3))
    made.register_buffer("own", torch.zeros(2), persistent=False)
    made.register_parameter("free", torch.nn.Parameter(torch.zeros(1)))
    held = {
        (True, True): ["0.bias", "0.num_batches_tracked", "0.running_mean", "0.running_var", "0.weight", "free", "own"],
        (True, False): ["0.bias", "0.weight", "free"],
        (False, True): ["free", "own"],
        (False, False): ["free"],
    }
    for (recurse, buffers), names in held.items():
        every = sorted(name for name, _ in named_module_tensors(made, include_buffers=buffers, recurse=recurse))
        yield equal(f"tensors, recurse={recurse}, include_buffers={buffers}", ", ".join(every), ", ".join(names))
    left = sorted(name for name, _ in named_module_tensors(made, recurse=True, remove_non_persistent=True))
    yield equal("tensors that are saved", "own" in left, bound=False)


@call(GROUP, phase=Phase.LOAD)
def maps_of_tied_parameters(_ctx: Context) -> Iterator[Check]:
    """find_tied_parameters groups the names of each shared parameter alone; retie_parameters shares it again."""
    import torch
    from accelerate.utils import find_tied_parameters
    from accelerate.utils.modeling import (
        check_tied_parameters_in_config,
        check_tied_parameters_on_same_device,
        retie_parameters,
    )

    alone = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    yield equal("groups of none", str(list(find_tied_parameters(alone))), "[]")
    made = offloading.model()
    made.layers[2].up = made.layers[0].up
    made.layers[1].norm.weight = made.layers[0].norm.weight
    wanted = [
        ["embed.weight", "head.weight"],
        ["layers.0.norm.weight", "layers.1.norm.weight"],
        ["layers.0.up.bias", "layers.2.up.bias"],
        ["layers.0.up.weight", "layers.2.up.weight"],
    ]
    found = sorted(sorted(group) for group in find_tied_parameters(made))
    yield equal("groups", str(found), str(wanted))
    groups = find_tied_parameters(made)
    made.head.weight = torch.nn.Parameter(torch.zeros_like(made.embed.weight, device="meta"))
    retie_parameters(made, groups)
    yield equal("shared again", made.head.weight is made.embed.weight, bound=True)
    yield equal("no configuration", check_tied_parameters_in_config(made), bound=False)
    check_tied_parameters_on_same_device(groups, {"embed": 0, "head": 1, "layers": 0})
    yield equal("weights of the head", float(made.head.weight.abs().max()) > 0, bound=True)


@call(GROUP, phase=Phase.LOAD)
def maps_that_load(ctx: Context) -> Iterator[Check]:
    """load_checkpoint_and_dispatch without a map loads in place, whatever offload_state_dict is; no hooks are added."""
    import accelerate

    plain = offloading.model()
    folder = offloading.checkpoint(ctx.kept / "checkpoint", plain.state_dict())
    wanted = offloading.outputs(plain)
    for kept in (None, False):
        for name, more in {"no map": {}, "the CPU": {"device_map": {"": "cpu"}}}.items():
            empty = offloading.model()
            for each in empty.parameters():
                each.data.zero_()
            found = accelerate.load_checkpoint_and_dispatch(empty, folder, offload_state_dict=kept, **more)
            title = f"{name}, offload_state_dict={kept}"
            yield equal(f"the same model, {title}", found is empty, bound=True)
            yield equal(f"entries off, {title}", offloading.differing(offloading.outputs(found), wanted), 0)
            hooks = [key for key, each in found.named_modules() if hasattr(each, "_hf_hook")]
            yield equal(f"modules with hooks, {title}", str(hooks), "[]")


def uncovered(names: Iterable[str], entries: Iterable[str]) -> list[str]:
    """The tensors that no entry of a map names, itself or a module around it."""
    parts = [entry.split(".") if entry else [] for entry in entries]
    return [name for name in names if not any(name.split(".")[: len(each)] == each for each in parts)]


@call(GROUP, phase=Phase.LOAD)
def maps_that_cover_a_model(ctx: Context) -> Iterator[Check]:
    """check_device_map refuses a map that leaves tensors out, and names just these; a map may name tensors as well.

    All subsets of entries, of which some begin alike. Names of no module cover nothing. dispatch_model accepts what
    infer_auto_device_map gives for parameters of the model itself.
    """
    import torch
    from accelerate import dispatch_model, infer_auto_device_map
    from accelerate.utils import check_device_map

    made = torch.nn.ModuleDict({"a": line(2, 3), "a1": torch.nn.Linear(3, 2), "b": torch.nn.BatchNorm1d(2)})
    made.register_parameter("scale", torch.nn.Parameter(torch.ones(2)))
    made.register_buffer("gone", torch.ones(2), persistent=False)
    names = [*made.state_dict()]
    entries = ("a", "a1", "a1.bias", "b", "scale", "b.running", "ab")
    subsets = [chosen for size in range(len(entries) + 1) for chosen in itertools.combinations(entries, size)]
    expected = {chosen: str(uncovered(names, chosen)) for chosen in subsets}
    found_out = {chosen: left_out(made, chosen) for chosen in subsets}
    wrong = [f"{chosen}: {found_out[chosen]}" for chosen in subsets if found_out[chosen] != expected[chosen]]
    yield equal("maps that leave out other tensors", "; ".join(wrong[:2]) or "none", "none")
    accepted = [sum(each == "[]" for each in of.values()) for of in (found_out, expected)]
    yield equal("maps that are accepted", *accepted)
    yield equal("tensors left out by the root", left_out(made, ["a", ""]), "[]")
    model = torch.nn.Sequential(line(4, 4), line(4, 4))
    model.register_parameter("start", torch.nn.Parameter(torch.zeros(30)))
    inputs = torch.linspace(-1, 1, 8).reshape(2, 4)
    wanted = model(inputs).detach()
    found = infer_auto_device_map(model, max_memory={"cpu": 120 + 64 + 64 - 1})
    yield equal("entries of the inferred map", ", ".join(found), "start, 0, 1")
    check_device_map(model, dict(found))
    dispatched = dispatch_model(model, dict(found), offload_dir=ctx.kept)
    yield equal("entries off, dispatched", offloading.differing(dispatched(inputs).detach(), wanted), 0)


def left_out(made: Any, entries: Iterable[str]) -> str:
    """The tensors that the refusal of a map names."""
    import warnings

    from accelerate.utils import check_device_map

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # entries that are no module
        try:
            check_device_map(made, dict.fromkeys(entries, "cpu"))
        except ValueError as error:
            return str(str(error).rpartition(": ")[2].split(", "))
    return "[]"
