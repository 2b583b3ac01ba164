"""Hooks of accelerate: where they put weights, inputs and outputs, their order, and what is left when they go.

The device without memory stands for another one: https://huggingface.co/docs/accelerate/package_reference/big_modeling
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.accelerating.nested_tensors import refusal
from cases.behaviour.parallel import offloading
from cases.space.verdict import Check, Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "accelerate: offloading"


def block() -> Any:
    """A module with a weight and buffers of its own, and a child with some."""
    import torch

    made = torch.nn.Linear(3, 3)
    made.register_buffer("scale", torch.ones(3))
    made.register_buffer("shift", torch.zeros(3), persistent=False)
    made.child = torch.nn.BatchNorm1d(3)
    return made


def places(module: Any) -> dict[str, str]:
    """The device of each parameter and buffer."""
    every = [*module.named_parameters(), *module.named_buffers()]
    return {name: each.device.type for name, each in sorted(every)}


@call(GROUP, phase=Phase.LOAD)
def hooks_place_tensors(_ctx: Context) -> Iterator[Check]:
    """AlignDevicesHook moves a module's own tensors, with place_submodules all below it, and inputs as they come in."""
    import torch
    from accelerate.hooks import AlignDevicesHook, add_hook_to_module

    for submodules in (False, True):
        for device in ("meta", torch.device("meta"), None):
            made = block()
            wanted = {
                name: "meta" if device is not None and (submodules or "child" not in name) else "cpu"
                for name in places(made)
            }
            add_hook_to_module(made, AlignDevicesHook(execution_device=device, place_submodules=submodules))
            title = f"{device}, place_submodules={submodules}"
            yield equal(f"devices of tensors, {title}", str(places(made)), str(wanted))
            found = made(torch.ones(2, 3)).device.type
            yield equal(f"device of outputs, {title}", found, "cpu" if device is None else "meta")
    kept = torch.nn.Linear(2, 2)

    def forward(inputs: Any, *, mask: Any = None, other: Any = None) -> str:
        return f"{inputs.device.type} {mask.device.type} {other.device.type}"

    kept.forward = forward
    add_hook_to_module(kept, AlignDevicesHook(execution_device="meta", skip_keys=["mask"]))
    ones = torch.ones(2)
    yield equal("devices of inputs, skip_keys", kept(ones, mask=ones, other=ones), "meta cpu meta")


@call(GROUP, phase=Phase.LOAD)
def hooks_on_blocks(_ctx: Context) -> Iterator[Check]:
    """attach_align_device_hook_on_blocks moves each block that it names, with all below it, and leaves the others."""
    import torch
    from accelerate.hooks import attach_align_device_hook_on_blocks

    for offload in (False, {"1": False, "": False}):
        made = torch.nn.Sequential(block(), torch.nn.Sequential(block(), torch.nn.Linear(3, 3)), block())
        attach_align_device_hook_on_blocks(made, execution_device={"": "cpu", "1": "meta"}, offload=offload)
        wanted = {name: "meta" if name.startswith("1.") else "cpu" for name in places(made)}
        title = "one offload" if offload is False else "an offload for each"
        yield equal(f"devices of tensors, {title}", str(places(made)), str(wanted))
    whole = torch.nn.Sequential(block(), block())
    attach_align_device_hook_on_blocks(whole, execution_device="meta")
    yield equal("devices of tensors, all", str(set(places(whole).values())), "{'meta'}")


@call(GROUP, phase=Phase.LOAD)
def hooks_in_sequence(_ctx: Context) -> Iterator[Check]:
    """Hooks that are appended act in their order, another one replaces them, and removing gives the forward back.

    "If the module already contains a hook, this will replace it with the new hook passed by default."
    """
    import torch
    from accelerate.hooks import ModelHook, add_hook_to_module, remove_hook_from_module

    class Hook(ModelHook):  # type: ignore[misc]
        def __init__(self, name: str, log: list[str], *, no_grad: bool = False) -> None:
            self.name, self.log, self.no_grad = name, log, no_grad

        def init_hook(self, module: Any) -> Any:
            self.log.append(f"init {self.name}")
            return module

        def pre_forward(self, _module: Any, *args: Any, **kwargs: Any) -> Any:
            self.log.append(f"before {self.name}")
            return tuple(each + 1 for each in args), kwargs

        def post_forward(self, _module: Any, output: Any) -> Any:
            self.log.append(f"after {self.name}")
            return output * 2

        def detach_hook(self, module: Any) -> Any:
            self.log.append(f"detach {self.name}")
            return module

    log: list[str] = []
    made = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.constant_(made.weight, 3.0)
    before = made.forward
    add_hook_to_module(made, Hook("a", log))
    yield equal("output, one hook", float(made(torch.ones(1, 1))), 12.0)
    add_hook_to_module(made, Hook("b", log), append=True)
    log.clear()
    yield equal("output, two hooks", float(made(torch.ones(1, 1))), 36.0)
    yield equal("order, two hooks", ", ".join(log), "before a, before b, after a, after b")
    log.clear()
    remove_hook_from_module(made)
    yield equal("order, removed", ", ".join(log), "detach a, detach b")
    yield equal("output, removed", float(made(torch.ones(1, 1))), 3.0)
    yield equal("forward, removed", made.forward == before, bound=True)
    yield equal("attributes left", str([key for key in ("_hf_hook", "_old_forward") if hasattr(made, key)]), "[]")
    for appended, value in ((False, 12.0), (True, 36.0)):
        add_hook_to_module(made, Hook("a", log))
        add_hook_to_module(made, Hook("b", log), append=appended)
        yield equal(f"output, append={appended}", float(made(torch.ones(1, 1))), value)
        remove_hook_from_module(made)
    for without in (False, True):
        add_hook_to_module(made, Hook("a", log, no_grad=without))
        yield equal(f"gradients, no_grad={without}", made(torch.ones(1, 1)).requires_grad, not without)
        remove_hook_from_module(made)
    nest = torch.nn.Sequential(made)
    add_hook_to_module(made, Hook("a", log))
    remove_hook_from_module(nest)
    yield equal("hook of a child, removed above it", hasattr(made, "_hf_hook"), bound=True)
    remove_hook_from_module(nest, recurse=True)
    yield equal("hook of a child, recurse", hasattr(made, "_hf_hook"), bound=False)


@call(GROUP, phase=Phase.LOAD)
def hooks_removed_from_offloaded(ctx: Context) -> Iterator[Check]:
    """remove_hook_from_submodules of an offloaded model puts its weights back, from the CPU and from the disk."""
    import accelerate
    from accelerate.hooks import remove_hook_from_submodules

    wanted = dict(offloading.model().state_dict())
    outputs = offloading.outputs(offloading.model())
    ways = {
        name: way for name, way in offloading.offloaded(ctx).items() if "cpu_offload" in name or "disk_offload" in name
    }
    ways["dispatched"] = lambda m: accelerate.dispatch_model(
        m, offloading.HALVES, offload_dir=ctx.kept / "removed", preload_module_classes=offloading.USED
    )
    for name, way in ways.items():
        made = way(offloading.model())
        yield equal(f"weights away before, {name}", len(offloading.elsewhere(made)) > 0, bound=True)
        remove_hook_from_submodules(made)
        yield equal(f"weights away, {name}", str(offloading.elsewhere(made)), "[]")
        found = made.state_dict()
        off = [key for key, each in wanted.items() if offloading.differing(found[key], each)]
        yield equal(f"weights off, {name}", ", ".join(off) or "none", "none")
        yield equal(f"entries off, {name}", offloading.differing(offloading.outputs(made), outputs), 0)
        hooked = [key for key, each in made.named_modules() if hasattr(each, "_hf_hook")]
        yield equal(f"hooks left, {name}", str(hooked), "[]")


@call(GROUP, phase=Phase.LOAD)
def hooks_that_are_needed(ctx: Context) -> Iterator[Check]:
    """A model on a single device gets no hooks, unless force_hooks says so: it can be saved whole, and moved.

    cpu_offload_with_hook moves a model to its device at its pass, and the one before it away.
    """
    import io

    import accelerate
    import torch

    plain = offloading.model()
    folder = offloading.checkpoint(ctx.kept / "checkpoint", plain.state_dict())
    for forced in (False, True):
        more = {"device_map": {"": "cpu"}, "force_hooks": forced}
        both = {
            "dispatch_model": accelerate.dispatch_model(offloading.model(), **more),
            "load_checkpoint_and_dispatch": accelerate.load_checkpoint_and_dispatch(offloading.model(), folder, **more),
        }
        for name, made in both.items():
            title = f"{name}, force_hooks={forced}"
            yield equal(f"has hooks, {title}", hasattr(made, "_hf_hook"), forced)
            yield equal(
                f"entries off, {title}", offloading.differing(offloading.outputs(made), offloading.outputs(plain)), 0
            )
            yield equal(f"map, {title}", str(made.hf_device_map), "{'': 'cpu'}")
            if not forced and name == "dispatch_model":
                layer = accelerate.dispatch_model(torch.nn.Linear(2, 2), {"": "cpu"})
                yield equal(f"refused, saved whole, {title}", refusal(torch.save, layer, io.BytesIO()), "none")
            if name == "dispatch_model":
                cast = made.to(torch.float64)
                yield equal(f"itself, moved, {title}", cast is made, bound=True)
                yield equal(f"moved, {title}", made.head.weight.dtype == torch.float64, bound=True)
    first, hook = accelerate.cpu_offload_with_hook(torch.nn.Linear(2, 2), "cpu")
    second, last = accelerate.cpu_offload_with_hook(torch.nn.Linear(2, 2), "meta", prev_module_hook=hook)
    yield equal(
        "has hooks, cpu_offload_with_hook", all(hasattr(each, "_hf_hook") for each in (first, second)), bound=True
    )
    yield equal("device of outputs, the first", first(torch.ones(1, 2)).device.type, "cpu")
    yield equal("device of outputs, the second", second(torch.ones(1, 2)).device.type, "meta")
    last.remove()
    yield equal("has hooks, removed", hasattr(second, "_hf_hook"), bound=False)


@call(GROUP, phase=Phase.LOAD)
def hooks_with_buffers(ctx: Context) -> Iterator[Check]:
    """A model with running statistics computes from disk and CPU what it does whole, its buffers offloaded or not."""
    import accelerate
    import torch
    from safetensors.torch import save_file

    plain = _normed()
    folder = ctx.kept / "normed"
    folder.mkdir()
    save_file(plain.state_dict(), folder / "model.safetensors")
    inputs = torch.linspace(-1, 2, 12).reshape(4, 3)
    with torch.no_grad():
        wanted = plain(inputs)
    maps: dict[str, dict[str, str]] = {
        "one": {"0": "cpu", "1": "disk", "2": "cpu"},
        "two": {"0": "disk", "1": "disk", "2": "cpu"},
    }
    for name, places_of in maps.items():
        for buffers in (False, True):
            with accelerate.init_empty_weights(include_buffers=False):
                empty = _normed()
            made = accelerate.load_checkpoint_and_dispatch(
                empty,
                str(folder / "model.safetensors"),
                device_map=dict(places_of),
                offload_folder=ctx.kept / f"{name} {buffers}",
                offload_buffers=buffers,
            )
            title = f"{name}, offload_buffers={buffers}"
            for turn in range(2):
                with torch.no_grad():
                    yield equal(f"entries off, {title}, pass {turn}", offloading.differing(made(inputs), wanted), 0)
            away = sorted(key for key, each in made.named_buffers() if each.device.type == "meta")
            yield equal(f"buffers away, {title}", len(away) > 0, buffers)


@call(GROUP, phase=Phase.LOAD, requires=("all_on_disk",))
def loads_a_whole_model_to_the_disk(ctx: Context) -> Iterator[Check]:
    """load_checkpoint_and_dispatch loads a model whose map puts all of it on the disk, as dispatch_model runs it.

    By the name of the root, and by the names of its parts.
    """
    import accelerate
    import torch
    from safetensors.torch import save_file

    plain = _normed()
    path = ctx.kept / "whole.safetensors"
    save_file(plain.state_dict(), path)
    inputs = torch.linspace(-1, 2, 12).reshape(4, 3)
    with torch.no_grad():
        wanted = plain(inputs)
    for name, places_of in {"root": {"": "disk"}, "parts": {"0": "disk", "1": "disk", "2": "disk"}}.items():
        away = ctx.kept / f"away {name}"
        made = accelerate.load_checkpoint_and_dispatch(_normed(), str(path), device_map=places_of, offload_folder=away)
        with torch.no_grad():
            yield equal(f"entries off, {name}", offloading.differing(made(inputs), wanted), 0)


def _normed() -> Any:
    import torch

    made = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2))
    with torch.no_grad():
        for number, each in enumerate(made.state_dict().values()):
            each.copy_((torch.arange(each.numel()).reshape(each.shape) + number + 1).to(each.dtype) / 8)
    return made.eval()


def _parted(start: float) -> Any:
    """Layers in a container that has no tensor, and one that has a parameter and children; numbers begin at a start."""
    import torch

    class LoadedAtOnce(torch.nn.Sequential):  # type: ignore[misc]
        pass

    own = torch.nn.Sequential(torch.nn.Linear(3, 3))
    own.scale = torch.nn.Parameter(torch.ones(1))
    made = torch.nn.Sequential(
        torch.nn.Linear(3, 3), torch.nn.Sequential(torch.nn.BatchNorm1d(3), own), LoadedAtOnce(torch.nn.Linear(3, 2))
    )
    with torch.no_grad():
        for number, each in enumerate(made.state_dict().values()):
            each.copy_((torch.arange(each.numel()).reshape(each.shape) + number + start).to(each.dtype) / 8)
    return made.eval()


def _with_tensors(module: Any) -> set[str]:
    """The names of modules that have a parameter or a buffer of their own."""
    return {name.rpartition(".")[0] for name in places(module)}


@call(GROUP, phase=Phase.LOAD)
def hooks_with_given_weights(ctx: Context) -> Iterator[Check]:
    """Offloading hooks the modules with tensors of their own, and these compute with the numbers that it is given.

    cpu_offload takes "the state dict of the model that will be kept on CPU", disk_offload a folder that has weights,
    and attach_align_device_hook a map of weights. Buffers come from there with offload_buffers alone.
    """
    import accelerate
    import torch
    from accelerate.hooks import attach_align_device_hook
    from accelerate.utils import has_offloaded_params, offload_state_dict

    given = {name: each.clone() for name, each in _parted(5).state_dict().items()}
    offload_state_dict(str(ctx.kept / "given"), given)
    cpu = torch.device("cpu")
    ways = {
        "cpu_offload": lambda made, **more: accelerate.cpu_offload(made, cpu, state_dict=given, **more),
        "disk_offload": lambda made, **more: accelerate.disk_offload(made, str(ctx.kept / "given"), cpu, **more),
        "attach_align_device_hook": lambda made, **more: attach_align_device_hook(
            made, cpu, offload=True, weights_map=given, **more
        ),
    }
    inputs = torch.linspace(-1, 2, 12).reshape(4, 3)
    for (name, way), buffers, preloaded in itertools.product(ways.items(), (False, True), (None, ["LoadedAtOnce"])):
        made, expected = _parted(1), _parted(1)
        kept = dict(expected.named_buffers())
        expected.load_state_dict(
            {key: each if buffers or key not in kept else kept[key].clone() for key, each in given.items()}
        )
        wanted = {key for key in _with_tensors(made) if not (preloaded and key.startswith("2."))}
        wanted |= {"2"} if preloaded else set()
        way(made, offload_buffers=buffers, preload_module_classes=preloaded)
        title = f"{name}, offload_buffers={buffers}, preload_module_classes={preloaded}"
        hooked = {key for key, each in made.named_modules() if has_offloaded_params(each)}
        yield equal(f"modules that are offloaded, {title}", str(sorted(hooked)), str(sorted(wanted)))
        for turn in range(2):
            with torch.no_grad():
                off = offloading.differing(made(inputs), expected(inputs))
            yield equal(f"entries off, {title}, pass {turn}", off, 0)
