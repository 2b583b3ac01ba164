"""Ranks and alphas by pattern in first, second and loaded adapters, and LoRA on the stacked weights of experts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.adapters import lora_reference as reference
from cases.behaviour.adapters.lora_reference import MERGED, NEAR, Adapter
from cases.model import tiny
from cases.reference.tolerance import relative
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Several adapters"
RANK, ALPHA = 4, 6
TARGETS = ("q_proj", "v_proj", "embed_tokens")
# The fields of the configuration, and the layers (by the end of their name) with another rank or alpha.
PATTERNS: Mapping[str, tuple[dict[str, Any], dict[str, tuple[int, int]]]] = {
    "none": ({}, {}),
    "alphas": ({"alpha_pattern": {"v_proj": 20}}, {"v_proj": (RANK, 20)}),
    "ranks": ({"rank_pattern": {"q_proj": 2}}, {"q_proj": (2, ALPHA)}),
    "both of one layer": (
        {"rank_pattern": {"layers.1.self_attn.q_proj": 3}, "alpha_pattern": {"layers.1.self_attn.q_proj": 5}},
        {"layers.1.self_attn.q_proj": (3, 5)},
    ),
    "different keys": (
        {"rank_pattern": {"v_proj": 2}, "alpha_pattern": {"layers.0.self_attn.v_proj": 9}},
        {"layers.0.self_attn.v_proj": (2, 9), "layers.1.self_attn.v_proj": (2, ALPHA)},
    ),
    "of embeddings": (
        {"rank_pattern": {"embed_tokens": 3}, "alpha_pattern": {"embed_tokens": 11}},
        {"embed_tokens": (3, 11)},
    ),
    "expressions": (
        {"rank_pattern": {r"layers\.1\..*_proj": 3}, "alpha_pattern": {r".*\.0\.self_attn\.[qv]_proj": 9}},
        {
            **{f"layers.0.self_attn.{name}_proj": (RANK, 9) for name in "qv"},
            **{f"layers.1.self_attn.{name}_proj": (3, ALPHA) for name in "qv"},
        },
    ),
}
PLAIN = Adapter(name="first", rank=8, alpha=4, targets=TARGETS)


def placed(base: reference.Base, adapter: Adapter, others: Mapping[str, tuple[int, int]]) -> dict[str, Any]:
    """Rank and scaling of each layer, by the formulas of LoRA and rsLoRA."""
    found = {}
    for layer in base.layers(adapter.targets):
        rank, alpha = next((chosen for end, chosen in others.items() if layer.endswith(end)), (RANK, ALPHA))
        found[layer] = rank, replace(adapter, rank=rank, alpha=alpha).scaling
    return found


def as_first(ctx: Context, adapter: Adapter) -> Any:
    return reference.adapted(ctx, adapter)


def as_second(ctx: Context, adapter: Adapter) -> Any:
    return reference.adapted(ctx, PLAIN, adapter)


def as_loaded(ctx: Context, adapter: Adapter) -> Any:
    """An adapter that was saved as the only one, loaded beside another."""
    folder = ctx.kept / "patterns"
    reference.adapted(ctx, adapter).save_pretrained(folder)
    model = reference.adapted(ctx, PLAIN)
    model.load_adapter(folder / adapter.name, adapter_name=adapter.name)
    return model


WAYS: Mapping[str, Callable[[Context, Adapter], Any]] = {"first": as_first, "second": as_second, "loaded": as_loaded}


def patterned(ctx: Context, way: str, **more: Any) -> Iterator[Check]:
    """The logits of an adapter with each pattern, and of its merged model."""
    base = reference.read(ctx)
    for name, (fields, others) in PATTERNS.items():
        adapter = Adapter(name="other", rank=RANK, alpha=ALPHA, targets=TARGETS, more={**fields, **more})
        model = WAYS[way](ctx, adapter).eval()
        model.set_adapter("other")
        expected = base.logits(base.update("other", placed(base, adapter, others)))
        yield at_most(f"logits off, {name}", relative(reference.logits(model), expected), NEAR)
        merged = model.merge_and_unload(adapter_names=["other"])
        yield at_most(f"merged logits off, {name}", relative(reference.logits(merged), expected), MERGED)


@call(GROUP, phase=Phase.ADAPT)
def patterns_of_first_adapter(ctx: Context) -> Iterator[Check]:
    """rank_pattern and alpha_pattern set ranks and scalings of linear layers and embeddings, each by its own keys."""
    yield from patterned(ctx, "first")


@call(GROUP, phase=Phase.ADAPT)
def patterns_of_second_adapter(ctx: Context) -> Iterator[Check]:
    """A second adapter on the same layers has the ranks and scalings of its own patterns."""
    yield from patterned(ctx, "second")


@call(GROUP, phase=Phase.RELOAD)
def patterns_of_loaded_adapter(ctx: Context) -> Iterator[Check]:
    """A saved adapter with patterns has its own ranks and scalings if it is loaded beside another."""
    yield from patterned(ctx, "loaded")


@call(GROUP, phase=Phase.ADAPT)
def patterns_with_rslora(ctx: Context) -> Iterator[Check]:
    """With use_rslora, a second adapter divides the alphas of its patterns by the roots of their ranks."""
    yield from patterned(ctx, "second", use_rslora=True)


@call(GROUP, phase=Phase.ADAPT)
def patterns_of_combined_adapters(ctx: Context) -> Iterator[Check]:
    """add_weighted_adapter adds up updates with the scalings of their patterns, which the combination does not repeat.

    https://huggingface.co/docs/peft/package_reference/lora#peft.LoraModel.add_weighted_adapter
    """
    base = reference.read(ctx)
    for name, (fields, others) in PATTERNS.items():
        adapter = Adapter(name="other", rank=RANK, alpha=ALPHA, targets=TARGETS, more=fields)
        model = as_second(ctx, adapter).eval()
        updates = (base.update("other", placed(base, adapter, others)), base.of(PLAIN))
        for title, weights in (("alone", (0.75,)), ("beside another", (0.75, -0.5))):
            model.add_weighted_adapter(["other", "first"][: len(weights)], [*weights], title, combination_type="cat")
            model.set_adapter(title)
            added = [
                {part: weight * each for part, each in update.items()}
                for weight, update in zip(weights, updates, strict=False)
            ]
            off = relative(reference.logits(model), base.logits(*added))
            yield at_most(f"logits off, {name}, {title}", off, 4 * NEAR)


@call(GROUP, phase=Phase.ADAPT)
def patterns_of_layers_with_two_digits(ctx: Context) -> Iterator[Check]:
    """The key of layer 0 in rank_pattern and alpha_pattern does not apply to layer 10: it has whole parts of names."""
    import torch
    from peft import LoraConfig, get_peft_model

    layers = torch.nn.Sequential(*(torch.nn.Linear(6, 6) for _ in range(11)))
    config = LoraConfig(
        r=RANK, lora_alpha=ALPHA, target_modules=["0", "1", "10"], rank_pattern={"0": 2}, alpha_pattern={"0": 9}
    )
    model = get_peft_model(torch.nn.ModuleDict({"layers": layers}).to(ctx.place.device), config)
    for name, wanted in (("0", (2, 9)), ("1", (RANK, ALPHA)), ("10", (RANK, ALPHA))):
        layer = model.base_model.model["layers"][int(name)]
        yield equal(
            f"rank and alpha of layer {name}", str((layer.r["default"], layer.lora_alpha["default"])), str(wanted)
        )


EXPERTS, INNER, OUTER = 3, 6, 10


def stacked(inner: int, outer: int, experts: int = EXPERTS) -> Any:
    """A module whose parameter ``weight`` stacks the experts' weights, (experts, inner, outer)."""
    import torch

    class StackedWeights(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(tiny.values("experts.weight", (experts, inner, outer)))

        def forward(self, inputs: Any) -> Any:
            return torch.einsum("bi,eio->beo", inputs, self.weight)

    return torch.nn.ModuleDict({"up": StackedWeights(), "down": StackedWeights()})


def expert_delta(model: Any, part: str, adapter: str, scaling: float, experts: int) -> Any:
    """What an adapter adds: scaling * B A of each expert, float64, (experts, inner, outer).

    A's rows are ordered by expert, B's columns by rank, and in a rank by expert: the format of saved adapters.
    """
    import torch

    layer = model.base_model.model[part]
    one, other = (side[adapter].weight.detach().double() for side in (layer.lora_A, layer.lora_B))
    one = one.view(experts, -1, one.shape[-1])
    rank = one.shape[1]
    updates = [
        scaling * other[:, [place * experts + each for place in range(rank)]] @ one[each] for each in range(experts)
    ]
    return torch.stack(updates)


EXPERT_SETTINGS: Mapping[str, tuple[dict[str, Any], dict[str, tuple[int, int]]]] = {
    "no patterns": ({}, {}),
    "patterns": (
        {"rank_pattern": {"down.weight": 3}, "alpha_pattern": {"up.weight": 9}},
        {"up": (2, 9), "down": (3, 5)},
    ),
    "rslora": ({"use_rslora": True}, {}),
}


@call(GROUP, phase=Phase.ADAPT, requires=("parameter_targets",))
def adapters_of_stacked_experts(ctx: Context) -> Iterator[Check]:
    """LoRA on stacked experts adds each expert's own update: in a pass, merged, unmerged and without it."""
    import torch
    from peft import LoraConfig, get_peft_model

    inputs = torch.randn(5, INNER, generator=torch.Generator().manual_seed(0)).to(ctx.place.device)
    for name, (fields, others) in EXPERT_SETTINGS.items():
        targets = {"target_modules": [], "target_parameters": ["up.weight", "down.weight"]}
        config = LoraConfig(r=2, lora_alpha=5, **targets, **fields)
        model = get_peft_model(stacked(INNER, OUTER).to(ctx.place.device), config, adapter_name="first")
        with torch.no_grad():
            for place, parameter in tiny.named(model):
                if ".lora_" in place:
                    parameter.copy_(tiny.values(place, tuple(parameter.shape)))
        for part in ("up", "down"):
            rank, alpha = others.get(part, (2, 5))
            scaling = alpha / (rank**0.5 if "use_rslora" in fields else rank)
            layer = model.base_model.model[part]
            yield equal(f"rank of {part}, {name}", layer.r["first"], rank)
            delta = expert_delta(model, part, "first", scaling, EXPERTS)
            weight = tiny.values("experts.weight", (EXPERTS, INNER, OUTER)).double().to(inputs.device)
            plain, wanted = (torch.einsum("bi,eio->beo", inputs.double(), each) for each in (weight, weight + delta))
            yield at_most(f"outputs of {part} off, {name}", relative(layer(inputs), wanted), NEAR)
            with model.disable_adapter():
                yield at_most(f"outputs of {part} off without adapter, {name}", relative(layer(inputs), plain), NEAR)
            layer.merge()
            yield at_most(f"merged outputs of {part} off, {name}", relative(layer(inputs), wanted), MERGED)
            layer.unmerge()
            yield at_most(f"unmerged outputs of {part} off, {name}", relative(layer(inputs), wanted), MERGED)
