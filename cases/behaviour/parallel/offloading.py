"""Models that accelerate offloads, dispatches, splits over devices and loads in parts compute what they compute whole.

https://huggingface.co/docs/accelerate/package_reference/big_modeling. The model has tied weights, buffers of both
kinds, and a layer whose weight its parent uses directly.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.apply import front_ends
from cases.behaviour.parallel import networks
from cases.model import tiny
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from cases.apply.context import Context

GROUP = "accelerate: offloading"
WORDS, WIDTH, LAYERS = 11, 6, 3
DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int8", "uint8", "bool")


def alone(ctx: Context) -> Any:
    """An Accelerator of a script that no launcher started."""
    from accelerate import Accelerator

    os.environ.update(front_ends.launched(ctx.place))
    return Accelerator(cpu=ctx.place.kind == "cpu")


def block(*, direct: bool = True) -> Any:
    """A layer with buffers that scale and shift; if ``direct``, it uses a module's weight without calling it."""
    import torch

    class Layer(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.LayerNorm(WIDTH)
            self.up = torch.nn.Linear(WIDTH, 2 * WIDTH)
            self.down = torch.nn.Linear(2 * WIDTH, WIDTH)
            self.register_buffer("scale", torch.full((WIDTH,), 1.5))
            self.register_buffer("shift", torch.full((WIDTH,), 0.25), persistent=False)

        def forward(self, hidden: Any) -> Any:
            inner = torch.tanh(self.up(self.norm(hidden)))
            weights = (self.down.weight, self.down.bias)
            mixed = torch.nn.functional.linear(inner, *weights) if direct else self.down(inner)
            return hidden + mixed * self.scale + self.shift

    return Layer()


def model(dtype: str = "float32", layers: int = LAYERS, *, direct: bool = True) -> Any:
    """Embeddings, blocks and a head that is tied to the embeddings."""
    import torch

    class Tied(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.embed = torch.nn.Embedding(WORDS, WIDTH)
            self.layers = torch.nn.ModuleList([block(direct=direct) for _ in range(layers)])
            self.head = torch.nn.Linear(WIDTH, WORDS, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, ids: Any) -> Any:
            hidden = self.embed(ids)
            for layer in self.layers:
                hidden = layer(hidden)
            return self.head(hidden)

    made = networks.filled(Tied())
    return made.to(getattr(torch, dtype)).eval()


def ids() -> Any:
    import torch

    return torch.arange(12).reshape(3, 4) % WORDS


def outputs(of: Any) -> Any:
    import torch

    with torch.no_grad():
        return of(ids()).clone()


def differing(found: Any, wanted: Any) -> int:
    """The number of entries that are not equal, or of all entries if shapes differ."""
    return int((found != wanted).sum()) if found.shape == wanted.shape else wanted.numel()


def elsewhere(of: Any) -> list[str]:
    """The parameters that are on no device."""
    return sorted(name for name, p in of.named_parameters(remove_duplicate=False) if p.device.type == "meta")


def checkpoint(folder: Path, weights: dict[str, Any], parts: int = 2) -> Path:
    """A checkpoint in several files with an index; tied weights are saved once."""
    import json

    from safetensors.torch import save_file

    folder.mkdir(exist_ok=True)
    names = [name for name in weights if name != "head.weight"]
    where = {name: f"model-{number % parts + 1:05}-of-{parts:05}.safetensors" for number, name in enumerate(names)}
    for file in set(where.values()):
        save_file({name: weights[name].contiguous() for name in names if where[name] == file}, folder / file)
    index = {"metadata": {}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


HALVES: dict[str, str] = {"embed": "cpu", "layers.0": "disk", "layers.1": "cpu", "layers.2": "disk", "head": "cpu"}
USED = ["Layer"]  # the class whose parts are loaded together, as it uses a weight without its module


def offloaded(ctx: Context) -> dict[str, Callable[[Any], Any]]:
    """Ways to offload a model, by name."""
    import accelerate
    import torch

    folder = ctx.kept
    cpu = torch.device("cpu")
    return {
        "cpu_offload": lambda m: accelerate.cpu_offload(m, cpu, preload_module_classes=USED),
        "cpu_offload, buffers": lambda m: accelerate.cpu_offload(
            m, cpu, offload_buffers=True, preload_module_classes=USED
        ),
        "disk_offload": lambda m: accelerate.disk_offload(m, folder / "whole", cpu, preload_module_classes=USED),
        "disk_offload, buffers": lambda m: accelerate.disk_offload(
            m, folder / "buffers", cpu, offload_buffers=True, preload_module_classes=USED
        ),
        "dispatch_model": lambda m: accelerate.dispatch_model(
            m, HALVES, offload_dir=folder / "half", preload_module_classes=USED
        ),
        "dispatch_model, hooks": lambda m: accelerate.dispatch_model(m, {"": "cpu"}, force_hooks=True),
    }


@call(GROUP, phase=Phase.INFER)
def accelerate_offloads(ctx: Context) -> Iterator[Check]:
    """An offloaded or dispatched model gives the outputs of the whole one, twice, and its weights go away after each.

    cpu_offload, disk_offload and dispatch_model, with buffers and without, in a tied model.
    """
    for name, offload in offloaded(ctx).items():
        away = () if "hooks" in name else ("layers.0", "layers.2") if name == "dispatch_model" else ("",)
        yield from run_twice(name, offload, away)


def run_twice(name: str, offload: Callable[[Any], Any], begins: tuple[str, ...]) -> Iterator[Check]:
    """Compare an offloaded model with the whole one; weights that begin so are away before and after each run."""
    wanted, made = outputs(model()), offload(model())
    away = elsewhere(made)
    expected = sorted(key for key, _ in model().named_parameters(remove_duplicate=False) if key.startswith(begins))
    yield equal(f"entries off, {name}", differing(outputs(made), wanted), 0)
    yield equal(f"weights away, before and after, {name}", str(elsewhere(made)), str(away))
    yield equal(f"entries off the second time, {name}", differing(outputs(made), wanted), 0)
    yield equal(f"weights away, {name}", ", ".join(away), ", ".join(expected))


@call(GROUP, phase=Phase.INFER, requires=("all_on_disk",))
def accelerate_dispatches_disk(ctx: Context) -> Iterator[Check]:
    """dispatch_model runs a model whose map puts every module on the disk; older versions refuse such a map."""
    import accelerate

    more = {"offload_dir": ctx.kept, "offload_buffers": True, "preload_module_classes": USED}
    disk = dict.fromkeys(HALVES, "disk")
    yield from run_twice("all on disk", lambda made: accelerate.dispatch_model(made, disk, **more), ("",))


@call(GROUP, phase=Phase.INFER, requires=("all_on_disk",))
def accelerate_dispatches_root(ctx: Context) -> Iterator[Check]:
    """dispatch_model puts a whole model on the disk if the map names its root, as it does on the CPU.

    The map has module names; "" is that of the model, and check_device_map accepts it.
    """
    import accelerate

    wanted = outputs(model())
    more = {"preload_module_classes": USED, "force_hooks": True}
    for place in ("cpu", "disk"):
        made = accelerate.dispatch_model(model(), {"": place}, offload_dir=ctx.kept / place, **more)
        yield equal(f"entries off, {place}", differing(outputs(made), wanted), 0)


@call(GROUP, phase=Phase.INFER)
def accelerate_offloads_dtypes(ctx: Context) -> Iterator[Check]:
    """A model of another dtype runs from disk bit for bit, and tensors of every dtype come back, single numbers too."""
    import accelerate
    import torch
    from accelerate.utils import load_offloaded_weight, offload_weight

    for dtype in ("bfloat16", "float16", "float64"):
        wanted = outputs(model(dtype))
        made = accelerate.disk_offload(model(dtype), ctx.kept / dtype, torch.device("cpu"), preload_module_classes=USED)
        found = outputs(made)
        yield equal(f"dtype of the outputs, {dtype}", str(found.dtype), f"torch.{dtype}")
        yield equal(f"entries off, {dtype}", differing(found, wanted), 0)
    folder = ctx.kept / "weights"
    folder.mkdir()
    for dtype in DTYPES:
        for shape in ((3, 5), ()):
            weight = (tiny.values("weight", (3, 5)) * 64).to(getattr(torch, dtype))[tuple([0] * (2 - len(shape)))]
            index = offload_weight(weight, f"{dtype}{len(shape)}", folder, index={})
            again = load_offloaded_weight(folder / f"{dtype}{len(shape)}.dat", index[f"{dtype}{len(shape)}"])
            kind = str((again.dtype == weight.dtype, tuple(again.shape), differing(again, weight)))
            dimensions = len(shape)
            yield equal(f"dtype, shape and entries off, {dtype} {dimensions}", kind, str((True, shape, 0)))


@call(GROUP, phase=Phase.LOAD)
def accelerate_loads_parts(ctx: Context) -> Iterator[Check]:
    """load_checkpoint_and_dispatch fills an empty model from a checkpoint in parts, on the device that the map names.

    With init_empty_weights the model begins without memory; dtype casts floating-point weights.
    """
    import accelerate
    import torch

    plain = model()
    folder = checkpoint(ctx.kept / "checkpoint", plain.state_dict())
    wanted = outputs(plain)
    maps: dict[str, dict[str, Any]] = {
        "cpu": {"device_map": {"": "cpu"}},
        "cpu and disk": {"device_map": HALVES, "offload_folder": ctx.kept / "away"},
        "disk as arrays": {"device_map": HALVES, "offload_folder": ctx.kept / "arrays", "offload_state_dict": True},
    }
    for name, more in maps.items():
        with accelerate.init_empty_weights(include_buffers=False):
            empty = model()
        yield equal(
            f"weights without memory, {name}",
            len(elsewhere(empty)),
            len([*empty.named_parameters(remove_duplicate=False)]),
        )
        empty.head.weight = empty.embed.weight
        made = accelerate.load_checkpoint_and_dispatch(empty, folder, preload_module_classes=USED, **more)
        yield equal(f"entries off, {name}", differing(outputs(made), wanted), 0)
        away = len(elsewhere(made))
        layers = [key for key, _ in plain.named_parameters() if key.startswith(("layers.0", "layers.2"))]
        yield equal(f"weights away, {name}", away, 0 if name == "cpu" else len(layers))
    with accelerate.init_empty_weights(include_buffers=False):
        empty = model()
    empty.head.weight = empty.embed.weight
    made = accelerate.load_checkpoint_and_dispatch(empty, folder, device_map={"": "cpu"}, dtype=torch.bfloat16)
    kinds = {str(p.dtype) for p in made.parameters()}
    yield equal("dtypes of weights, bfloat16", str(kinds), "{'torch.bfloat16'}")


@call(GROUP, phase=Phase.LOAD)
def accelerate_empty_weights(_ctx: Context) -> Iterator[Check]:
    """init_empty_weights builds parameters without memory, and buffers if asked; later modules have memory again."""
    import accelerate
    import torch

    for buffers in (False, True):
        with accelerate.init_empty_weights(include_buffers=buffers):
            made = torch.nn.BatchNorm1d(4)
            with accelerate.init_empty_weights(include_buffers=buffers):
                inner = torch.nn.Linear(2, 3, dtype=torch.float16)
            outer = torch.nn.Linear(2, 3)
        kinds = {each.device.type for layer in (made, inner, outer) for each in layer.parameters()}
        yield equal(f"devices of parameters, include_buffers={buffers}", str(kinds), "{'meta'}")
        kinds = {each.device.type for each in made.buffers()}
        yield equal(f"devices of buffers, include_buffers={buffers}", str(kinds), str({"meta" if buffers else "cpu"}))
        yield equal(f"dtype kept, include_buffers={buffers}", str(inner.weight.dtype), "torch.float16")
        after = torch.nn.BatchNorm1d(4)
        kinds = {each.device.type for each in (*after.parameters(), *after.buffers())}
        yield equal(f"devices afterwards, include_buffers={buffers}", str(kinds), "{'cpu'}")


def size_of(parameters: dict[str, Any], entry: str, width: int) -> int:
    """The bytes of the tensors that an entry of a device map covers; ``width`` is that of a number."""
    return sum(
        each.numel() * width for name, each in parameters.items() if entry == "" or (name + ".").startswith(entry + ".")
    )


@call(GROUP, phase=Phase.LOAD)
def accelerate_device_maps(_ctx: Context) -> Iterator[Check]:
    """infer_auto_device_map covers each tensor once, in order, within max_memory, and splits no named class.

    A dtype counts weights in its bytes. The rest goes to the disk.
    """
    import torch
    from accelerate import infer_auto_device_map

    made = model(layers=6)
    tensors = {name: each for name, each in made.state_dict().items() if name != "head.weight"}
    layer = size_of(tensors, "layers.0", 4)
    whole = size_of(tensors, "", 4)
    budgets: dict[str, tuple[dict[Any, int], Any, int]] = {
        "all on one": ({0: 2 * whole, "cpu": whole}, None, 4),
        "two devices": ({0: 4 * layer, 1: 9 * layer, "cpu": 2 * whole}, None, 4),
        "cpu and disk": ({"cpu": 3 * layer}, None, 4),
        "device, cpu and disk": ({0: 3 * layer, "cpu": 2 * layer}, None, 4),
        "halves": ({0: 3 * layer, "cpu": 2 * layer}, torch.bfloat16, 2),
    }
    for name, (budget, dtype, width) in budgets.items():
        found = infer_auto_device_map(made, max_memory=dict(budget), no_split_module_classes=["Layer"], dtype=dtype)
        covering = {key: [e for e in found if e == "" or (key + ".").startswith(e + ".")] for key in tensors}
        wrong = [key for key, entries in covering.items() if len(entries) != 1]
        yield equal(f"tensors not covered once, {name}", ", ".join(wrong) or "none", "none")
        parts = [entry for entry in found if entry.startswith("layers.") and entry.count(".") > 1]
        yield equal(f"blocks split, {name}", ", ".join(parts) or "none", "none")
        used: dict[Any, int] = {}
        for entry, device in found.items():
            used[device] = used.get(device, 0) + size_of(tensors, entry, width)
        over = [device for device, number in used.items() if device != "disk" and number > budget.get(device, 0)]
        yield equal(f"devices over their budget, {name}", str(over), "[]")
        ranked = [*budget, "disk"]
        places = [ranked.index(found[covering[f"layers.{number}.up.weight"][0]]) for number in range(6)]
        yield equal(f"layers out of order, {name}", int(places != sorted(places)), 0)
        last = {"all on one": 0, "two devices": 1, "cpu and disk": 1, "device, cpu and disk": 2, "halves": 1}[name]
        yield equal(f"device of the last layer, {name}", str(ranked[places[-1]]), str(ranked[last]))


@call(GROUP, phase=Phase.SAVE)
def accelerate_saves_offloaded(ctx: Context) -> Iterator[Check]:
    """save_model writes the weights of a dispatched model whole, in parts of max_shard_size, tied ones once."""
    import accelerate
    from safetensors.torch import load_file

    plain = model()
    wanted = {name: tensor for name, tensor in plain.state_dict().items() if name != "head.weight"}
    layer = size_of(wanted, "layers.0", 4)
    made = alone(ctx)
    states: dict[str, tuple[Any, str, int]] = {
        "plain, one file": (plain, "10GB", 1),
        "plain, parts": (plain, f"{2 * layer / 1000}KB", 2),
        "dispatched": (
            accelerate.dispatch_model(model(direct=False), HALVES, offload_dir=ctx.kept / "half"),
            f"{2 * layer / 1000}KB",
            2,
        ),
    }
    for number, (name, (saved, size, files)) in enumerate(states.items()):
        folder = ctx.kept / f"saved-{number}"
        made.save_model(saved, folder, max_shard_size=size)
        parts = sorted(folder.glob("*.safetensors"))
        found: dict[str, Any] = {}
        for part in parts:
            found |= load_file(part)
        kept = {name: found.get(name, found.get("head.weight") if name == "embed.weight" else None) for name in wanted}
        off = [key for key, tensor in wanted.items() if kept[key] is None or differing(kept[key], tensor)]
        yield equal(f"tensors off, {name}", ", ".join(off) or "none", "none")
        yield at_most(f"tied weights twice, {name}", len(found) - len(wanted), 0)
        largest = max(sum(each.numel() * 4 for each in load_file(part).values()) for part in parts)
        yield at_most(f"bytes of a part over the limit, {name}", max(0, largest - 2 * layer) if files > 1 else 0, 0)
        yield equal(f"several files, {name}", len(parts) > 1, files > 1)


@call(GROUP, phase=Phase.INFER)
def accelerate_prepares_dispatched(ctx: Context) -> Iterator[Check]:
    """prepare_model leaves a dispatched model in evaluation mode as it is: outputs, hooks and weights away.

    cpu_offload_with_hook keeps a model ready until its hook, or the next model, offloads it.
    """
    import accelerate

    wanted = outputs(model())
    dispatched = accelerate.dispatch_model(model(), HALVES, offload_dir=ctx.kept / "half", preload_module_classes=USED)
    away = elsewhere(dispatched)
    prepared = alone(ctx).prepare_model(dispatched, evaluation_mode=True)
    yield equal("entries off", differing(outputs(prepared), wanted), 0)
    yield equal("weights away", str(elsewhere(prepared)), str(away))
    first, hook = accelerate.cpu_offload_with_hook(model(), ctx.place.device)
    second, last = accelerate.cpu_offload_with_hook(model(), ctx.place.device, prev_module_hook=hook)
    for _ in range(2):
        yield equal(
            "entries off, with a hook", differing(outputs(first), wanted) + differing(outputs(second), wanted), 0
        )
    hook.offload()
    last.remove()
    yield equal(
        "entries off, offloaded by hand", differing(outputs(first), wanted) + differing(outputs(second), wanted), 0
    )


@call(GROUP, phase=Phase.SAVE)
def accelerate_saves_preloaded(ctx: Context) -> Iterator[Check]:
    """save_model writes a dispatched model whole, also if preload_module_classes loads parts of it together."""
    import accelerate
    from safetensors.torch import load_file

    wanted = {name: tensor for name, tensor in model().state_dict().items() if name != "head.weight"}
    made = accelerate.dispatch_model(model(), HALVES, offload_dir=ctx.kept / "half", preload_module_classes=USED)
    alone(ctx).save_model(made, ctx.kept / "saved")
    found = load_file(ctx.kept / "saved" / "model.safetensors")
    off = [name for name, tensor in wanted.items() if name in found and differing(found[name], tensor)]
    yield equal("tensors off", ", ".join(off) or "none", "none")
    yield at_most("tensors missing", len(wanted) - len(found), 0)
