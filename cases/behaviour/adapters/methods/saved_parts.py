"""Copies of modules, norms and adapters that are unloaded or merged: which of them stays in the model."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.adapters.methods import layers
from cases.behaviour.adapters.methods.layers import METHODS, NAMES
from cases.behaviour.adapters.methods.method_merging import SAME
from cases.behaviour.starts import adapted_layers
from cases.model import tiny
from cases.reference.tolerance import relative
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

STAYING = "Copies of modules"
KEYS = ("lora", "ia3", "loha")


def with_words(key: str) -> tuple[Any, Any]:
    """A model whose adapters both train a copy of the embeddings, and the tables of original and copies by name."""
    import torch

    model = layers.adapted(METHODS[key], modules_to_save=["words"])
    tables = {"": adapted_layers.base().words.weight.detach().clone()}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            for adapter in NAMES:
                if f"words.modules_to_save.{adapter}." in name:
                    parameter.copy_(tiny.values(f"words of {adapter}", tuple(parameter.shape)))
                    tables[adapter] = parameter.detach().clone()
    return model, tables


def table(model: Any) -> Any:
    import torch

    with torch.no_grad():
        return model.words(torch.arange(adapted_layers.WORDS))


@call(STAYING, phase=Phase.MERGE)
def merge_active_copy(_ctx: Context) -> Iterator[Check]:
    """The active adapter's copy of a module in modules_to_save computes, and merge_and_unload leaves it."""
    for key in KEYS:
        for name in NAMES:
            model, tables = with_words(key)
            model.set_adapter(name)
            found = table(model.base_model.model)
            yield at_most(f"rows of the {name} of {key} off", relative(found, tables[name]), 0.0)
            merged = model.merge_and_unload()
            yield at_most(f"rows of the {name} of {key} off", relative(table(merged), tables[name]), 0.0)


@call(STAYING, phase=Phase.MERGE)
def merge_named_copy(_ctx: Context) -> Iterator[Check]:
    """merge_and_unload(adapter_names=...) leaves that adapter's copy of a module, whichever adapter is active."""
    for key in KEYS:
        model, tables = with_words(key)
        wanted = layers.expected(model, METHODS[key], "second")
        merged = model.merge_and_unload(adapter_names=["second"])
        yield at_most(f"weights of {key} off", layers.off(layers.held(merged), wanted), SAME)
        yield at_most(f"rows of the second of {key} off", relative(table(merged), tables["second"]), 0.0)


@call(STAYING, phase=Phase.MERGE)
def unload_copies(_ctx: Context) -> Iterator[Check]:
    """The model that unload returns is the base: its weights and the original of a module in modules_to_save."""
    for key in KEYS:
        model, tables = with_words(key)
        plain = model.unload()
        found = layers.held(plain)
        yield at_most(f"weights of {key} off", layers.off(found, layers.held(adapted_layers.base())), 0.0)
        yield at_most(f"rows of the base of {key} off", relative(table(plain), tables[""]), 0.0)


def normed() -> Any:
    """A linear layer between two norms."""
    import torch

    made = torch.nn.Sequential(torch.nn.LayerNorm(16), torch.nn.Linear(16, 16), torch.nn.LayerNorm(16))
    tiny.fill(made)
    return made.eval()


def tuned(*names: str) -> Any:
    """The norms with a trained copy for each adapter, which has values of its own; the first is active."""
    import peft
    import torch

    config = {"target_modules": ["0", "2"]}
    model = peft.get_peft_model(normed(), peft.LNTuningConfig(**config), adapter_name=names[0])
    for name in names[1:]:
        model.add_adapter(name, peft.LNTuningConfig(**config))
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if any(f".{name}." in key for name in names):
                parameter.copy_(tiny.values(key, tuple(parameter.shape)))
    return model.eval()


def with_norms(model: Any, name: str) -> Any:
    """A model without adapters that has the norms of one."""
    import torch

    plain = normed()
    state = dict(model.named_parameters())
    with torch.no_grad():
        for place in ("0", "2"):
            for part in ("weight", "bias"):
                trained = state[f"base_model.model.{place}.ln_tuning_layers.{name}.{part}"]
                plain.get_submodule(place).get_parameter(part).copy_(trained)
    return plain


def same(name: str, model: Any, wanted: Any) -> Check:
    import torch

    given = tiny.values("inputs", (8, 16))
    with torch.no_grad():
        return at_most(name, relative(model(given), wanted(given)), SAME)


@call(STAYING, phase=Phase.MERGE)
def tune_norms(_ctx: Context) -> Iterator[Check]:
    """LN tuning switches, disables, merges by name and unloads trained copies of norms, and trains the active one."""
    model = tuned(*NAMES)
    wanted = {name: with_norms(model, name) for name in NAMES}
    yield same("outputs of the first off", model, wanted["first"])
    names = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    yield equal("trained beside the first", sum(".first." not in name for name in names), 0)
    with model.disable_adapter():
        yield same("outputs off the base", model, normed())
    model.set_adapter("second")
    yield same("outputs of the second off", model, wanted["second"])
    names = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    yield equal("trained parts of the second", sum(".second." in name for name in names), 4)
    yield equal("trained beside the second", sum(".second." not in name for name in names), 0)
    model.merge_adapter(adapter_names=["first"])
    yield same("outputs of the first off", model, wanted["first"])
    with model.disable_adapter():
        yield same("outputs off the base", model, normed())
    yield same("outputs of the second off", model, wanted["second"])
    yield same("outputs off the base", copy.deepcopy(model).unload(), normed())
    merged = model.merge_and_unload(adapter_names=["first"])
    yield same("outputs of the first off", merged, wanted["first"])


@call(STAYING, phase=Phase.RELOAD)
def reload_norms(ctx: Context) -> Iterator[Check]:
    """LN tuning saves the norms of each adapter, and loads them under other names."""
    import peft

    model = tuned(*NAMES)
    wanted = {name: with_norms(model, name) for name in NAMES}
    model.save_pretrained(ctx.kept / "saved")
    again = peft.PeftModel.from_pretrained(normed(), ctx.kept / "saved" / "second", adapter_name="one").eval()
    yield same("outputs of the second off", again, wanted["second"])
    again.load_adapter(ctx.kept / "saved" / "first", adapter_name="other")
    yield same("outputs of the second off", again.eval(), wanted["second"])
    again.set_adapter("other")
    yield same("outputs of the first off", again.eval(), wanted["first"])


@call("Adapter files", phase=Phase.SAVE, requires=("peft_version_in_files",))
def files_name_their_peft(ctx: Context) -> Iterator[Check]:
    """The configuration file of every method has the version of PEFT that wrote it."""
    import json

    import peft

    for key, method in METHODS.items():
        if not hasattr(peft, method.config):
            continue  # of later versions
        method.made("first").save_pretrained(ctx.kept / key)
        stored = json.loads((ctx.kept / key / "adapter_config.json").read_text(encoding="utf-8"))
        yield equal(f"version, {key}", str(stored["peft_version"]).partition("@")[0], peft.__version__)
