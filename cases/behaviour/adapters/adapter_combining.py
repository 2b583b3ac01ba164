"""``add_weighted_adapter``: the combination types against their formulas.

``cat`` and ``svd`` combine the products ``scaling * B A``; the others combine A and B separately, each with the root of
weight times scaling (https://huggingface.co/blog/peft_merging, "How do the methods work"). TIES: trim, elect signs,
disjoint mean (https://arxiv.org/abs/2306.01708, algorithm 1). DARE: drop and rescale
(https://arxiv.org/abs/2311.03099, section 3).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.adapters import lora_reference as reference
from cases.behaviour.adapters.lora_reference import FIRST, NEAR, SECOND, Adapter
from cases.model import tiny
from cases.reference.tolerance import relative, worst_tensor
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

    Combine = Callable[[list[Any], list[float]], Any]

COMBINING = "Combining adapters by formula"
OTHER = Adapter(name="second", rank=4, alpha=2, targets=("v_proj", "down_proj"))  # as many ranks as the first adapter
WEIGHTS = [0.75, 0.5]
PARTS = 1e-6  # relative: A or B, after a few operations in float32
PRODUCTS = 1e-5  # relative: the product of factors from a decomposition in float32
DENSITY = 0.4
RANKS = tiny.HIDDEN // 2  # the smallest dimension of a layer


def combined(ctx: Context, adapters: list[Adapter], weights: list[float], model: str = "llama", **more: Any) -> Any:
    """A model with two adapters and their combination, which is active."""
    import torch

    made = reference.adapted(ctx, *adapters, model=model).eval()
    with torch.no_grad():
        for name, parameter in tiny.named(made):
            if tiny.is_adapter(name):
                parameter.add_(steps(parameter.shape).to(parameter))
    made.add_weighted_adapter([each.name for each in adapters], weights, "both", **more)
    made.set_adapter("both")
    return made


def steps(shape: Any) -> Any:
    """Small numbers that leave no two values of equal size: trimming could keep either."""
    import torch

    return torch.arange(1, shape.numel() + 1).view(shape) * 2.0**-22


def sides(base: reference.Base, adapter: Adapter) -> dict[str, Any]:
    return {name: side + steps(side.shape) for name, side in base.sides(adapter.name, base.placed(adapter)).items()}


def update(base: reference.Base, adapter: Adapter) -> dict[str, Any]:
    return base.update(adapter.name, base.placed(adapter), sides(base, adapter))


def products(base: reference.Base, adapters: list[Adapter]) -> dict[str, list[tuple[int, Any]]]:
    """The update of every weight by each adapter that has one, with the adapter's place in the list."""
    found: dict[str, list[tuple[int, Any]]] = {}
    for place, adapter in enumerate(adapters):
        for name, added in update(base, adapter).items():
            found.setdefault(name, []).append((place, added))
    return found


def summed(base: reference.Base, adapters: list[Adapter], weights: list[float]) -> dict[str, Any]:
    return {
        name: sum(weights[place] * added for place, added in updates)
        for name, updates in products(base, adapters).items()
    }


def as_products(model: Any, base: reference.Base, expected: dict[str, Any]) -> Iterator[Check]:
    """Compare the logits of the combination, and its update of every weight, with expected updates."""
    yield at_most("logits off", relative(reference.logits(model), base.logits(expected)), 4 * NEAR)
    found = {}
    for name, module in model.named_modules():
        if hasattr(module, "get_delta_weight") and f"{tiny.canonical(name)}.weight" in base.tensors:
            found[f"{tiny.canonical(name)}.weight"] = module.get_delta_weight("both").detach().cpu()
    yield equal("weights combined or left out by mistake", reference.written(found.keys() ^ expected.keys()), "none")
    yield at_most("updates off", worst_tensor(found, expected), PRODUCTS)


@call(COMBINING, phase=Phase.ADAPT)
def concatenate_adapters(ctx: Context) -> Iterator[Check]:
    """combination_type="cat" is the weighted sum of adapters of other ranks and targets, also with weight < 0."""
    base, weights = reference.read(ctx), [0.75, -0.5]
    model = combined(ctx, [FIRST, SECOND], weights, combination_type="cat")
    yield from as_products(model, base, summed(base, [FIRST, SECOND], weights))
    model.set_adapter("first")
    yield at_most("logits of the first off", relative(reference.logits(model), base.logits(update(base, FIRST))), NEAR)


@call(COMBINING, phase=Phase.ADAPT)
def concatenate_embeddings(ctx: Context) -> Iterator[Check]:
    """combination_type="cat" is the weighted sum of adapters of the embeddings."""
    first = Adapter(name="first", rank=4, alpha=12, targets=("embed_tokens", "q_proj"))
    second = Adapter(name="second", rank=8, alpha=4, targets=("embed_tokens",))
    base = reference.read(ctx)
    model = combined(ctx, [first, second], WEIGHTS, combination_type="cat")
    expected = base.logits(summed(base, [first, second], WEIGHTS))
    yield at_most("logits off", relative(reference.logits(model), expected), 4 * NEAR)


@call(COMBINING, phase=Phase.ADAPT)
def decompose_embeddings(ctx: Context) -> Iterator[Check]:
    """combination_type="svd" with enough ranks is the weighted sum of adapters of the embeddings."""
    first, second = (replace(each, targets=("embed_tokens",)) for each in (FIRST, SECOND))
    base = reference.read(ctx)
    model = combined(ctx, [first, second], WEIGHTS, combination_type="svd", svd_rank=12)
    expected = base.logits(summed(base, [first, second], WEIGHTS))
    yield at_most("logits off", relative(reference.logits(model), expected), 4 * NEAR)


@call(COMBINING, phase=Phase.ADAPT)
def decompose_whole_sum(ctx: Context) -> Iterator[Check]:
    """combination_type="svd" with enough ranks is the weighted sum, also with a negative weight."""
    base, weights = reference.read(ctx), [0.75, -0.5]
    model = combined(ctx, [FIRST, SECOND], weights, combination_type="svd", svd_rank=12)
    yield from as_products(model, base, summed(base, [FIRST, SECOND], weights))


@call(COMBINING, phase=Phase.ADAPT)
def decompose_with_fewer_ranks(ctx: Context) -> Iterator[Check]:
    """combination_type="svd" is the best approximation of the weighted sum by the largest of the ranks."""
    base = reference.read(ctx)
    model = combined(ctx, [FIRST, SECOND], WEIGHTS, combination_type="svd")
    whole = summed(base, [FIRST, SECOND], WEIGHTS)
    yield from as_products(model, base, {name: nearest(added, SECOND.rank) for name, added in whole.items()})


def nearest(matrix: Any, rank: int) -> Any:
    """The nearest matrix of a rank (Eckart and Young, 1936)."""
    import torch

    u, s, v = torch.linalg.svd(matrix, full_matrices=False)
    return (u[:, :rank] * s[:rank]) @ v[:rank]


@call(COMBINING, phase=Phase.ADAPT)
def decompose_transposed_layers(ctx: Context) -> Iterator[Check]:
    """combination_type="svd" works on GPT-2's Conv1D layers."""
    more = {"fan_in_fan_out": True}
    adapters = [
        Adapter(name="first", rank=4, alpha=12, targets=("c_attn", "c_fc"), more=more),
        Adapter(name="second", rank=8, alpha=4, targets=("c_attn", "mlp.c_proj"), more=more),
    ]
    base = reference.read(ctx, "gpt2")
    model = combined(ctx, adapters, WEIGHTS, "gpt2", combination_type="svd", svd_rank=12)
    yield from as_products(model, base, summed(base, adapters, WEIGHTS))


@call(COMBINING, phase=Phase.ADAPT)
def decompose_trimmed_sum(ctx: Context) -> Iterator[Check]:
    """combination_type="ties_svd" approximates the TIES of the products."""
    base, adapters = reference.read(ctx), [FIRST, SECOND]
    more: dict[str, Any] = {"combination_type": "ties_svd", "svd_rank": RANKS, "density": DENSITY}
    model = combined(ctx, adapters, WEIGHTS, **more)
    expected = {
        name: ties([added for _, added in updates], [WEIGHTS[place] for place, _ in updates])
        for name, updates in products(base, adapters).items()
    }
    yield from as_products(model, base, {name: nearest(added, RANKS) for name, added in expected.items()})


def trimmed(values: Any) -> Any:
    """Only the largest values, a share of ``DENSITY`` of all; the others are 0."""
    smallest = values.abs().flatten().sort(descending=True).values[int(DENSITY * values.numel()) - 1]
    return values.where(values.abs() >= smallest, values.new_zeros(()))


def ties(values: list[Any], weights: list[float], votes: Callable[[Any], Any] = lambda kept: kept) -> Any:
    """The mean, over the tensors that agree with the elected sign, of weight times trimmed value."""
    import torch

    kept = torch.stack([trimmed(each) for each in values])
    elected = torch.where(votes(kept).sum(0) >= 0, 1.0, -1.0).to(kept)
    agrees = kept.sign() == elected
    scaled = kept * torch.tensor(weights, dtype=kept.dtype).view(-1, *[1] * (kept.dim() - 1))
    return (scaled * agrees).sum(0) / agrees.sum(0).clamp_min(1)


def pruned(values: list[Any], weights: list[float]) -> Any:
    return sum(weight * trimmed(each) for weight, each in zip(weights, values, strict=True))


def linear(values: list[Any], weights: list[float]) -> Any:
    return sum(weight * each for weight, each in zip(weights, values, strict=True))


def sides_by_layer(base: reference.Base, weights: list[float], combine: Combine) -> dict[str, Any]:
    """A and B of the combination: by a formula, with the root of |weight * scaling|, and its sign on A."""
    found: dict[str, Any] = {}
    for layer in base.layers((*FIRST.targets, *OTHER.targets)):
        for side in "AB":
            values, factors = [], []
            for adapter, weight in zip((FIRST, OTHER), weights, strict=True):
                if layer in base.placed(adapter):
                    values.append(sides(base, adapter)[base.side(layer, side, adapter.name)])
                    strength = weight * adapter.scaling
                    factors.append(abs(strength) ** 0.5 * (-1 if side == "A" and strength < 0 else 1))
            found[base.side(layer, side, "both")] = combine(values, factors)
    return found


def by_side(ctx: Context, combine: Combine, weights: list[float], **more: Any) -> Iterator[Check]:
    """Compare A and B of the combination, and its logits, with a formula."""
    base = reference.read(ctx)
    model = combined(ctx, [FIRST, OTHER], weights, **more)
    expected = sides_by_layer(base, weights, combine)
    found = {name: value for name, value in reference.state(model).items() if ".both." in name}
    yield equal("parts of the combination", reference.written(found.keys() ^ expected.keys()), "none")
    yield at_most("parts off", worst_tensor(found, expected), PARTS)
    placed = dict.fromkeys(base.layers((*FIRST.targets, *OTHER.targets)), (FIRST.rank, 1.0))
    added = base.update("both", placed, expected)
    yield at_most("logits off", relative(reference.logits(model), base.logits(added)), 2 * NEAR)


@call(COMBINING, phase=Phase.ADAPT)
def combine_linearly(ctx: Context) -> Iterator[Check]:
    """combination_type="linear" adds up A and B, each with the root of weight times scaling."""
    yield from by_side(ctx, linear, WEIGHTS, combination_type="linear")


@call(COMBINING, phase=Phase.ADAPT, requires=("negative_weights",))
def combine_with_negative_weight(ctx: Context) -> Iterator[Check]:
    """combination_type="linear" subtracts an adapter with a negative weight."""
    yield from by_side(ctx, linear, [0.75, -0.5], combination_type="linear")


@call(COMBINING, phase=Phase.ADAPT, requires=("negative_weights",))
def negate_one_adapter(ctx: Context) -> Iterator[Check]:
    """A combination of one adapter with the weight -1 has the opposite effect."""
    base = reference.read(ctx)
    model = combined(ctx, [FIRST], [-1.0], combination_type="svd")
    expected = base.logits({name: -added for name, added in update(base, FIRST).items()})
    yield at_most("logits off", relative(reference.logits(model), expected), 2 * NEAR)


@call(COMBINING, phase=Phase.ADAPT)
def combine_by_ties(ctx: Context) -> Iterator[Check]:
    """combination_type="ties" trims, elects signs by their total, and averages what agrees."""
    yield from by_side(ctx, ties, WEIGHTS, combination_type="ties", density=DENSITY)


@call(COMBINING, phase=Phase.ADAPT)
def combine_by_frequent_signs(ctx: Context) -> Iterator[Check]:
    """combination_type="ties" with majority_sign_method="frequency" counts signs instead of adding values."""

    def by_count(values: list[Any], weights: list[float]) -> Any:
        return ties(values, weights, votes=lambda kept: kept.sign())

    more = {"combination_type": "ties", "density": DENSITY, "majority_sign_method": "frequency"}
    yield from by_side(ctx, by_count, WEIGHTS, **more)


@call(COMBINING, phase=Phase.ADAPT)
def combine_pruned(ctx: Context) -> Iterator[Check]:
    """combination_type="magnitude_prune" adds up the largest values of each adapter."""
    yield from by_side(ctx, pruned, WEIGHTS, combination_type="magnitude_prune", density=DENSITY)


@call(COMBINING, phase=Phase.ADAPT)
def combine_by_dare(ctx: Context) -> Iterator[Check]:
    """combination_type="dare_linear" drops values at random and divides the others by the density."""
    import torch

    torch.manual_seed(0)
    base = reference.read(ctx)
    model = combined(ctx, [FIRST, OTHER], WEIGHTS, combination_type="dare_linear", density=DENSITY)
    found = {name: value.double() for name, value in reference.state(model).items() if ".both." in name}
    first, second = (sides_by_layer(base, weights, linear) for weights in ([WEIGHTS[0], 0.0], [0.0, WEIGHTS[1]]))
    yield equal("parts of the combination", reference.written(found.keys() ^ first.keys()), "none")
    apart, kept = [], []
    for name, value in found.items():
        one, other = (each[name] / DENSITY for each in (first, second))
        sums = torch.stack([torch.zeros_like(value), one, other, one + other])
        distance, choice = (sums - value).abs().min(0)
        apart.append(float(distance.max() / sums.abs().max()))
        has_one, has_other = torch.tensor([[0, 1, 0, 1], [0, 0, 1, 1]]).bool()
        kept += [has_one[choice][one != 0].double(), has_other[choice][other != 0].double()]
    share = torch.cat([each.flatten() for each in kept])
    error = float((share.mean() - DENSITY).abs() / (DENSITY * (1 - DENSITY) / len(share)) ** 0.5)
    yield at_most("share of kept values off, in standard errors", error, 5.0)
    spread = [
        float((each.mean() - DENSITY).abs() * (len(each) / (DENSITY * (1 - DENSITY))) ** 0.5)
        for each in kept
        if len(each)
    ]
    yield at_most("the same in one tensor", max(spread), 5.0)
