"""Checkpoints that accelerate loads in parts: every way to store one, every kind of map, and every dtype.

https://huggingface.co/docs/accelerate/package_reference/big_modeling
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.parallel import offloading
from cases.behaviour.parallel.offloading import HALVES, USED
from cases.space.verdict import Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "accelerate: offloading"
FIRST_AWAY = {"layers.0": "disk", "layers.1": "cpu", "layers.2": "cpu", "embed": "cpu", "head": "cpu"}
TIED_AWAY = {"embed": "disk", "layers": "cpu", "head": "disk"}
MAPS: dict[str, dict[str, str] | None] = {
    "none": None,
    "root": {"": "cpu"},
    "one device": {"embed": "cpu", "layers": "cpu", "head": "cpu"},
    "cpu first": HALVES,
    "disk first": FIRST_AWAY,
    "two on disk": {"embed": "cpu", "layers.0": "disk", "layers.1": "disk", "layers.2": "cpu", "head": "cpu"},
}
DTYPES = (None, "float16", "torch.bfloat16", "float64")


def stored(folder: Path, dtype: str = "float32") -> dict[str, str]:
    """The paths of the same checkpoint stored in every way that is documented, by name."""
    import torch
    from safetensors.torch import save_file

    weights = {name: each for name, each in offloading.model(dtype).state_dict().items() if name != "head.weight"}
    parts = offloading.checkpoint(folder / "parts", weights)
    for kind in ("file", "pickled"):
        (folder / kind).mkdir()
    save_file(weights, folder / "file" / "model.safetensors", metadata={"format": "pt"})
    torch.save(weights, folder / "pickled" / "pytorch_model.bin")
    return {
        "a folder of parts": str(parts),
        "an index": str(parts / "model.safetensors.index.json"),
        "a folder with one file": str(folder / "file"),
        "a safetensors file": str(folder / "file" / "model.safetensors"),
        "a pickled file": str(folder / "pickled" / "pytorch_model.bin"),
    }


def empty(*, tied: bool = True) -> Any:
    """The model without memory; if ``tied``, its head is tied after that, as a model's tie_weights does."""
    import accelerate

    with accelerate.init_empty_weights(include_buffers=False):
        made = offloading.model()
    if tied:
        made.head.weight = made.embed.weight
    return made


@call(GROUP, phase=Phase.LOAD)
def accelerate_loads_every_map(ctx: Context) -> Iterator[Check]:
    """load_checkpoint_and_dispatch gives the saved model's outputs for every map, and puts away what the map says.

    The folder for weights on disk may exist, as in a second run.
    """
    import accelerate

    wanted = offloading.outputs(offloading.model())
    paths = stored(ctx.kept)
    away = ctx.kept / "away"
    away.mkdir()
    for (title, places), state in product(MAPS.items(), (False, True)):
        if places is None:
            continue
        name = f"{title}, offload_state_dict={state}"
        more = {"device_map": places, "offload_folder": away, "offload_state_dict": state}
        made = accelerate.load_checkpoint_and_dispatch(empty(), paths["an index"], preload_module_classes=USED, **more)
        yield equal(f"entries off, {name}", offloading.differing(offloading.outputs(made), wanted), 0)
        gone = sorted({key for key, _ in offloading.model().named_parameters() if place_of(key, places) == "disk"})
        yield equal(f"weights away, {name}", str([key for key in offloading.elsewhere(made) if key in gone]), str(gone))


@call(GROUP, phase=Phase.LOAD)
def accelerate_loads_tied_to_disk(ctx: Context) -> Iterator[Check]:
    """load_checkpoint_and_dispatch runs a tied model whose map puts both tied weights on the disk.

    The checkpoint has the weight once, as save_pretrained and save_model write it.
    """
    import accelerate

    wanted = offloading.outputs(offloading.model())
    more = {"device_map": TIED_AWAY, "offload_folder": ctx.kept / "away"}
    made = accelerate.load_checkpoint_and_dispatch(empty(), stored(ctx.kept)["an index"], **more)
    yield equal("entries off", offloading.differing(offloading.outputs(made), wanted), 0)


def place_of(key: str, places: dict[str, str]) -> str:
    """The device of a tensor: that of the longest name of a module in the map."""
    matching = [entry for entry in places if entry == "" or f"{key}.".startswith(f"{entry}.")]
    return places[max(matching, key=len)]


@call(GROUP, phase=Phase.LOAD)
def accelerate_loads_every_store(ctx: Context) -> Iterator[Check]:
    """load_checkpoint_in_model reads a folder, an index or a file, of both formats, with and without a map."""
    from accelerate import load_checkpoint_in_model

    wanted = {name: each for name, each in offloading.model().state_dict().items() if name != "head.weight"}
    for (kind, path), (title, places) in product(stored(ctx.kept).items(), MAPS.items()):
        if places is not None and "disk" in places.values():
            continue
        made = offloading.model()
        for each in made.parameters():
            each.data.zero_()
        load_checkpoint_in_model(made, path, device_map=places)
        found = made.state_dict()
        off = [name for name, each in wanted.items() if offloading.differing(found[name], each)]
        yield equal(f"tensors off, {kind}, map {title}", ", ".join(off) or "none", "none")
        yield equal(f"tied, {kind}, map {title}", made.head.weight is made.embed.weight, bound=True)


@call(GROUP, phase=Phase.LOAD)
def accelerate_loads_path_objects(ctx: Context) -> Iterator[Check]:
    """load_checkpoint_in_model takes the path of a folder, of an index and of a file as os.PathLike too."""
    from accelerate import load_checkpoint_in_model

    for kind, path in stored(ctx.kept).items():
        made = offloading.model()
        for each in made.parameters():
            each.data.zero_()
        load_checkpoint_in_model(made, Path(path))
        yield equal(f"entries off, {kind}", offloading.differing(made.embed.weight, offloading.model().embed.weight), 0)


@call(GROUP, phase=Phase.LOAD)
def accelerate_loads_dtypes(ctx: Context) -> Iterator[Check]:
    """load_checkpoint_in_model casts to dtype, a torch dtype or its name, on the CPU and on disk.

    Without one, weights have the dtype of the model, or that of the checkpoint if they come from the disk or through
    it (offload_state_dict).
    """
    import torch
    from accelerate import load_checkpoint_in_model
    from accelerate.utils import OffloadedWeightsLoader

    paths = stored(ctx.kept, "float16")
    exact = {name: each for name, each in offloading.model("float16").state_dict().items() if name != "head.weight"}
    for number, (dtype, state) in enumerate(product(DTYPES, (False, True))):
        made, away = empty(), ctx.kept / f"away{number}"
        load_checkpoint_in_model(
            made,
            paths["a folder of parts"],
            device_map=FIRST_AWAY,
            offload_folder=away,
            dtype=dtype,
            offload_state_dict=state,
        )
        kind = dtype.removeprefix("torch.") if dtype else "float16" if state else "float32"
        held = {name: each for name, each in made.named_parameters() if each.device.type != "meta"}
        wrong = [name for name, each in held.items() if str(each.dtype) != f"torch.{kind}"]
        name = f"dtype={dtype}, offload_state_dict={state}"
        yield equal(f"dtypes other than expected, {name}", ", ".join(wrong) or "none", "none")
        cast = {key: each.to(getattr(torch, kind)) for key, each in exact.items()}
        off = [key for key, each in cast.items() if key in held and offloading.differing(held[key], each)]
        yield equal(f"tensors off, {name}", ", ".join(off) or "none", "none")
        disk = OffloadedWeightsLoader(save_folder=away)
        yield equal(f"parameters on the disk, {name}", len([key for key in disk if "scale" not in key]), 6)
        lost = [
            key
            for key in exact
            if key not in held and key in disk and offloading.differing(disk[key].half(), exact[key])
        ]
        yield equal(f"tensors off on the disk, {name}", ", ".join(lost) or "none", "none")


@call(GROUP, phase=Phase.LOAD)
def accelerate_keeps_in_float32(ctx: Context) -> Iterator[Check]:
    """keep_in_fp32_modules loads the modules of these names in float32 if dtype is float16, and no others."""
    from accelerate import load_checkpoint_in_model

    path = stored(ctx.kept)["an index"]
    made = offloading.model()
    load_checkpoint_in_model(made, path, device_map={"": "cpu"}, dtype="float16", keep_in_fp32_modules=["norm"])
    kept = {name for name, each in made.named_parameters() if str(each.dtype) == "torch.float32"}
    wanted = {name for name, _ in made.named_parameters() if ".norm." in name}
    yield equal("parameters in float32", ", ".join(sorted(kept ^ wanted)) or "as expected", "as expected")


@call(GROUP, phase=Phase.LOAD)
def accelerate_loads_other_names(ctx: Context) -> Iterator[Check]:
    """A checkpoint with names that the model lacks loads the others; strict=True refuses it, with a map or without."""
    from accelerate import load_checkpoint_in_model
    from safetensors.torch import save_file

    weights = {name: each for name, each in offloading.model().state_dict().items() if name != "head.weight"}
    path = str(ctx.kept / "more.safetensors")
    save_file({**weights, "unknown.weight": weights["embed.weight"].clone()}, path, metadata={"format": "pt"})
    for title in ("none", "root"):
        made = offloading.model()
        for each in made.parameters():
            each.data.zero_()
        load_checkpoint_in_model(made, path, device_map=MAPS[title])
        off = [name for name, each in weights.items() if offloading.differing(made.state_dict()[name], each)]
        yield equal(f"tensors off, map {title}", ", ".join(off) or "none", "none")
        try:
            load_checkpoint_in_model(offloading.model(), path, device_map=MAPS[title], strict=True)
        except (RuntimeError, ValueError, AttributeError):
            refused = True
        else:
            refused = False
        yield equal(f"refused if strict, map {title}", refused, bound=True)


@call(GROUP, phase=Phase.LOAD)
def accelerate_ties_loaded(ctx: Context) -> Iterator[Check]:
    """A tied model without memory is tied after loading, to the weight that was loaded, in whichever order.

    The checkpoint has the tied weight once, under either of its names.
    """
    import accelerate
    from safetensors.torch import save_file

    weights = dict(offloading.model().state_dict())
    wanted = offloading.outputs(offloading.model())
    for kept, left in (("embed.weight", "head.weight"), ("head.weight", "embed.weight")):
        path = str(ctx.kept / f"{kept}.safetensors")
        held = {name: each.clone() for name, each in weights.items() if name != left}
        save_file(held, path, metadata={"format": "pt"})
        made = accelerate.load_checkpoint_and_dispatch(empty(), path, device_map={"": "cpu"})
        yield equal(f"weights without memory, {kept}", ", ".join(offloading.elsewhere(made)) or "none", "none")
        yield equal(f"tied, {kept}", made.head.weight is made.embed.weight, bound=True)
        yield equal(f"entries off, {kept}", offloading.differing(offloading.outputs(made), wanted), 0)
