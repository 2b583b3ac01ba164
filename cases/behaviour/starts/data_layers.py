"""Builders for starts that are computed from data: two linear layers, rows for them, what rounding does to parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.behaviour.starts import adapted_layers
from cases.behaviour.starts.adapted_layers import SAME, SIZES, TARGETS
from cases.model import tiny
from cases.reference import tolerance

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def roundoff(values: Any, first: int, last: int) -> float:
    """What float32 may move the part of a matrix by whose singular values are these, relative to the part.

    A rounded matrix moves each singular vector by the roundoff of the whole matrix over the distance to the next
    singular value (Wedin, Perturbation bounds in connection with singular value decomposition, 1972).
    """
    gaps = (values[:-1] - values[1:]).abs()
    gap = float(gaps[max(first - 1, 0) : last].min())
    whole, part = float(values.norm()), float(values[first:last].norm())
    lost = tolerance.UNIT_ROUNDOFF["fp32"] * whole / part * (1 + float(values[first]) / gap)
    return SAME + tolerance.SENSITIVITY_UNITS * lost


def sides(model: Any, part: str) -> dict[str, Any]:
    return {name: adapted_layers.parts(model, name, part) for name in TARGETS}


def chain(rows: Any, weights: Mapping[str, Any], original: Any) -> Iterator[tuple[str, Any]]:
    """The input of each linear layer of a base, in float64."""
    for name in TARGETS:
        yield name, rows
        rows = rows @ weights[name].T + original.get_submodule(name).bias.detach().double()


def linear_only() -> Any:
    """Two linear layers, without the embedding, so that inputs fill all dimensions."""
    import torch

    made = torch.nn.Sequential()
    for name, (out, into) in SIZES.items():
        made.add_module(name, torch.nn.Linear(into, out))
    tiny.fill(made)
    return made.eval()


def rows(number: int) -> Any:
    return tiny.values(f"rows {number}", (600, SIZES["wide"][1]))


def spectral() -> Any:
    """The linear layers of the base with distinct singular values."""
    import torch

    made, source = linear_only(), adapted_layers.with_spectrum(0.9)
    with torch.no_grad():
        for name in TARGETS:
            made.get_submodule(name).weight.copy_(source.get_submodule(name).weight)
    return made


def identity(rank: int) -> Any:
    """The unit matrix, float64."""
    import torch

    return torch.eye(rank, dtype=torch.float64)
