"""Adapters that transformers adds to a model without PEFT's wrapper: add_adapter, set_adapter, save and load.

https://huggingface.co/docs/transformers/peft
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.adapters import lora_reference as reference
from cases.behaviour.adapters.lora_reference import NEAR, Adapter
from cases.model import disk, tiny
from cases.reference.tolerance import relative
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Adapters of transformers"
# One has the name that PEFT uses if none is given.
DEFAULT = Adapter(name="default", rank=4, alpha=12)
TASK = Adapter(name="task", rank=8, alpha=4, targets=("v_proj", "up_proj", "down_proj"))
ADAPTERS = (DEFAULT, TASK)


def adapted(ctx: Context) -> Any:
    """The model of transformers with both adapters; the values of A and B belong to their names."""
    model = reference.loaded(ctx)
    for adapter in ADAPTERS:
        model.add_adapter(adapter.config(), adapter.name)
    return filled(model).eval()


def filled(model: Any) -> Any:
    """Give A and B their values by their whole names, also those of the adapter "default"."""
    import torch

    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".lora_" in name:
                parameter.copy_(tiny.values(name, tuple(parameter.shape)))
    return model


def without_name(base: reference.Base, adapter: Adapter) -> dict[str, Any]:
    """A and B of an adapter as files name them, without the adapter's name."""
    sides = base.sides(adapter.name, base.placed(adapter))
    return {name.replace(f".{adapter.name}.", "."): side.float() for name, side in sides.items()}


def differing(found: dict[str, Any], expected: dict[str, Any]) -> str:
    """The names of tensors that differ; PEFT's prefix is no part of a name."""
    plain = {name.removeprefix("base_model.model."): tensor.detach().cpu() for name, tensor in found.items()}
    return reference.written(reference.changed(plain, expected))


@call(GROUP, phase=Phase.SAVE)
def native_adapter_state(ctx: Context) -> Iterator[Check]:
    """get_adapter_state_dict returns the tensors of the named adapter, without a name those of the active one."""
    base, model = reference.read(ctx), adapted(ctx)
    for active in ADAPTERS:
        model.set_adapter(active.name)
        for named in ADAPTERS:
            found = model.get_adapter_state_dict(named.name)
            yield equal(
                f"tensors of {named.name} while {active.name} is active",
                differing(found, without_name(base, named)),
                "none",
            )
        found = model.get_adapter_state_dict()
        yield equal(f"tensors of the active {active.name}", differing(found, without_name(base, active)), "none")


@call(GROUP, phase=Phase.FORWARD)
def native_adapter_switches(ctx: Context) -> Iterator[Check]:
    """set_adapter, disable_adapters, enable_adapters and delete_adapter change the logits and what is active."""
    base, model = reference.read(ctx), adapted(ctx)
    for adapter in ADAPTERS:
        model.set_adapter(adapter.name)
        own = base.logits(base.of(adapter))
        yield equal(f"active: {adapter.name}", str(model.active_adapters()), str([adapter.name]))
        yield at_most(f"logits of {adapter.name} off", relative(reference.logits(model), own), NEAR)
        expected = base.sides(adapter.name, base.placed(adapter)).keys()
        trained = {name for name, each in model.named_parameters() if each.requires_grad and ".lora_" in name}
        yield equal(f"trained while {adapter.name} is active", reference.written(trained ^ expected), "none")
        model.disable_adapters()
        yield at_most(f"logits without {adapter.name} off", relative(reference.logits(model), base.logits()), NEAR)
        model.enable_adapters()
        yield at_most(f"logits of {adapter.name} enabled off", relative(reference.logits(model), own), NEAR)


@call(GROUP, phase=Phase.SAVE)
def native_adapter_saved(ctx: Context) -> Iterator[Check]:
    """save_pretrained writes the active adapter and its configuration; both transformers and PEFT load it."""
    from peft import PeftModel

    base, model = reference.read(ctx), adapted(ctx)
    for adapter in ADAPTERS:
        folder = ctx.kept / f"saved {adapter.name}"
        model.set_adapter(adapter.name)
        model.save_pretrained(folder)
        files = dict(disk.read_file(folder / "adapter_model.safetensors"))
        yield equal(f"tensors saved, {adapter.name}", differing(files, without_name(base, adapter)), "none")
        expected = base.logits(base.of(adapter))
        for kind, loaded in (("transformers", by_transformers(ctx, folder)), ("PEFT", None)):
            again = loaded or PeftModel.from_pretrained(reference.loaded(ctx), folder)
            found = relative(reference.logits(again.eval()), expected)
            yield at_most(f"logits of {adapter.name} off, by {kind}", found, NEAR)


def by_transformers(ctx: Context, folder: Path) -> Any:
    model = reference.loaded(ctx)
    model.load_adapter(str(folder))
    return model


@call(GROUP, phase=Phase.RELOAD)
def native_adapters_loaded(ctx: Context) -> Iterator[Check]:
    """load_adapter puts adapters beside each other under the given names; set_adapter chooses one of them."""
    base, model = reference.read(ctx), adapted(ctx)
    fresh = reference.loaded(ctx)
    for adapter in ADAPTERS:
        folder = ctx.kept / f"loaded {adapter.name}"
        model.set_adapter(adapter.name)
        model.save_pretrained(folder)
        fresh.load_adapter(str(folder), adapter_name=f"own {adapter.name}")
    for adapter in ADAPTERS:
        fresh.set_adapter(f"own {adapter.name}")
        found = reference.logits(fresh.eval())
        yield at_most(f"logits of {adapter.name} off", relative(found, base.logits(base.of(adapter))), NEAR)
        state = fresh.get_adapter_state_dict(f"own {adapter.name}")
        yield equal(f"tensors of {adapter.name}", differing(state, without_name(base, adapter)), "none")


@call(GROUP, phase=Phase.RELOAD)
def native_adapter_from_tensors(ctx: Context) -> Iterator[Check]:
    """load_adapter takes a configuration and tensors instead of a folder."""
    base = reference.read(ctx)
    for adapter in ADAPTERS:
        model = reference.loaded(ctx)
        tensors = {f"base_model.model.{name}": side for name, side in without_name(base, adapter).items()}
        model.load_adapter(peft_config=adapter.config(), adapter_state_dict=tensors, adapter_name="given")
        found = relative(reference.logits(model.eval()), base.logits(base.of(adapter)))
        yield at_most(f"logits of {adapter.name} off", found, NEAR)
        moved = {name for name, each in model.named_parameters() if each.is_meta}
        yield equal(f"parameters on meta, {adapter.name}", reference.written(moved), "none")
