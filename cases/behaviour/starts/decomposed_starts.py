"""Adapters whose start is computed from the base weight: DoRA's magnitude, PiSSA, OLoRA, LoftQ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.api import models as tiny_models
from cases.behaviour.starts import adapted_layers
from cases.behaviour.starts.adapted_layers import ALPHA, RANK, SAME, SIZES, TARGETS
from cases.model import adapter_start, architectures, tiny
from cases.reference import quantisation, tolerance
from cases.space.options import Options
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Start values computed from the base"
FOUR = ("4bit", "4bit_loading")
SCALING = ALPHA / RANK
NUMBERS = RANK * sum(out + into for out, into in SIZES.values())
MAGNITUDES = sum(out for out, _ in SIZES.values())


def off(name: str, found: Mapping[str, Any], expected: Mapping[str, Any], within: float = SAME) -> Check:
    return at_most(name, tolerance.worst_tensor(dict(found), dict(expected)), within)


def row_norms(weights: Mapping[str, Any]) -> dict[str, Any]:
    """The norm of each output feature's weights (https://arxiv.org/abs/2402.09353, section 4.1)."""
    return {name: weight.square().sum(dim=1).sqrt() for name, weight in weights.items()}


def magnitudes(model: Any) -> dict[str, Any]:
    return {name: adapted_layers.parts(model, name, "lora_magnitude_vector").flatten() for name in TARGETS}


def dora_checks(original: Any, **other: Any) -> Iterator[Check]:
    """Check magnitudes and applied weights at the start, and the formula m (W + s B A) / |W + s B A| after it."""
    weights = adapted_layers.originals(original)
    model = adapted_layers.adapted(original, adapted_layers.lora(use_dora=True, **other))
    yield off("magnitudes off", magnitudes(model), row_norms(weights))
    yield adapted_layers.weights_as(adapted_layers.applied(model), weights)
    yield from adapted_layers.trained(model, ("lora_A.", "lora_B.", "lora_magnitude_vector"), NUMBERS + MAGNITUDES)
    adapted_layers.fill(model)
    expected = {}
    for name, weight in adapted_layers.bases(model).items():
        direction = weight + adapted_layers.update(model, name, SCALING)
        share = magnitudes(model)[name] / direction.square().sum(dim=1).sqrt()
        expected[name] = share[:, None] * direction
    yield off("filled weights off", adapted_layers.applied(model), expected)


@call(GROUP, phase=Phase.ADAPT, requires=("dora",))
def dora_start(ctx: Context) -> Iterator[Check]:
    """DoRA's magnitude starts as the norm of each output feature's weights, and the model equals its base."""
    del ctx
    yield from dora_checks(adapted_layers.base())


@call(GROUP, phase=Phase.ADAPT, requires=("dora",))
def dora_on_conv1d_start(ctx: Context) -> Iterator[Check]:
    """DoRA on GPT-2's Conv1D layers takes the norm over the inputs of each output feature."""
    del ctx
    yield from dora_checks(adapted_layers.conv1d(), fan_in_fan_out=True)


@call(GROUP, phase=Phase.ADAPT, requires=("dora", "pissa_start"))
def dora_on_pissa_start(ctx: Context) -> Iterator[Check]:
    """DoRA on PiSSA's start, where B is not zero, takes the norms of the original weights, not of the residual."""
    del ctx
    yield from dora_checks(adapted_layers.with_spectrum(), init_lora_weights="pissa")


@call(GROUP, phase=Phase.ADAPT, requires=("dora", *FOUR))
def dora_nf4_start(ctx: Context) -> Iterator[Check]:
    """DoRA on a 4-bit base takes the norms of the dequantised weights."""
    from peft import get_peft_model

    model = get_peft_model(tiny_models.loaded(ctx, "nf4", dtype="fp32"), tiny_models.config(use_dora=True))
    found, expected = {}, {}
    for name, layer in adapter_start.decomposed_layers(model).items():
        original = architectures.linear_values(name, (layer.out_features, layer.in_features), Options())
        expected[name] = quantisation.dequantised(original, "nf4").double()
        magnitude = layer.lora_magnitude_vector["default"]
        found[name] = getattr(magnitude, "weight", magnitude).detach().double().cpu().flatten()
    yield equal("layers", len(found), tiny.LAYERS * len(tiny.TARGETS))
    yield off("magnitudes off", found, row_norms(expected))


def decomposition(original: Any, start: str, **other: Any) -> tuple[Any, dict[str, Any]]:
    """An adapted base, and the update s B A of each layer."""
    model = adapted_layers.adapted(original, adapted_layers.lora(init_lora_weights=start, **other))
    return model, {name: adapted_layers.update(model, name, SCALING) for name in TARGETS}


def residual_checks(model: Any, original: Any, updates: Mapping[str, Any]) -> Iterator[Check]:
    """Check that the base became what the update leaves, so that the adapted model starts as the original."""
    weights = adapted_layers.originals(original)
    left = {name: weight - updates[name] for name, weight in weights.items()}
    size = max(float(weight.norm() / left[name].norm()) for name, weight in weights.items())
    yield off("residuals off", adapted_layers.bases(model), left, SAME * size)
    yield adapted_layers.weights_as(adapted_layers.applied(model), weights)
    yield from adapted_layers.trained(model, ("lora_A.", "lora_B."), NUMBERS)


def truncated(weight: Any, rank: int = RANK) -> tuple[Any, Any]:
    """The best approximation of a rank, and the singular values of it."""
    import torch

    left, values, right = torch.linalg.svd(weight, full_matrices=False)
    return left[:, :rank] * values[:rank] @ right[:rank], values[:rank]


def truncation_roundoff(weight: Any, rank: int = RANK) -> float:
    """The relative error (Frobenius norm) that rounding a weight once in float32 may cause in its best approximation.

    A decomposition that is computed is that of a weight that is off by some roundoffs. To first order, a change E of
    the weight moves the approximation by at most |E| s[r] / (s[r] - s[r + 1]), as its last singular vectors mix with
    the first that are left out (Wedin, Perturbation bounds in connection with singular value decomposition, 1972).
    """
    import torch

    values = torch.linalg.svdvals(weight)
    size = float(values.norm() / values[:rank].norm())
    gap = float(values[rank - 1] - values[rank])
    return tolerance.UNIT_ROUNDOFF["fp32"] * size * float(values[rank - 1]) / gap


def pissa_checks(original: Any, **other: Any) -> Iterator[Check]:
    """Check that s B A is the principal part, of which A and B each have the roots of the singular values.

    Singular vectors have no sign, so that A and B are compared by their products with themselves.
    """
    import torch

    model, updates = decomposition(original, "pissa", **other)
    principal = {name: truncated(weight) for name, weight in adapted_layers.originals(original).items()}
    roundoff = max(map(truncation_roundoff, adapted_layers.originals(original).values()))
    within = SAME + tolerance.SENSITIVITY_UNITS * roundoff
    yield off("principal parts off", updates, {name: part for name, (part, _) in principal.items()}, within)
    squares = {name: torch.diag(values) / SCALING for name, (_, values) in principal.items()}
    a, b = ({name: adapted_layers.parts(model, name, part) for name in TARGETS} for part in ("lora_A", "lora_B"))
    yield off("lora_A of its own off", {name: each @ each.T for name, each in a.items()}, squares)
    yield off("lora_B of its own off", {name: each.T @ each for name, each in b.items()}, squares)
    yield from residual_checks(model, original, updates)


@call(GROUP, phase=Phase.ADAPT, requires=("pissa_start",))
def pissa_start(ctx: Context) -> Iterator[Check]:
    """PiSSA takes the principal singular values and vectors, leaves the residual, and keeps their sum.

    https://arxiv.org/abs/2404.02948, section 3: A and B each get the roots of the singular values. alpha / r scales
    their product, so it divides the singular values.
    """
    del ctx
    yield from pissa_checks(adapted_layers.with_spectrum(0.7))


@call(GROUP, phase=Phase.ADAPT, requires=("pissa_start",))
def pissa_on_conv1d_start(ctx: Context) -> Iterator[Check]:
    """PiSSA on GPT-2's Conv1D layers decomposes their transposed weights."""
    del ctx
    yield from pissa_checks(adapted_layers.conv1d(), fan_in_fan_out=True)


@call(GROUP, phase=Phase.ADAPT, requires=("pissa_start",))
def pissa_niter_start(ctx: Context) -> Iterator[Check]:
    """PiSSA's fast decomposition (pissa_niter_4) leaves hardly more than the exact one, and keeps the sum."""
    del ctx
    original = adapted_layers.with_spectrum(0.7)
    model, updates = decomposition(original, "pissa_niter_4")
    for name, weight in adapted_layers.originals(original).items():
        least = float((weight - truncated(weight)[0]).norm())
        yield at_most("residual, in units of the smallest one", float((weight - updates[name]).norm()) / least, 1.05)
    yield from residual_checks(model, original, updates)


def olora_checks(original: Any, **other: Any) -> Iterator[Check]:
    """Check that B is an orthonormal basis of the first r columns, and A the first rows of the triangular factor."""
    import torch

    model, _ = decomposition(original, "olora", **other)
    weights = adapted_layers.originals(original)
    a, b = ({name: adapted_layers.parts(model, name, part) for name in TARGETS} for part in ("lora_A", "lora_B"))
    shapes = {name: f"{tuple(a[name].shape)} {tuple(b[name].shape)}" for name in TARGETS}
    expected = {name: f"{(RANK, into)} {(out, RANK)}" for name, (out, into) in SIZES.items()}
    yield equal("shapes of A and B", str(shapes), str(expected))
    if shapes != expected:
        return
    basis = {name: torch.linalg.qr(weight[:, :RANK])[0] for name, weight in weights.items()}
    yield off("lora_B of its own off", {name: each.T @ each for name, each in b.items()}, dict.fromkeys(b, identity()))
    below = sum(int((each[:, :RANK].tril(-1).abs() > SAME * each.abs().max()).sum()) for each in a.values())
    yield equal("numbers of lora_A below its diagonal", below, 0)
    onto = {name: basis[name] @ basis[name].T @ weight for name, weight in weights.items()}
    yield off("first columns and rows off", {name: b[name] @ a[name] for name in TARGETS}, onto)
    yield from residual_checks(model, original, {name: SCALING * b[name] @ a[name] for name in TARGETS})


def identity() -> Any:
    import torch

    return torch.eye(RANK, dtype=torch.float64)


@call(GROUP, phase=Phase.ADAPT, requires=("olora_start",))
def olora_start(ctx: Context) -> Iterator[Check]:
    """OLoRA takes the first columns and rows of a QR decomposition (https://arxiv.org/abs/2406.01775, section 3)."""
    del ctx
    yield from olora_checks(adapted_layers.base())


@call(GROUP, phase=Phase.ADAPT, requires=("olora_start",))
def olora_on_conv1d_start(ctx: Context) -> Iterator[Check]:
    """OLoRA on GPT-2's Conv1D layers decomposes their transposed weights, and the model equals its base."""
    del ctx
    yield from olora_checks(adapted_layers.conv1d(), fan_in_fan_out=True)


def replaced(ctx: Context, alpha: int) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Replace LoRA's start on a 4-bit base by LoftQ's: by layer B A, the quantisation error, and s B A."""
    from peft import get_peft_model, replace_lora_weights_loftq

    config = tiny_models.config(lora_alpha=alpha)
    model = get_peft_model(tiny_models.loaded(ctx, "nf4", dtype="fp32"), config)
    replace_lora_weights_loftq(model, model_path=str(architectures.plain_checkpoint(ctx.cache) / "model.safetensors"))
    products, errors = {}, {}
    for name, layer in adapter_start.decomposed_layers(model).items():
        original = architectures.linear_values(name, (layer.out_features, layer.in_features), Options())
        a, b = (each["default"].weight.detach().double().cpu() for each in (layer.lora_A, layer.lora_B))
        products[name], errors[name] = b @ a, (original - quantisation.dequantised(original, "nf4")).double()
    scaled = {name: alpha / tiny.RANK * product for name, product in products.items()}
    return products, errors, scaled


@call(GROUP, phase=Phase.ADAPT, requires=(*FOUR, "loftq_start"))
def loftq_replaced_start(ctx: Context) -> Iterator[Check]:
    """replace_lora_weights_loftq sets B A to the best approximation of the 4-bit base's error, as in one LoftQ step.

    https://arxiv.org/abs/2310.08659, algorithm 1. Here alpha = r.
    """
    products, errors, _ = replaced(ctx, tiny.RANK)
    best = {name: truncated(error, tiny.RANK)[0] for name, error in errors.items()}
    shares = [float((errors[name] - each).norm() / errors[name].norm()) for name, each in products.items()]
    least = [float((errors[name] - each).norm() / errors[name].norm()) for name, each in best.items()]
    worst = max(found / expected for found, expected in zip(shares, least, strict=True))
    yield at_most("error of a layer, in units of the smallest one", worst, 1 + SAME)
    yield at_most("error of a layer, in units of the one without LoftQ", max(shares), 0.9)


@call(GROUP, phase=Phase.ADAPT, requires=(*FOUR, "loftq_start"))
def loftq_replaced_scaled_start(ctx: Context) -> Iterator[Check]:
    """With alpha = 2 r, replace_lora_weights_loftq still brings the 4-bit base nearer to the original."""
    _, errors, scaled = replaced(ctx, 2 * tiny.RANK)
    shares = [float((errors[name] - each).norm() / errors[name].norm()) for name, each in scaled.items()]
    yield at_most("error of a layer, in units of the one without LoftQ", max(shares), 0.95)
