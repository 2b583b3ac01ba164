"""Adapters of one model with different modules in modules_to_save, and an active copy while other adapters come.

https://huggingface.co/docs/peft/package_reference/lora#peft.LoraConfig, "modules_to_save".
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.adapters import lora_reference as reference
from cases.behaviour.adapters.adapters_in_use import STEP, descend, moved
from cases.behaviour.adapters.lora_reference import FIRST, NEAR, SECOND
from cases.behaviour.adapters.saved_modules import BESIDE, expected_step
from cases.model import disk, tiny
from cases.reference.tolerance import relative, worst_tensor
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cases.apply.context import Context
    from cases.behaviour.adapters.lora_reference import Adapter
    from cases.space.verdict import Check

HEAD, NORM, TABLE = "lm_head", "model.norm", "model.embed_tokens"


def with_modules(adapter: Adapter, *modules: str) -> Adapter:
    return replace(adapter, more={"modules_to_save": [*modules]})


# The modules of the first adapter, and of the second: others, or some of them and another.
OTHERS = (((HEAD,), (NORM,)), ((NORM,), (HEAD,)), ((HEAD, NORM), (NORM, TABLE)))
# The second adapter has all modules of the first, and another.
MORE = (((HEAD,), (HEAD, NORM)), ((NORM,), (NORM, TABLE, HEAD)))


def fill_copies(model: Any) -> None:
    """Give every copy of a module the values of its name."""
    import torch

    with torch.no_grad():
        for name, parameter in tiny.named(model):
            if is_copy(name):
                parameter.copy_(tiny.values(name, tuple(parameter.shape)))


def is_copy(name: str) -> bool:
    return any(name.startswith(f"{module}.{each}") for module in (HEAD, NORM, TABLE) for each in ("first", "second"))


def copies(base: reference.Base, adapter: Adapter, modules: tuple[str, ...]) -> dict[str, Any]:
    """What the copies of an adapter add to the modules of the base."""
    found = {}
    for module in modules:
        original = base.tensors[f"{module}.weight"]
        own = tiny.values(f"{module}.{adapter.name}.weight", tuple(original.shape)).double()
        found[f"{module}.weight"] = own - original
    return found


def names_in_file(base: reference.Base, adapter: Adapter, modules: tuple[str, ...]) -> set[str]:
    sides = base.sides(adapter.name, base.placed(adapter)).keys()
    plain = {side.replace(f".{adapter.name}.", ".") for side in sides} | {f"{module}.weight" for module in modules}
    return {f"base_model.model.{name}" for name in plain}


def pairs(chosen: Sequence[tuple[str, ...]]) -> list[tuple[Adapter, tuple[str, ...]]]:
    return [(with_modules(each, *modules), modules) for each, modules in zip((FIRST, SECOND), chosen, strict=True)]


def both(ctx: Context, chosen: Sequence[tuple[str, ...]]) -> Any:
    model = reference.adapted(ctx, *(adapter for adapter, _ in pairs(chosen)))
    fill_copies(model)
    return model.eval()


def wanted(base: reference.Base, chosen: Sequence[tuple[str, ...]]) -> dict[str, Any]:
    """The logits of each adapter with its own modules."""
    return {each.name: base.logits(base.of(each), copies(base, each, modules)) for each, modules in pairs(chosen)}


def saved(ctx: Context, choices: Sequence[Sequence[tuple[str, ...]]]) -> Iterator[Check]:
    """Save two adapters with these modules, load each alone, and compare files and logits."""
    from peft import PeftModel

    base = reference.read(ctx)
    for number, chosen in enumerate(choices):
        folder = ctx.kept / str(number)
        both(ctx, chosen).save_pretrained(folder)
        for adapter, modules in pairs(chosen):
            title = f"{adapter.name} of {chosen}"
            own = dict(disk.read_file(folder / adapter.name / "adapter_model.safetensors")).keys()
            lost = own ^ names_in_file(base, adapter, modules)
            yield equal(f"tensors in the file or not, {title}", reference.written(lost), "none")
            again = PeftModel.from_pretrained(reference.loaded(ctx), folder / adapter.name, adapter_name="one")
            off = relative(reference.logits(again.eval()), wanted(base, chosen)[adapter.name])
            yield at_most(f"logits off, {title}, loaded alone", off, NEAR)


def switched(ctx: Context, choices: Sequence[Sequence[tuple[str, ...]]]) -> Iterator[Check]:
    """Switch between two adapters with these modules, made and loaded, and compare logits."""
    from peft import PeftModel

    base = reference.read(ctx)
    for number, chosen in enumerate(choices):
        model, expected, folder = both(ctx, chosen), wanted(base, chosen), ctx.kept / str(number)
        model.save_pretrained(folder)
        again = PeftModel.from_pretrained(reference.loaded(ctx), folder / "second", adapter_name="second")
        again.load_adapter(folder / "first", adapter_name="first")
        for title, each in (("made", model), ("loaded", again)):
            for turn, name in enumerate(("first", "second", "first", "second")):
                each.set_adapter(name)
                off = relative(reference.logits(each.eval()), expected[name])
                yield at_most(f"logits off, {name} of {chosen}, {title}, turn {turn}", off, NEAR)


@call(BESIDE, phase=Phase.SAVE)
def save_more_modules_of_second(ctx: Context) -> Iterator[Check]:
    """A second adapter with more modules in modules_to_save than the first saves all of its own."""
    yield from saved(ctx, MORE)


@call(BESIDE, phase=Phase.SAVE)
def save_other_modules_of_second(ctx: Context) -> Iterator[Check]:
    """A second adapter saves the modules of its own modules_to_save, and no copies of those that the first names."""
    yield from saved(ctx, OTHERS)


@call(BESIDE, phase=Phase.FORWARD)
def switch_to_more_modules(ctx: Context) -> Iterator[Check]:
    """set_adapter goes back and forth between adapters of which one has more modules in modules_to_save."""
    yield from switched(ctx, MORE)


@call(BESIDE, phase=Phase.OPTIMIZER)
def train_first_copy_beside_others(ctx: Context) -> Iterator[Check]:
    """The active adapter's copy of a module goes on training after another adapter is added, loaded or deleted.

    No call to set_adapter is needed: add_adapter and load_adapter leave the active adapter active.
    """
    base, first = reference.read(ctx), with_modules(FIRST, HEAD)
    second = with_modules(SECOND, HEAD)
    reference.adapted(ctx, second).save_pretrained(ctx.kept / "saved")

    def added(model: Any) -> None:
        model.add_adapter("second", second.config())

    def loaded(model: Any) -> None:
        model.load_adapter(ctx.kept / "saved" / "second", adapter_name="second")

    def deleted(model: Any) -> None:
        added(model)
        model.delete_adapter("second")

    zero = {f"{HEAD}.weight": base.tensors[f"{HEAD}.weight"] * 0}
    expected = expected_step(base, first, zero)
    sides = expected.keys() - zero.keys()
    for title, change in {"added": added, "loaded": loaded, "deleted": deleted}.items():
        model = reference.adapted(ctx, first)
        change(model)
        reference.fill(model)
        trained = sides | {f"{HEAD}.first.weight"}
        yield equal(
            f"trained or frozen by mistake, {title}", reference.written(reference.trained(model) ^ trained), "none"
        )
        before = reference.state(model)
        descend(model)
        after = reference.state(model)
        changed = reference.changed(before, after)
        yield equal(f"changed or not by mistake, {title}", reference.written(changed ^ trained), "none")
        found = {f"{HEAD}.weight": after[f"{HEAD}.first.weight"] - before[f"{HEAD}.first.weight"]}
        copy = {f"{HEAD}.weight": expected[f"{HEAD}.weight"]}
        yield at_most(f"step of the copy off, {title}", worst_tensor(found, copy), STEP)
        parts = {name: expected[name] for name in sides}
        off = worst_tensor(moved(before, after, parts), moved(before, parts, parts))
        yield at_most(f"step off, {title}", off, STEP)
