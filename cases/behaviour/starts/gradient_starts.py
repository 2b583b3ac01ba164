"""LoRA-GA: the start of an adapter from the gradient of its weight (https://arxiv.org/abs/2407.05000)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.starts import adapted_layers
from cases.behaviour.starts.adapted_layers import ALPHA, RANK, SAME, SIZES, TARGETS
from cases.behaviour.starts.data_layers import chain, roundoff, rows, sides, spectral
from cases.behaviour.starts.decomposed_starts import off, residual_checks
from cases.model import tiny
from cases.space.verdict import Phase

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

    Tensors = dict[str, Any]

GROUP = "Start values computed from data"
SCALING = ALPHA / RANK


PASSES, TOKENS = 2, 20  # together fewer tokens than 4 r, so that the fast decomposition of a gradient is exact
GAMMA = 9


def target(number: int) -> Any:
    return tiny.values(f"target {number}", (TOKENS, SIZES["tall"][0]))


def mean_gradients(original: Any) -> Tensors:
    """The gradient of the sum of outputs times targets, over the number of passes: float64, (out, in)."""
    weights = adapted_layers.originals(original)
    found: Tensors = dict.fromkeys(TARGETS, 0)
    for number in range(PASSES):
        inputs = dict(chain(rows(number)[:TOKENS].double(), weights, original))
        back = target(number).double()
        for name in reversed(TARGETS):
            found[name] = found[name] + back.T @ inputs[name] / PASSES
            back = back @ weights[name]
    return found


def ga_model(original: Any, direction: str, scale: str, **other: Any) -> Any:
    """A copy of a base, adapted by the gradients of two passes."""
    import copy

    import torch
    from peft import LoraGAConfig, get_peft_model
    from peft.tuners.lora.loraga import preprocess_loraga

    model = copy.deepcopy(original)
    chosen = LoraGAConfig(direction=direction, scale=scale, stable_gamma=GAMMA)
    config = adapted_layers.lora(init_lora_weights="lora_ga", lora_ga_config=chosen, **other)

    def steps() -> None:
        for number in range(PASSES):
            (model(rows(number)[:TOKENS]) * target(number)).sum().backward()

    preprocess_loraga(model, config, steps)
    torch.manual_seed(0)
    return get_peft_model(model, config).eval()


def ga_checks(original: Any, direction: str, scale: str, **other: Any) -> Iterator[Check]:
    """Check both sides of the adapter by the singular vectors that the direction chooses, and the residual."""
    import torch

    model = ga_model(original, direction, scale, **other)
    weights, a, b = adapted_layers.originals(original), sides(model, "lora_A"), sides(model, "lora_B")
    products, squares, within = {}, {}, SAME
    for name, gradient in mean_gradients(original).items():
        left, values, right = torch.linalg.svd(gradient, full_matrices=False)
        of_a, of_b = chosen_vectors(direction, right[: 2 * RANK], a[name])
        on_a, on_b = factors(scale, weights[name], float(values[of_b[0]]))
        products[name] = on_a * on_b * (left[:, of_b] * values[of_b]) @ right[of_a]
        squares[name] = on_a**2 * torch.eye(RANK, dtype=torch.float64)
        within = max(within, roundoff(values, 0, 2 * RANK) * float(values[0] / values[of_b].min()))
    yield off("lora_A of its own off", {name: each @ each.T for name, each in a.items()}, squares)
    both = {name: absolute(b[name], a[name], products[name]) for name in TARGETS}
    yield off("products of both sides off", {name: b[name] @ each for name, each in both.items()}, products, within)
    yield from residual_checks(model, original, {name: SCALING * b[name] @ a[name] for name in TARGETS})


def absolute(b: Any, a: Any, wanted: Any) -> Any:
    """A with the signs that singular vectors do not have: those of the wanted product of each column and row."""
    signs = ((b.T @ wanted) * a).sum(dim=1).sign()
    return signs[:, None] * a


def chosen_vectors(direction: str, right: Any, a: Any) -> tuple[list[int], list[int]]:
    """The numbers of the singular vectors of A and of B; random ones are those that A has."""
    first, second = list(range(RANK)), list(range(RANK, 2 * RANK))
    if direction == "ArBr":
        return list(range(1, 2 * RANK, 2)), list(range(0, 2 * RANK, 2))
    if direction == "A2rBr":
        return second, first
    if direction == "ArB2r":
        return first, second
    drawn = [int(each) for each in (a @ right.T).abs().argmax(dim=1)]
    return drawn, drawn


def factors(scale: str, weight: Any, largest: float) -> tuple[float, float]:
    """What multiplies A and B."""
    import torch

    if scale == "stable":
        return 1.0, len(weight) ** 0.25 / math.sqrt(GAMMA)
    if scale == "weight_svd":
        return 1.0, float(torch.linalg.svdvals(weight)[0]) / largest
    return (1 / SCALING, 1 / SCALING) if scale == "gd_scale" else (1.0, 1.0)


@call(GROUP, phase=Phase.ADAPT, requires=("lora_ga",))
def lora_ga_directions(ctx: Context) -> Iterator[Check]:
    """LoRA-GA gives A and B the singular vectors of the mean gradient that its direction names."""
    del ctx
    for direction in ("ArBr", "A2rBr", "ArB2r", "random"):
        yield from ga_checks(spectral(), direction, "unit")


@call(GROUP, phase=Phase.ADAPT, requires=("lora_ga",))
def lora_ga_scales(ctx: Context) -> Iterator[Check]:
    """LoRA-GA scales its start by its four documented rules."""
    del ctx
    for scale in ("stable", "weight_svd", "gd_scale"):
        yield from ga_checks(spectral(), "ArB2r", scale)


@call(GROUP, phase=Phase.ADAPT, requires=("lora_ga",))
def lora_ga_on_conv1d(ctx: Context) -> Iterator[Check]:
    """LoRA-GA on GPT-2's Conv1D layers decomposes their transposed gradients."""
    del ctx
    yield from ga_checks(adapted_layers.conv1d(), "ArB2r", "unit", fan_in_fan_out=True)
