"""Adapters loaded beside others, swapped, injected, deleted and saved by name.

After each exchange, the outputs must be those of the adapters that the calls name.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.adapters import lora_reference as reference
from cases.behaviour.adapters.adapters_in_use import descend
from cases.behaviour.adapters.lora_reference import FIRST, MERGED, NEAR, SECOND, Adapter
from cases.model import disk, tiny
from cases.reference.tolerance import relative
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cases.apply.context import Context
    from cases.space.verdict import Check

EXCHANGING = "Loading and exchanging adapters"


def saved(ctx: Context, *adapters: Adapter) -> Path:
    """A folder with a folder for each adapter."""
    folder = ctx.kept / "saved"
    reference.adapted(ctx, *adapters).save_pretrained(folder)
    return folder


def gives(model: Any, base: reference.Base, *adapters: Adapter, bound: float = NEAR) -> Check:
    expected = base.logits(*(base.of(adapter) for adapter in adapters))
    return at_most("logits off", relative(reference.logits(model.eval()), expected), bound)


def loaded(ctx: Context, folder: Path, **more: Any) -> Any:
    from peft import PeftModel

    return PeftModel.from_pretrained(reference.loaded(ctx), folder, **more)


@call(EXCHANGING, phase=Phase.RELOAD)
def load_second_adapter(ctx: Context) -> Iterator[Check]:
    """load_adapter adds an adapter without activating or training it, whatever its name was."""
    base, folder = reference.read(ctx), saved(ctx, FIRST, SECOND)
    model = loaded(ctx, folder / "first", adapter_name="one")
    yield equal("trained weights", reference.written(reference.trained(model)), "none")
    model.load_adapter(folder / "second", adapter_name="other")
    yield gives(model, base, FIRST)
    model.set_adapter("other")
    yield gives(model, base, SECOND)
    model.base_model.set_adapter(["one", "other"])
    yield gives(model, base, FIRST, SECOND)
    yield gives(model.merge_and_unload(adapter_names=["other"]), base, SECOND, bound=MERGED)


@call(EXCHANGING, phase=Phase.OPTIMIZER)
def load_and_train_second_adapter(ctx: Context) -> Iterator[Check]:
    """load_adapter(is_trainable=True) lets a step train the loaded adapter once it is active, and no other."""
    base, folder = reference.read(ctx), saved(ctx, FIRST, SECOND)
    model = loaded(ctx, folder / "first", adapter_name="first")
    model.load_adapter(folder / "second", adapter_name="second", is_trainable=True)
    model.set_adapter("second")
    before = reference.state(model)
    descend(model)
    expected = base.sides("second", base.placed(SECOND)).keys()
    yield equal("changed", reference.written(reference.changed(before, reference.state(model)) ^ expected), "none")
    model.set_adapter("first")
    yield gives(model, base, FIRST)


@call(EXCHANGING, phase=Phase.SAVE)
def save_selected_adapters(ctx: Context) -> Iterator[Check]:
    """save_pretrained(selected_adapters=...) saves these adapters' own tensors and configurations, and no others."""
    base, model = reference.read(ctx), reference.adapted(ctx, FIRST, SECOND, replace(FIRST, name="third"))
    folder = ctx.kept / "selected"
    model.save_pretrained(folder, selected_adapters=["second"])
    held = sorted(path.parent.name for path in folder.rglob("adapter_config.json"))
    yield equal("adapters saved", " ".join(held), "second")
    yield holds_own_tensors(folder, base, SECOND)
    yield gives(loaded(ctx, folder / "second"), base, SECOND)


def holds_own_tensors(folder: Path, base: reference.Base, adapter: Adapter) -> Check:
    """The file of an adapter has its A and B under names without the adapter's, and nothing else."""
    files = dict(disk.read_file(folder / adapter.name / "adapter_model.safetensors"))
    found = {name.removeprefix("base_model.model."): tensor for name, tensor in files.items()}
    sides = base.sides(adapter.name, base.placed(adapter))
    expected = {re.sub(rf"\.{adapter.name}(?=\.|$)", "", name): side.float() for name, side in sides.items()}
    return equal("tensors", reference.written(reference.changed(found, expected)), "none")


@call(EXCHANGING, phase=Phase.SAVE)
def save_selected_embeddings(ctx: Context) -> Iterator[Check]:
    """The file of a selected adapter has none of the factors that another one has for the same embeddings."""
    first, second = (replace(each, targets=("embed_tokens",)) for each in (FIRST, SECOND))
    base, model = reference.read(ctx), reference.adapted(ctx, first, second)
    model.save_pretrained(ctx.kept, selected_adapters=["second"], save_embedding_layers=False)
    yield holds_own_tensors(ctx.kept, base, second)
    yield gives(loaded(ctx, ctx.kept / "second"), base, second)


@call(EXCHANGING, phase=Phase.RELOAD, requires=("low_cpu_mem_usage",))
def load_without_memory(ctx: Context) -> Iterator[Check]:
    """low_cpu_mem_usage=True loads first and second adapters completely."""
    base, folder = reference.read(ctx), saved(ctx, FIRST, SECOND)
    model = loaded(ctx, folder / "first", adapter_name="first", low_cpu_mem_usage=True)
    model.load_adapter(folder / "second", adapter_name="second", low_cpu_mem_usage=True)
    yield equal("parameters on meta", sum(parameter.is_meta for parameter in model.parameters()), 0)
    yield gives(model, base, FIRST)
    model.set_adapter("second")
    yield gives(model, base, SECOND)


@call(EXCHANGING, phase=Phase.RELOAD)
def load_over_adapter(ctx: Context) -> Iterator[Check]:
    """load_adapter under the name of a present adapter of the same shape replaces its weights."""
    again = replace(FIRST, name="again")
    base, folder = reference.read(ctx), saved(ctx, FIRST, again)
    model = loaded(ctx, folder / "first", adapter_name="first")
    yield gives(model, base, FIRST)
    model.load_adapter(folder / "again", adapter_name="first")
    yield gives(model, base, again)


def parts_left(model: Any, name: str) -> Check:
    left = {each for each in reference.state(model) if f".{name}" in each}
    return equal("weights left", reference.written(left), "none")


@call(EXCHANGING, phase=Phase.ADAPT)
def delete_active_adapter(ctx: Context) -> Iterator[Check]:
    """delete_adapter removes every weight of the active adapter, and activates another of the same layers."""
    alike = replace(SECOND, targets=FIRST.targets)
    base, model = reference.read(ctx), reference.adapted(ctx, FIRST, alike, replace(SECOND, name="third"))
    model.delete_adapter("third")
    yield parts_left(model, "third")
    yield gives(model, base, FIRST)
    model.delete_adapter("first")
    yield parts_left(model, "first")
    yield gives(model, base, alike)
    expected = base.sides("second", base.placed(alike)).keys()
    yield equal("parts of the other", len(expected - reference.state(model).keys()), 0)
    model.add_adapter("first", FIRST.config())
    reference.fill(model).set_adapter("first")
    yield gives(model, base, FIRST)


@call(EXCHANGING, phase=Phase.ADAPT, requires=("dora",))
def add_another_kind_after_deletion(ctx: Context) -> Iterator[Check]:
    """An ordinary adapter under the name of a deleted DoRA adapter computes, and merges, as an ordinary one."""
    dora = replace(FIRST, more={"use_dora": True})
    base, model = reference.read(ctx), reference.adapted(ctx, dora, replace(SECOND, targets=FIRST.targets))
    model.delete_adapter("first")
    yield parts_left(model, "first")
    model.add_adapter("first", FIRST.config())
    reference.fill(model).set_adapter("first")
    yield gives(model, base, FIRST)
    yield gives(model.merge_and_unload(), base, FIRST, bound=MERGED)


@call(EXCHANGING, phase=Phase.ADAPT)
def delete_adapter_of_other_layers(ctx: Context) -> Iterator[Check]:
    """After delete_adapter, another adapter is active, even if the first layers of the deleted one have no other."""
    base, model = reference.read(ctx), reference.adapted(ctx, FIRST, SECOND)
    model.delete_adapter("first")
    yield parts_left(model, "first")
    yield equal("active adapter", str(model.active_adapter), "second")
    yield gives(model, base, SECOND)


@call(EXCHANGING, phase=Phase.RELOAD)
def state_of_one_adapter(ctx: Context) -> Iterator[Check]:
    """The tensors of get_peft_model_state_dict can be set under another name with set_peft_model_state_dict."""
    from peft import get_peft_model_state_dict, set_peft_model_state_dict

    base, model = reference.read(ctx), reference.adapted(ctx, FIRST, SECOND)
    state = {name: value.clone() for name, value in get_peft_model_state_dict(model, adapter_name="second").items()}
    sides = base.sides("second", base.placed(SECOND))
    expected = {f"base_model.model.{name.replace('.second.', '.')}": side.float() for name, side in sides.items()}
    yield equal("tensors", reference.written(reference.changed(state, expected)), "none")
    empty = reference.adapted(ctx, FIRST, replace(SECOND, name="other"))
    set_peft_model_state_dict(empty, state, adapter_name="other")
    yield gives(empty, base, FIRST)
    empty.set_adapter("other")
    yield gives(empty, base, SECOND)


@call(EXCHANGING, phase=Phase.RELOAD, requires=("ignore_mismatched_sizes",))
def state_of_another_rank(ctx: Context) -> Iterator[Check]:
    """set_peft_model_state_dict(ignore_mismatched_sizes=True) sets the tensors that fit, and leaves the others."""
    from peft import get_peft_model_state_dict, set_peft_model_state_dict

    small = replace(FIRST, more={"rank_pattern": {"v_proj": 2}})
    state = get_peft_model_state_dict(reference.adapted(ctx, small), adapter_name="first")
    model = reference.adapted(ctx, FIRST)
    zeroed(model)
    before = reference.state(model)
    set_peft_model_state_dict(model, state, adapter_name="first", ignore_mismatched_sizes=True)
    base = reference.read(ctx)
    sides = base.sides("first", base.placed(FIRST))
    expected = {name: side.float() for name, side in sides.items() if "q_proj" in name}
    expected |= {name: before[name] for name in sides if "v_proj" in name}
    found = {name: value for name, value in reference.state(model).items() if name in sides}
    yield equal("tensors", reference.written(reference.changed(found, expected)), "none")
    try:
        set_peft_model_state_dict(model, state, adapter_name="first")
    except RuntimeError as error:
        yield equal("error", "size mismatch" in str(error), bound=True)
    else:
        yield equal("error", "none", "size mismatch")


def zeroed(model: Any) -> None:
    import torch

    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if tiny.is_adapter(name):
                parameter.zero_()


@call(EXCHANGING, phase=Phase.ADAPT)
def inject_into_model(ctx: Context) -> Iterator[Check]:
    """inject_adapter_in_model changes the given model in place, and trains the adapter only."""
    from peft import inject_adapter_in_model

    base, model = reference.read(ctx), reference.loaded(ctx)
    inject_adapter_in_model(SECOND.config(), model, adapter_name="second")
    reference.fill(model)
    yield gives(model, base, SECOND)
    expected = base.sides("second", base.placed(SECOND)).keys()
    yield equal("trained weights", reference.written(reference.trained(model) ^ expected), "none")


def swapped(ctx: Context, first: Adapter, *others: Adapter, rank: int | None = None) -> Iterator[Check]:
    """Load an adapter, and put others in its place one after another."""
    from peft.utils.hotswap import hotswap_adapter

    base, folder = reference.read(ctx), saved(ctx, first, *others)
    model = loaded(ctx, folder / first.name, adapter_name="kept")
    yield gives(model, base, first)
    if rank is not None:
        from peft.utils.hotswap import prepare_model_for_compiled_hotswap

        prepare_model_for_compiled_hotswap(model, target_rank=rank)
        yield gives(model, base, first)
    for other in (*others, first):
        hotswap_adapter(model, str(folder / other.name), adapter_name="kept", torch_device=str(ctx.place.device))
        yield gives(model, base, other)


@call(EXCHANGING, phase=Phase.RELOAD, requires=("hotswap",))
def swap_adapter(ctx: Context) -> Iterator[Check]:
    """hotswap_adapter puts another adapter in the place of a loaded one, and back."""
    yield from swapped(ctx, FIRST, replace(FIRST, name="second"))


@call(EXCHANGING, phase=Phase.RELOAD, requires=("prepared_hotswap",))
def swap_adapter_of_another_alpha(ctx: Context) -> Iterator[Check]:
    """hotswap_adapter uses the alpha of the new adapter, on a model that was not prepared too."""
    yield from swapped(ctx, FIRST, replace(FIRST, name="second", alpha=2))


@call(EXCHANGING, phase=Phase.RELOAD, requires=("prepared_hotswap",))
def swap_adapter_of_fewer_layers(ctx: Context) -> Iterator[Check]:
    """hotswap_adapter leaves nothing of the old adapter in layers that the new one does not have, and swaps back.

    The new adapter may target a part of the old one's layers:
    https://huggingface.co/docs/peft/package_reference/hotswap.
    """
    yield from swapped(ctx, FIRST, replace(FIRST, name="fewer", targets=("v_proj",)))
    larger = replace(FIRST, name="larger", rank=8, alpha=4, targets=("q_proj",))
    yield from swapped(ctx, FIRST, larger, rank=8)


@call(EXCHANGING, phase=Phase.RELOAD, requires=("prepared_hotswap",))
def swap_after_preparing_scalings(ctx: Context) -> Iterator[Check]:
    """Without target_rank, prepare_model_for_compiled_hotswap prepares a model for adapters of the same rank."""
    from peft.utils.hotswap import hotswap_adapter, prepare_model_for_compiled_hotswap

    other = replace(FIRST, name="second", alpha=2)
    base, folder = reference.read(ctx), saved(ctx, FIRST, other)
    model = loaded(ctx, folder / "first", adapter_name="kept")
    prepare_model_for_compiled_hotswap(model)
    yield gives(model, base, FIRST)
    hotswap_adapter(model, str(folder / "second"), adapter_name="kept", torch_device=str(ctx.place.device))
    yield gives(model, base, other)


@call(EXCHANGING, phase=Phase.RELOAD, requires=("prepared_hotswap",))
def swap_adapters_of_other_ranks(ctx: Context) -> Iterator[Check]:
    """A prepared model takes adapters of larger and smaller ranks and other alphas, one after another.

    Also in layers with fewer inputs or outputs than ranks, such as heads, and in convolutions, prepared or not.
    """
    larger, smaller = replace(FIRST, name="larger", rank=8, alpha=4), replace(FIRST, name="smaller", rank=2, alpha=10)
    yield from swapped(ctx, FIRST, larger, smaller, rank=8)
    for rank in (None, 16):
        yield from swapped_in_narrow_layers(ctx, rank)


def narrow() -> Any:
    import torch

    made = torch.nn.Sequential()
    made.add_module("many", torch.nn.Linear(20, 3))
    made.add_module("few", torch.nn.Linear(2, 24))
    made.add_module("head", torch.nn.Linear(5, 2))
    made.add_module("picture", torch.nn.Conv2d(3, 4, (2, 3)))
    tiny.fill(made)
    return made.eval()


def swapped_in_narrow_layers(ctx: Context, prepared: int | None) -> Iterator[Check]:
    """Swap adapters of falling and rising ranks in, and compare what each layer adds with s B A."""
    import peft
    import torch
    from peft.utils.hotswap import hotswap_adapter, prepare_model_for_compiled_hotswap

    names = [name for name, _ in narrow().named_children()]
    folder, wanted = ctx.kept / f"narrow-{prepared}", dict[int, dict[str, Any]]()
    for rank in (16, 8, 4):
        made = peft.get_peft_model(narrow(), peft.LoraConfig(r=rank, lora_alpha=5 + rank, target_modules=names))
        with torch.no_grad():
            for name, each in made.named_parameters():
                if ".lora_" in name:
                    each.copy_(tiny.values(f"{name} {rank}", tuple(each.shape)))
        made.save_pretrained(folder / str(rank))
        wanted[rank] = {
            name: (5 + rank) / rank * side("lora_B").flatten(1) @ side("lora_A").flatten(1)
            for name in names
            for side in (part_of(made.base_model.model.get_submodule(name)),)
        }
    model = peft.PeftModel.from_pretrained(narrow(), folder / "16", adapter_name="kept")
    if prepared:
        prepare_model_for_compiled_hotswap(model, target_rank=prepared)
    for rank in (8, 4, 8, 16):
        hotswap_adapter(model, str(folder / str(rank)), adapter_name="kept", torch_device="cpu")
        for name in names:
            found = model.base_model.model.get_submodule(name).get_delta_weight("kept").detach().flatten(1)
            title = f"{name}, rank {rank}, target_rank={prepared}"
            yield at_most(f"update off, {title}", relative(found, wanted[rank][name]), NEAR)


def part_of(layer: Any) -> Any:
    return lambda name: getattr(layer, name)["default"].weight.detach().double()


@call(EXCHANGING, phase=Phase.RELOAD, requires=("prepared_hotswap",))
def swap_rslora_adapters(ctx: Context) -> Iterator[Check]:
    """A prepared model takes adapters with use_rslora of other ranks, each with its own alpha / √r."""
    more = {"use_rslora": True}
    first = Adapter(name="first", rank=4, alpha=5, more=more)
    yield from swapped(ctx, first, replace(first, name="larger", rank=8, alpha=3), rank=8)


@call(EXCHANGING, phase=Phase.RELOAD, requires=("prepared_hotswap",))
def swap_and_merge(ctx: Context) -> Iterator[Check]:
    """An adapter that was swapped into a prepared model is merged with its own scaling."""
    from peft.utils.hotswap import hotswap_adapter, prepare_model_for_compiled_hotswap

    smaller = replace(FIRST, name="smaller", rank=2, alpha=10)
    base, folder = reference.read(ctx), saved(ctx, FIRST, smaller)
    model = loaded(ctx, folder / "first", adapter_name="kept")
    prepare_model_for_compiled_hotswap(model, target_rank=8)
    hotswap_adapter(model, str(folder / "smaller"), adapter_name="kept", torch_device=str(ctx.place.device))
    yield gives(model.merge_and_unload(), base, smaller, bound=MERGED)


@call(EXCHANGING, phase=Phase.FORWARD, requires=("disable_input_dtype_casting",))
def keep_input_dtype(ctx: Context) -> Iterator[Check]:
    """disable_input_dtype_casting leaves the inputs of A in their dtype inside its context, and only there."""
    import torch
    from peft.helpers import disable_input_dtype_casting

    model = reference.adapted(ctx, FIRST).eval()
    layer = next(module for module in model.modules() if hasattr(module, "lora_A"))
    seen: list[Any] = []

    def look(_module: Any, given: tuple[Any, ...]) -> Any:
        seen.append(given[0].dtype)
        return (given[0].float(),)  # as the hooks do that this context is made for

    layer.lora_A["first"].register_forward_pre_hook(look)
    layer.get_base_layer().double()
    x = tiny.values("inputs", (4, tiny.HIDDEN)).double().to(ctx.place.device)
    with torch.no_grad():
        found = [layer(x)]
        with disable_input_dtype_casting(model):
            found.append(layer(x))
        found.append(layer(x))
    yield equal("dtypes of the inputs", " ".join(map(str, seen)), "torch.float32 torch.float64 torch.float32")
    yield equal("outputs that differ", sum(not each.equal(found[0]) for each in found), 0)
