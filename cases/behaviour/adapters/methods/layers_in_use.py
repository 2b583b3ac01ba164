"""Layers of every method in use: sequences as inputs, other devices, their status, and what files hold of them."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.adapters.methods import layers
from cases.behaviour.adapters.methods.layers import NAMES
from cases.behaviour.adapters.methods.life_cycle import LIVING, every
from cases.behaviour.adapters.methods.method_merging import SAME
from cases.behaviour.adapters.methods.states import trained
from cases.behaviour.starts import adapted_layers
from cases.reference.tolerance import relative
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cases.apply.context import Context
    from cases.behaviour.adapters.methods.layers import Method
    from cases.space.verdict import Check

LENGTHS = (1, 11, 48, 84)  # of sequences; each rank and block size divides one of the last two, or none
# Frozen tensors that files hold beside the trained ones, because a seed or the base does not determine them.
FROZEN: Mapping[str, tuple[str, ...]] = {
    "vera": ("vera_A", "vera_B"),
    "randlora": ("randlora_A", "randlora_B"),
    "pvera": ("pvera_A", "pvera_B"),
    "supertuning": ("supertuning_indices",),
    "shira": ("shira_indices",),
    "delora": ("delora_w_norm",),
}
OWN = ("inference_mode", "auto_mapping", "base_model_name_or_path", "peft_version")  # what saving fills in
SPARSE = ("shira",)  # torch has no sparse tensors on the meta device
COPYING = ("hira", "peanut")  # which keep a copy of the weight on the CPU to unmerge by
MASKING = ("waveft",)  # which selects by a mask, of a size that the meta device cannot know
SHARED = ("vera", "randlora", "pvera")  # whose frozen tensors all layers use


@call(LIVING, phase=Phase.FORWARD)
def sequences_by_method(_ctx: Context) -> Iterator[Check]:
    """A layer treats each vector of a batch of sequences by the formula, whatever their length, for every method."""
    import torch

    def story(key: str, method: Method) -> Iterator[Check]:
        model = layers.adapted(method, names=("first",))
        for name, (weight, bias) in layers.expected(model, method, "first").items():
            for length in LENGTHS:
                inputs = torch.randn(3, length, weight.shape[1], generator=torch.Generator().manual_seed(length))
                with torch.no_grad():
                    found = layers.module(model, name)(inputs)
                wanted = inputs.double() @ weight.T + bias
                yield at_most(f"outputs of {key} off, {name}, length={length}", relative(found, wanted), SAME)

    yield from every(story)


def mixed_devices() -> Any:
    """A mode that collects the names of operations on tensors of two devices, other than copies and with numbers."""
    from torch import Tensor
    from torch.utils import _pytree
    from torch.utils._python_dispatch import TorchDispatchMode

    class MixedDevices(TorchDispatchMode):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.found: set[str] = set()

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            del types
            given = _pytree.tree_flatten((args, kwargs or {}))[0]
            devices = {each.device for each in given if isinstance(each, Tensor) and each.dim()}
            if len(devices) > 1 and "copy" not in str(func):
                self.found.add(str(func))
            return func(*args, **(kwargs or {}))

    return MixedDevices()


@call(LIVING, phase=Phase.FORWARD)
def devices_by_method(_ctx: Context) -> Iterator[Check]:
    """A moved model computes, merges and unmerges on its new device alone, for every method.

    The meta device stands for any that is not torch's default.
    """
    import torch

    def story(key: str, method: Method) -> Iterator[Check]:
        model = layers.adapted(method).to("meta")
        for step in (lambda: None, model.merge_adapter, model.unmerge_adapter):
            with mixed_devices() as mixed:
                step()
                outputs = [
                    layers.module(model, name)(torch.empty(3, inner, device="meta"))
                    for name, (_, inner) in adapted_layers.SIZES.items()
                ]
            yield equal(f"operations of {key} on two devices", " ".join(sorted(mixed.found)) or "none", "none")
            places = {each.device.type for each in (*outputs, *model.parameters(), *model.buffers())}
            yield equal(f"devices of {key}", " ".join(sorted(places)), "meta")

    yield from every(story, *SPARSE, *COPYING, *MASKING)


@call(LIVING, phase=Phase.ADAPT, requires=("model_status",))
def status_by_method(_ctx: Context) -> Iterator[Check]:
    """get_layer_status states a layer's adapters, their devices, and which are trained, for every method."""
    from peft import get_layer_status

    def seen(model: Any) -> tuple[Any, ...]:
        status = next(each for each in get_layer_status(model) if each.name.endswith("tall"))
        return status.enabled, status.available_adapters, status.devices, status.requires_grad

    def story(key: str, method: Method) -> Iterator[Check]:
        model, devices = layers.adapted(method), {name: ["cpu"] for name in NAMES}
        for active in ("second", "first") if key != "adalora" else ("first",):  # whose second adapter stays frozen
            model.set_adapter(active)
            wanted = (True, list(NAMES), devices, {name: name == active for name in NAMES})
            yield equal(f"status of {key}", str(seen(model)), str(wanted))
        with model.disable_adapter():
            wanted = (False, list(NAMES), devices, dict.fromkeys(NAMES, False))
            yield equal(f"status of {key} while disabled", str(seen(model)), str(wanted))

    yield from every(story)


def held_in(folder: Any) -> Counter[str]:
    """How many tensors of each name a file holds, without the names of layers."""
    from safetensors import safe_open

    with safe_open(folder / "adapter_model.safetensors", "pt") as file:
        return Counter(last_word(name) for name in file.keys())  # noqa: SIM118 - no dictionary


def last_word(name: str) -> str:
    return [word for word in name.split(".") if word not in (*NAMES, "weight")][-1]


@call(LIVING, phase=Phase.SAVE)
def files_by_method(ctx: Context) -> Iterator[Check]:
    """Files hold the trained tensors of one adapter, and its configuration for inference, for every method."""

    def story(key: str, method: Method) -> Iterator[Check]:
        model, folder = layers.adapted(method), ctx.kept / key
        model.save_pretrained(folder)
        shared = FROZEN[key] if key in SHARED else ()
        for name in NAMES:
            places = [words for words, _ in model.named_parameters() if name in words.split(".")]
            wanted = Counter(last_word(each) for each in places if any(mark in each for mark in method.marks))
            frozen = {part: len(layers.TARGETS[name]) for part in FROZEN.get(key, ()) if key not in SHARED}
            found = held_in(folder / name)
            found = Counter({part: many for part, many in found.items() if part not in shared})
            yield equal(f"tensors of {key}", str(sorted(found.items())), str(sorted({**wanted, **frozen}.items())))
            stated = json.loads((folder / name / "adapter_config.json").read_text())["inference_mode"]
            yield equal(f"inference_mode in the file of {key}", stated, bound=True)
            own = model.peft_config[name]
            again = type(own).from_pretrained(folder / name)
            others = [field for field, value in vars(own).items() if getattr(again, field) != value]
            yield equal(f"other settings of {key} in the file", " ".join(sorted({*others} - {*OWN})) or "none", "none")

    yield from every(story)


@call(LIVING, phase=Phase.SAVE, requires=("vera",))
def files_of_vera(ctx: Context) -> Iterator[Check]:
    """A file of VeRA holds each of the two random matrices once, whichever the number of layers.

    https://huggingface.co/docs/peft/package_reference/vera, save_projection
    """
    yield from shared_in_files(ctx, "vera")


@call(LIVING, phase=Phase.SAVE, requires=("peft_RandLoraConfig",))
def files_of_randlora(ctx: Context) -> Iterator[Check]:
    """A file of RandLoRA holds each of the two random matrices once, whichever the number of layers.

    https://huggingface.co/docs/peft/package_reference/randlora, save_projection
    """
    yield from shared_in_files(ctx, "randlora")


@call(LIVING, phase=Phase.SAVE, requires=("peft_PveraConfig",))
def files_of_pvera(ctx: Context) -> Iterator[Check]:
    """A file of PVeRA holds each of the two random matrices once, whichever the number of layers."""
    yield from shared_in_files(ctx, "pvera")


def shared_in_files(ctx: Context, key: str) -> Iterator[Check]:
    """Count the tensors that all layers use in the files of two adapters, of one layer and of two."""
    layers.adapted(layers.METHODS[key]).save_pretrained(ctx.kept)
    for name in NAMES:
        found, count = held_in(ctx.kept / name), len(layers.TARGETS[name])
        for part in FROZEN[key]:
            yield equal(f"tensors {part} in the file, {count} layers", found[part], 1)


@call(LIVING, phase=Phase.RELOAD)
def modes_by_method(ctx: Context) -> Iterator[Check]:
    """Loading an adapter for inference puts the model into evaluation mode, loading it to train does not."""
    from peft import PeftModel

    def story(key: str, method: Method) -> Iterator[Check]:
        folder = ctx.kept / key
        layers.adapted(method, names=("first",)).save_pretrained(folder)
        for is_trainable in (False, True):
            loaded = PeftModel.from_pretrained(
                adapted_layers.base().train(), folder / "first", adapter_name="one", is_trainable=is_trainable
            )
            modes = {module.training for module in loaded.modules()}
            yield equal(f"training modes of {key}, is_trainable={is_trainable}", str(modes), str({is_trainable}))
            yield equal(
                f"{key} has trained parameters, is_trainable={is_trainable}", bool(trained(loaded)), is_trainable
            )

    yield from every(story)


@call(LIVING, phase=Phase.FORWARD)
def scale_adalora_adapter(_ctx: Context) -> Iterator[Check]:
    """set_scale, scale_layer and unscale_layer multiply the initial scale of AdaLoRA, as ``scale_adapter`` does LoRA's.

    https://huggingface.co/docs/peft/package_reference/lora has the methods, whose class AdaLoRA's layers inherit.
    """
    method = layers.METHODS["adalora"]
    model = layers.adapted(method, names=("first",))
    plain, whole = layers.held(adapted_layers.base()), layers.expected(model, method, "first")
    for name, arguments, factor in (
        ("scale_layer", (3.0,), 3.0),
        ("unscale_layer", (2.0,), 1.5),
        ("unscale_layer", (), 1.0),
        ("set_scale", ("first", 0.5), 0.5),
        ("set_scale", ("first", 1.0), 1.0),
    ):
        for layer in whole:
            getattr(layers.module(model, layer), name)(*arguments)
        update = {layer: weight - plain[layer][0] for layer, (weight, _) in whole.items()}
        wanted = {layer: (plain[layer][0] + factor * added, plain[layer][1]) for layer, added in update.items()}
        called = f"{name}({', '.join(map(str, arguments))})"
        yield at_most(f"weights off after {called}", layers.off(layers.applied(model), wanted), SAME)
