"""Two adapters of methods other than LoRA on one model: switched, trained, disabled, and merged.

The formulas are those of the papers, as ``cases.reference.adapter_layers`` implements them, with the tensors that the
adapters have in PEFT.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.adapters import lora_reference as reference
from cases.behaviour.adapters.adapters_in_use import descend
from cases.behaviour.adapters.lora_reference import MERGED, NEAR
from cases.model import tiny
from cases.reference import adapter_layers
from cases.reference.tolerance import UNIT_ROUNDOFF, relative, worst_tensor
from cases.space.verdict import Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cases.apply.context import Context
    from cases.space.verdict import Check

    Formula = Callable[[Any, dict[str, Any], float], Any]

TUNING = "Several adapters of other methods"
NAMES = ("first", "second")
TARGETS = {"first": ["q_proj", "v_proj"], "second": ["v_proj", "up_proj", "down_proj"]}
SQUARE = {"first": ["q_proj", "o_proj"], "second": ["o_proj"]}  # some versions of VeRA know one shape only
MARKS = ("hada_", "lokr_", "ia3_l", "vera_lambda_", "lora_")
ONCE = 4 * UNIT_ROUNDOFF["fp32"]  # relative: a weight after the operations of one merge


def adapted(ctx: Context, config: str, arguments: Mapping[str, Mapping[str, Any]]) -> Any:
    """A model with two adapters, whose weights have values of their own; the first is active."""
    import peft
    import torch

    first, second = (getattr(peft, config)(task_type="CAUSAL_LM", **arguments[name]) for name in NAMES)
    made = peft.get_peft_model(reference.loaded(ctx), first, adapter_name="first")
    made.add_adapter("second", second)
    made.set_adapter("first")
    with torch.no_grad():
        for name, parameter in tiny.named(made):
            if any(f".{mark}" in name for mark in MARKS):
                value = tiny.values(name, tuple(parameter.shape))
                parameter.copy_(value + 1 if "ia3_l" in name or "magnitude" in name else value)
    return made


def parts(model: Any, name: str) -> dict[str, dict[str, Any]]:
    """The tensors of an adapter by layer and by their names in the paper's formula, float64."""
    found: dict[str, dict[str, Any]] = {}
    for parameter, value in reference.state(model).items():
        layer, mark, rest = parameter.partition(next((f".{each}" for each in MARKS if f".{each}" in parameter), "|"))
        words = rest.split(".")
        if mark and name in words:
            found.setdefault(layer, {})[mark[1:] + words[0]] = value.double()
    return found


def incomplete(found: dict[str, dict[str, Any]]) -> list[str]:
    """The layers that lack a part that others have."""
    every = {part for tensors in found.values() for part in tensors}
    return [layer for layer, tensors in found.items() if every - tensors.keys()]


def updates(model: Any, base: reference.Base, name: str, formula: Formula, scaling: float) -> dict[str, Any]:
    """What an adapter adds to each weight."""
    return {
        f"{layer}.weight": formula(base.tensors[f"{layer}.weight"], tensors, scaling) - base.tensors[f"{layer}.weight"]
        for layer, tensors in parts(model, name).items()
    }


def used(
    ctx: Context, config: str, arguments: Mapping[str, Any], formula: Any, scalings: tuple[float, float]
) -> Iterator[Check]:
    """Switch, disable, merge, unmerge and train two adapters, and compare with the formula."""
    targets = SQUARE if config == "VeraConfig" else TARGETS
    chosen = {name: {"target_modules": targets[name], **arguments[name]} for name in NAMES}
    base, model = reference.read(ctx), adapted(ctx, config, chosen).eval()
    lost = [f"{layer} of {name}" for name in NAMES for layer in incomplete(parts(model, name))]
    yield equal("layers without a part of an adapter", reference.written(lost), "none")
    if lost:
        return
    formulas = {name: formula(model, name) for name in NAMES}
    added = {n: updates(model, base, n, formulas[n], s) for n, s in zip(NAMES, scalings, strict=True)}
    for name in ("second", "first"):
        expected = {f"{layer}.weight" for layer in base.layers(tuple(targets[name]))}
        yield equal("layers adapted or left out", reference.written(added[name].keys() ^ expected), "none")
        model.set_adapter(name)
        yield at_most("logits off", relative(reference.logits(model), base.logits(added[name])), 2 * NEAR)
    yield at_least("what the adapter does", relative(base.logits(added["first"]), base.logits()), 0.01)
    with model.disable_adapter():
        yield at_most("logits off the base", relative(reference.logits(model), base.logits()), NEAR)
    model.merge_adapter(adapter_names=["second"])
    found = reference.base_weights(model, base)
    yield at_most("merged weights off", worst_tensor(found, base.weights(added["second"])), ONCE)
    model.unmerge_adapter()
    yield at_most("unmerged weights off", worst_tensor(reference.base_weights(model, base), base.tensors), 4 * ONCE)
    yield from trained(model, base, added)
    added["second"] = updates(model, base, "second", formulas["second"], scalings[1])
    merged = model.merge_and_unload()
    yield at_most(
        "merged logits off", relative(reference.logits(merged.eval()), base.logits(added["second"])), 4 * MERGED
    )


def trained(model: Any, base: reference.Base, added: dict[str, Any]) -> Iterator[Check]:
    """A step of the second adapter leaves the first one and the base as they are."""
    model.set_adapter("second")
    before = reference.state(model)
    descend(model)
    changed = reference.changed(before, reference.state(model))
    others = {name for name in changed if "second" not in name.split(".")}
    yield equal("changed beside the second", reference.written(others), "none")
    layers = {name.rpartition(".second")[0].rpartition(".")[0] for name in changed - others}
    yield equal("layers trained", len(layers), len(added["second"]))
    model.set_adapter("first")
    yield at_most(
        "logits of the first off", relative(reference.logits(model.eval()), base.logits(added["first"])), 2 * NEAR
    )
    model.set_adapter("second")


def of_paper(formula: Formula) -> Any:
    return lambda _model, _name: formula


def ranks(first: int, second: int, **alpha: tuple[int, int]) -> dict[str, dict[str, int]]:
    """Arguments of the two configurations."""
    pairs = {"r": (first, second), **alpha}
    return {name: {key: pair[place] for key, pair in pairs.items()} for place, name in enumerate(NAMES)}


@call(TUNING, phase=Phase.MERGE)
def use_two_loha(ctx: Context) -> Iterator[Check]:
    """Two LoHa adapters are switched, disabled, trained and merged by their formula."""
    yield from used(ctx, "LoHaConfig", ranks(4, 8, alpha=(6, 4)), of_paper(adapter_layers.loha), (1.5, 0.5))


@call(TUNING, phase=Phase.MERGE)
def use_two_lokr(ctx: Context) -> Iterator[Check]:
    """Two LoKr adapters are switched, disabled, trained and merged by their formula."""
    yield from used(ctx, "LoKrConfig", ranks(1, 2, alpha=(3, 1)), of_paper(adapter_layers.lokr), (3.0, 0.5))


@call(TUNING, phase=Phase.MERGE, requires=("dora",))
def use_two_dora(ctx: Context) -> Iterator[Check]:
    """Two DoRA adapters are switched, disabled, trained and merged by their formula."""
    arguments = {name: {**each, "use_dora": True} for name, each in ranks(4, 8, lora_alpha=(12, 4)).items()}
    yield from used(ctx, "LoraConfig", arguments, of_paper(adapter_layers.dora), (3.0, 0.5))


@call(TUNING, phase=Phase.MERGE)
def use_two_ia3(ctx: Context) -> Iterator[Check]:
    """Two (IA)³ adapters, of outputs and of feed-forward inputs, are switched, disabled, trained and merged."""
    arguments = {"first": {"feedforward_modules": []}, "second": {"feedforward_modules": ["down_proj"]}}
    yield from used(ctx, "IA3Config", arguments, of_paper(adapter_layers.ia3), (1.0, 1.0))


@call(TUNING, phase=Phase.MERGE, requires=("vera",))
def use_two_vera(ctx: Context) -> Iterator[Check]:
    """Two VeRA adapters, which share their projections, are switched, disabled, trained and merged."""
    arguments = {name: {"r": 8, "d_initial": 0.5} for name in NAMES}
    yield from used(ctx, "VeraConfig", arguments, vera, (1.0, 1.0))


@call(TUNING, phase=Phase.FORWARD, requires=("vera",))
def use_vera_of_fewer_ranks(ctx: Context) -> Iterator[Check]:
    """A second VeRA adapter may have fewer ranks than the first, and uses the first rows of its projection."""
    arguments = {name: {"r": rank, "d_initial": 0.5} for name, rank in zip(NAMES, (8, 4), strict=True)}
    yield from used(ctx, "VeraConfig", arguments, vera, (1.0, 1.0))


def vera(model: Any, name: str) -> Formula:
    """W + diag(b) B diag(d) A (https://arxiv.org/abs/2310.11454) with the model's own projections A and B."""
    a, b = (getattr(model.base_model, f"vera_{side}")[name].detach().double().cpu() for side in "AB")

    def formula(weight: Any, tensors: dict[str, Any], _scaling: float) -> Any:
        (outer, inner), rank = weight.shape, len(tensors["vera_lambda_d"])
        left = tensors["vera_lambda_b"][:, None] * b[:outer, :rank]
        return weight + left @ (tensors["vera_lambda_d"][:, None] * a[:rank, :inner])

    return formula
