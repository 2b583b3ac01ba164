"""LoftQ's start: a quantised weight, and matrices that make up for its error, by turns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.starts import adapted_layers
from cases.behaviour.starts.adapted_layers import RANK, TARGETS
from cases.reference import quantisation
from cases.reference.tolerance import relative
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Start values computed from the base"
SIZES = {"wide": (96, 192), "tall": (224, 128)}  # rows of whole blocks
FEW = 0.002  # the share of numbers that lie halfway between two levels after a decomposition in float32
SAME = 1e-4  # relative: a decomposition in float32


def by_turns(weight: Any, turns: int) -> Any:
    """The quantised weight after this many turns of algorithm 1, float64."""
    import torch

    low = torch.zeros_like(weight)
    for _ in range(turns):
        quantised = quantisation.dequantised((weight - low).float(), "nf4").double()
        low = best(weight - quantised)
    return quantised


def best(error: Any) -> Any:
    """The best approximation by a product of the adapter's rank."""
    import torch

    left, values, right = torch.linalg.svd(error, full_matrices=False)
    return left[:, :RANK] * values[:RANK] @ right[:RANK]


@call(GROUP, phase=Phase.ADAPT, requires=("4bit", "loftq_scipy", "loftq_start"))
def loftq_start_by_turns(ctx: Context) -> Iterator[Check]:
    """LoftQ quantises what its product leaves, and decomposes what that loses, loftq_iter times.

    https://arxiv.org/abs/2310.08659, algorithm 1. Singular values are shared by both matrices. Here alpha = r.
    """
    from peft import LoftQConfig

    original = adapted_layers.base(SIZES).to(ctx.place.device)
    errors = {}
    for turns in (1, 2, 4):
        chosen = LoftQConfig(loftq_bits=4, loftq_iter=turns)
        more: dict[str, Any] = {"lora_alpha": RANK, "init_lora_weights": "loftq", "loftq_config": chosen}
        model = adapted_layers.adapted(original, adapted_layers.lora(**more)).cpu()
        held = adapted_layers.bases(model)
        for name, weight in adapted_layers.originals(original.cpu()).items():
            title = f"{name}, loftq_iter={turns}"
            wanted = by_turns(weight, turns)
            share = float(((held[name] - wanted).abs() > SAME * weight.abs().max()).double().mean())
            yield at_most(f"share of quantised weights off, {title}", share, FEW)
            a, b = (adapted_layers.parts(model, name, part) for part in ("lora_A", "lora_B"))
            yield at_most(f"product off, {title}", relative(b @ a, best(weight - held[name])), SAME)
            yield at_most(f"sizes of both matrices apart, {title}", relative(a @ a.T, b.T @ b), SAME)
            errors[name, turns] = float((weight - held[name] - b @ a).norm())
        original = original.to(ctx.place.device)
    fewer = {name: errors[name, 4] < errors[name, 1] for name in TARGETS}
    yield equal("four turns leave less than one", str(fewer), str(dict.fromkeys(TARGETS, True)))
