"""Offloaded models that scripts go on to change: folders with and without weights, more hooks, and weights on call.

https://huggingface.co/docs/accelerate/package_reference/big_modeling
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.parallel import networks, offloading
from cases.space.verdict import Check, Phase, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from cases.apply.context import Context

GROUP = "accelerate: offloading"


def offloads(folder: Path) -> dict[str, Callable[[Any], Any]]:
    """Ways to take the weights of a whole model away from the CPU, by name."""
    import accelerate

    return {
        "CPU": lambda of: accelerate.cpu_offload(of, offload_buffers=True),
        "disk": lambda of: accelerate.disk_offload(of, folder, offload_buffers=True),
    }


def held(of: Any) -> dict[str, Any]:
    return {name: each.detach().clone() for name, each in of.named_parameters()}


def differing(of: Any, wanted: dict[str, Any]) -> str:
    """The parameters that have no values, or others."""
    found = dict(of.named_parameters())
    return (
        " ".join(name for name, each in wanted.items() if found[name].is_meta or not found[name].equal(each)) or "none"
    )


@call(GROUP, phase=Phase.LOAD)
def disk_offload_folders(ctx: Context) -> Iterator[Check]:
    """disk_offload writes the weights into a folder that does not exist or is empty, and reads those of a full one.

    "The folder in which to offload the model weights (or where the model weights are already offloaded)".
    """
    import accelerate
    import torch

    for title in ("no folder", "an empty folder", "a folder with another file", "a path as text"):
        folder = ctx.kept / title
        if title not in {"no folder", "a path as text"}:
            folder.mkdir()
        if title == "a folder with another file":
            (folder / "notes.txt").write_text("notes")
        plain = offloading.model(direct=False)
        wanted, names = offloading.outputs(plain), plain.state_dict().keys()
        accelerate.disk_offload(plain, str(folder) if title == "a path as text" else folder)
        yield equal(f"outputs that differ, {title}", offloading.differing(offloading.outputs(plain), wanted), 0)
        files = {each.stem for each in folder.glob("*.dat")}
        yield equal(f"weights without a file, {title}", " ".join(sorted(names - files)) or "none", "none")
        left = {name for name, each in plain.named_parameters() if not each.is_meta}
        yield equal(f"parameters left in memory, {title}", " ".join(sorted(left)) or "none", "none")
        other = offloading.model(direct=False)
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.mul_(-2)
        accelerate.disk_offload(other, folder)
        yield equal(
            f"outputs that differ, weights are there, {title}",
            offloading.differing(offloading.outputs(other), wanted),
            0,
        )


@call(GROUP, phase=Phase.LOAD)
def hooks_appended_to_offloaded(ctx: Context) -> Iterator[Check]:
    """A hook that a script appends to an offloaded layer acts beside the others, and removing all brings weights back.

    They train on as weights that were never away. "To chain two hooks together, pass append=True".
    """
    from accelerate.hooks import ModelHook, add_hook_to_module, remove_hook_from_module, remove_hook_from_submodules

    class Doubling(ModelHook):  # type: ignore[misc]
        def post_forward(self, _module: Any, output: Any) -> Any:
            return 2 * output

    def doubled(of: Any) -> Any:
        """What the whole model gives if the output of the layer with the hook is doubled."""
        handle = of.layers[1].up.register_forward_hook(lambda _module, _given, output: 2 * output)
        found = offloading.outputs(of)
        handle.remove()
        return found

    for name, offload in offloads(ctx.kept / "weights").items():
        plain = offloading.model(direct=False)
        weights, wanted, usual = held(plain), doubled(plain), offloading.outputs(plain)
        offload(plain)
        layer = plain.layers[1].up
        add_hook_to_module(layer, Doubling(), append=True)
        for turn in (1, 2):
            found = offloading.differing(offloading.outputs(plain), wanted)
            yield equal(f"outputs that differ with the hook, {name}, pass {turn}", found, 0)
        on_device = [key for key, each in layer.named_parameters() if not each.is_meta]
        yield equal(f"parameters in memory between passes, {name}", " ".join(on_device) or "none", "none")
        remove_hook_from_module(layer)
        yield equal(f"weights off after removing, {name}", differing(layer, part(weights, "layers.1.up.")), "none")
        remove_hook_from_submodules(plain)
        yield equal(f"weights off after removing all, {name}", differing(plain, weights), "none")
        yield equal(
            f"outputs that differ without hooks, {name}", offloading.differing(offloading.outputs(plain), usual), 0
        )
        hookless = offloading.model(direct=False)
        for each in (plain, hookless):
            each(offloading.ids()).square().sum().backward()
        gradients = networks.gradients(plain)
        if "head.weight" in gradients:  # the tied weight became two parameters, each with the gradient of its own use
            gradients["embed.weight"] = gradients["embed.weight"] + gradients.pop("head.weight")
        yield networks.off(f"gradients off without hooks, {name}", gradients, networks.gradients(hookless))


@call(GROUP, phase=Phase.LOAD)
def hooks_in_order(_ctx: Context) -> Iterator[Check]:
    """Hooks that are appended act in their order, on inputs and on outputs; one without append replaces all of them.

    "To chain two hooks together, pass append=True. It will chain the current and new hook into an instance of the
    SequentialHook class."
    """
    import torch
    from accelerate.hooks import ModelHook, add_hook_to_module, remove_hook_from_module

    class Affine(ModelHook):  # type: ignore[misc]
        """Multiplies what goes in, and adds to what comes out and multiplies it, so that the order shows."""

        def __init__(self, factor: float, term: float) -> None:
            self.factor, self.term = factor, term

        def pre_forward(self, _module: Any, given: Any) -> Any:
            return ((given + self.term) * self.factor,), {}

        def post_forward(self, _module: Any, output: Any) -> Any:
            return (output + self.term) * self.factor

    given = torch.arange(4.0)
    chosen = {"one": ((2.0, 1.0),), "two": ((2.0, 1.0), (3.0, -5.0)), "three": ((2.0, 1.0), (3.0, -5.0), (0.5, 7.0))}
    for name, affine in chosen.items():
        layer = torch.nn.Identity()
        for pair in affine:
            add_hook_to_module(layer, Affine(*pair), append=True)
        wanted = given
        for factor, term in (*affine, *affine):
            wanted = (wanted + term) * factor
        yield equal(f"outputs, {name}", str(layer(given).tolist()), str(wanted.tolist()))
        add_hook_to_module(layer, Affine(5.0, 0.0))
        yield equal(
            f"outputs after a hook without append, {name}", str(layer(given).tolist()), str((25 * given).tolist())
        )
        remove_hook_from_module(layer)
        yield equal(f"outputs without hooks, {name}", str(layer(given).tolist()), str(given.tolist()))


def part(weights: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {key.removeprefix(prefix): each for key, each in weights.items() if key.startswith(prefix)}


@call(GROUP, phase=Phase.LOAD, requires=("aligned_modules",))
def aligned_modules(ctx: Context) -> Iterator[Check]:
    """align_module_device brings the weights of a layer to a device within its context, and puts them back after it.

    "If provided, overrides the module's execution device within the context. Otherwise, use hook execution device or
    pass". Layers of a model that is not offloaded stay where they are unless a device is named.
    """
    import torch
    from accelerate.utils import align_module_device

    for name, offload in {"plain": lambda of: of, **offloads(ctx.kept / "weights")}.items():
        plain = offloading.model(direct=False)
        weights = part(held(plain), "layers.1.up.")
        usual = offloading.outputs(plain)
        offload(plain)
        layer = plain.layers[1].up
        before = {key: each.device.type for key, each in layer.named_parameters()}
        for device in (None, "cpu", torch.device("cpu")):
            title = f"{name}, {device!r}"
            with align_module_device(layer, *([] if device is None else [device])):
                yield equal(f"weights off inside, {title}", differing(layer, weights), "none")
            after = {key: each.device.type for key, each in layer.named_parameters()}
            yield equal(f"devices afterwards, {title}", str(after), str(before))
        if name != "plain":  # a plain layer's values would be gone with its memory
            with align_module_device(layer, "meta"):
                inside = {each.device.type for each in layer.parameters()}
                yield equal(f"devices inside, {name}, meta", str(inside), "{'meta'}")
            yield equal(
                f"outputs that differ afterwards, {name}", offloading.differing(offloading.outputs(plain), usual), 0
            )
            with align_module_device(layer):
                yield equal(f"weights off inside again, {name}", differing(layer, weights), "none")
