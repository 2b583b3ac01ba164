"""PeftMixedModel: adapters of several methods on one model, active together or alone.

https://huggingface.co/docs/peft/developer_guides/mixed_models
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.starts import adapted_layers
from cases.reference.tolerance import relative
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Rarer methods"
SAME = 1e-5
KINDS = {"one": "lora_", "two": "hada_"}  # by adapter: LoRA and LoHa
SCALES = {"one": 6 / 4, "two": 6 / 4}


def configurations() -> dict[str, Any]:
    import peft

    both = {"target_modules": ["wide", "tall"], "r": 4}
    return {
        "one": peft.LoraConfig(lora_alpha=6, **both),
        "two": peft.LoHaConfig(alpha=6, **{**both, "target_modules": ["tall"]}),
    }


def mixed() -> Any:
    """A base with an adapter of LoRA and one of LoHa, filled; the first is active."""
    import peft
    import torch

    torch.manual_seed(0)
    first, second = configurations().values()
    made = peft.get_peft_model(adapted_layers.base(), first, adapter_name="one", mixed=True)
    made.add_adapter("two", second)
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if any(mark in name for mark in KINDS.values()):
                parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(len(name))) * 0.3)
    return made.eval()


def updates(model: Any, adapter: str) -> dict[str, Any]:
    """The update of each layer by the formula of its method, in float64; zero where the adapter has no layer."""
    import torch

    found = {}
    for name, (out, into) in adapted_layers.SIZES.items():
        parts = {
            next(word for word in key.split(".") if word.startswith(KINDS[adapter])): p.detach().double()
            for key, p in model.named_parameters()
            if name in key.split(".") and adapter in key.split(".")
        }
        if not parts:
            found[name] = torch.zeros(out, into, dtype=torch.float64)
        elif adapter == "one":
            found[name] = SCALES[adapter] * parts["lora_B"] @ parts["lora_A"]
        else:
            left, right = (parts[f"hada_w{n}_a"] @ parts[f"hada_w{n}_b"] for n in (1, 2))
            found[name] = SCALES[adapter] * left * right
    return found


def expected(model: Any, adapters: Sequence[str]) -> dict[str, Any]:
    wanted = adapted_layers.originals(adapted_layers.base())
    for adapter in adapters:
        own = updates(model, adapter)
        wanted = {name: weight + own[name] for name, weight in wanted.items()}
    return wanted


def applied(layers: Mapping[str, Any]) -> dict[str, Any]:
    """The weights that layers apply."""
    import torch

    found = {}
    with torch.no_grad():
        for name, (_, into) in adapted_layers.SIZES.items():
            zero = layers[name](torch.zeros(1, into)).double()
            found[name] = (layers[name](torch.eye(into)).double() - zero).T
    return found


def off(model: Any, wanted: Mapping[str, Any]) -> float:
    inner = getattr(model, "base_model", model)
    inner = getattr(inner, "model", inner)
    found = applied({name: inner.get_submodule(name) for name in adapted_layers.SIZES})
    return max(relative(found[name], wanted[name]) for name in wanted)


def trained(model: Any) -> str:
    """The adapters that have trained parameters."""
    return " ".join(
        sorted(
            adapter
            for adapter in SCALES
            if any(p.requires_grad and adapter in name.split(".") for name, p in model.named_parameters())
        )
    )


@call(GROUP, phase=Phase.ADAPT)
def mixed_methods(_ctx: Context) -> Iterator[Check]:
    """Adapters of two methods compute and are trained alone, or together as the sum of their updates.

    Disabled, deleted and unloaded ones leave the base; merging writes the sum.
    """
    model = mixed()
    for chosen in (["one"], ["two"], ["one", "two"], ["one"]):
        model.set_adapter(chosen)
        title = " and ".join(chosen)
        yield at_most(f"weights off, {title}", off(model, expected(model, chosen)), SAME)
        yield equal(f"trained adapters, {title}", trained(model), " ".join(sorted(chosen)))
        with model.disable_adapter():
            yield at_most(f"weights off, {title}, disabled", off(model, expected(model, [])), SAME)
        yield at_most(f"weights off, {title}, enabled again", off(model, expected(model, chosen)), SAME)
    model.set_adapter(["one", "two"])
    wanted = expected(model, ["one", "two"])
    merged = copy.deepcopy(model).merge_and_unload()
    yield at_most("weights off, merged", off(merged, wanted), SAME)
    yield equal("layers, merged", str([type(each).__name__ for each in merged]), str(["Embedding", "Linear", "Linear"]))
    plain = copy.deepcopy(model).unload()
    yield at_most("weights off, unloaded", off(plain, expected(model, [])), 0.0)
    alone = expected(model, ["two"])
    model.delete_adapter("one")
    model.set_adapter("two")
    yield at_most("weights off, after deletion", off(model, alone), SAME)
    left = [name for name in model.state_dict() if "one" in name.split(".")]
    yield equal("tensors left of the deleted adapter", " ".join(left) or "none", "none")


@call(GROUP, phase=Phase.RELOAD)
def mixed_methods_loaded(ctx: Context) -> Iterator[Check]:
    """Adapters that were trained apart are loaded into one mixed model, and compute together."""
    import peft

    single = {}
    for name, config in configurations().items():
        model = adapted_layers.fill(peft.get_peft_model(adapted_layers.base(), config, adapter_name=name))
        model.save_pretrained(ctx.kept)
        single[name] = updates(model, name)
    made = peft.PeftMixedModel.from_pretrained(adapted_layers.base(), ctx.kept / "one", adapter_name="one")
    made.load_adapter(ctx.kept / "two", adapter_name="two")
    base = adapted_layers.originals(adapted_layers.base())
    for chosen in (["one"], ["two"], ["one", "two"]):
        made.set_adapter(chosen)
        wanted = {name: weight + sum(single[each][name] for each in chosen) for name, weight in base.items()}
        yield at_most(f"weights off, {' and '.join(chosen)}", off(made.eval(), wanted), SAME)


@call(GROUP, phase=Phase.ADAPT)
def counted_in_mixed_models(_ctx: Context) -> Iterator[Check]:
    """get_nb_trainable_parameters counts the active adapters' weights, and all weights."""
    model = mixed()
    sizes = {each: sum(p.numel() for name, p in model.named_parameters() if each in name.split(".")) for each in SCALES}
    whole = sum(sizes.values()) + sum(p.numel() for p in adapted_layers.base().parameters())
    for chosen in (["one"], ["two"], ["one", "two"]):
        model.set_adapter(chosen)
        found = model.get_nb_trainable_parameters()
        yield equal(f"weights, {' and '.join(chosen)}", str(found), str((sum(sizes[each] for each in chosen), whole)))
