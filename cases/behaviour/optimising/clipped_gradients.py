"""Clipping the gradients of one process: norms of every kind, values, refused sums that are not finite.

https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.model import tiny
from cases.reference import tolerance
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Clipping gradients"
SHAPES = ((5, 7), (6,), (2, 3, 4), ())
NORMS = (0.5, 1.0, 2.0, 3.0, math.inf)
SHARES = (0.0, 0.25, 0.999, 1.5)
SAME = 1e-5


def parameters(*, dtypes: tuple[str, ...] = ("float32",)) -> list[Any]:
    """Parameters with gradients; the last one has none."""
    import torch

    found = []
    for number, shape in enumerate(SHAPES):
        dtype = getattr(torch, dtypes[number % len(dtypes)])
        each = torch.nn.Parameter(torch.zeros(shape, dtype=dtype))
        each.grad = tiny.values(f"gradient {number}", shape).to(dtype)
        found.append(each)
    return [*found, torch.nn.Parameter(torch.zeros(3))]


def exact(chosen: list[Any]) -> list[Any]:
    return [each.grad.double().clone() for each in chosen if each.grad is not None]


def norm_of(gradients: list[Any], kind: float) -> float:
    """The norm of all entries as one vector, by its definition."""
    entries = [abs(entry) for each in gradients for entry in each.flatten().tolist()]
    return max(entries) if math.isinf(kind) else float(sum(entry**kind for entry in entries) ** (1 / kind))


def clipped_off(title: str, chosen: list[Any], before: list[Any], factor: float, within: float) -> Iterator[Check]:
    pairs = zip(exact(chosen), before, strict=True)
    worst = max(float((one - factor * other).norm() / other.norm()) for one, other in pairs)
    yield at_most(f"gradients off, {title}", worst, within)


@call(GROUP, phase=Phase.OPTIMIZER)
def clipped_norms(ctx: Context) -> Iterator[Check]:
    """clip_grad_norm_ scales by the bound over the norm of all gradients, of several dtypes, also of one tensor."""
    import torch

    del ctx
    mixed = ("float32", "bfloat16", "float64")
    for dtypes, within in ((("float32",), SAME), (mixed, 2 * tolerance.UNIT_ROUNDOFF["bf16"])):
        for kind in NORMS:
            for share in SHARES:
                for foreach in (None, False, True):
                    chosen = parameters(dtypes=dtypes)
                    before = exact(chosen)
                    total = norm_of(before, kind)
                    bound = share * total
                    found = torch.nn.utils.clip_grad_norm_(chosen, bound, kind, foreach=foreach)
                    title = f"norm {kind}, share {share}, foreach={foreach}, {len(dtypes)} dtypes"
                    yield at_most(f"norm off, {title}", abs(float(found) / total - 1), within)
                    yield from clipped_off(title, chosen, before, min(1.0, bound / (total + 1e-6)), within)
    single = parameters()[0]
    before = exact([single])
    found = torch.nn.utils.clip_grad_norm_(single, 0.1)
    yield at_most("norm of one tensor off", abs(float(found) / norm_of(before, 2.0) - 1), SAME)
    yield from clipped_off("one tensor", [single], before, 0.1 / (norm_of(before, 2.0) + 1e-6), SAME)
    yield equal(
        "norm of no gradients", float(torch.nn.utils.clip_grad_norm_([torch.nn.Parameter(torch.ones(2))], 1.0)), 0.0
    )


@call(GROUP, phase=Phase.OPTIMIZER)
def clipped_values(ctx: Context) -> Iterator[Check]:
    """clip_grad_value_ moves each entry into the bounds, and leaves the others as they are."""
    import torch

    del ctx
    for foreach in (None, False, True):
        for bound in (0.0, 0.05, 0.2, 10.0):
            chosen = parameters(dtypes=("float32", "bfloat16"))
            before = exact(chosen)
            torch.nn.utils.clip_grad_value_(chosen, bound, foreach=foreach)
            unlike = 0
            for found, parameter, each in zip(exact(chosen), chosen, before, strict=False):
                limit = float(torch.tensor(bound, dtype=parameter.dtype))
                unlike += int((found != each.clamp(-limit, limit)).sum())
            yield equal(f"entries off, foreach={foreach}, bound {bound}", unlike, 0)


@call(GROUP, phase=Phase.OPTIMIZER)
def refused_norms(ctx: Context) -> Iterator[Check]:
    """With error_if_nonfinite, a norm that is not finite raises and changes nothing; without, it scales."""
    import torch

    del ctx
    for kind in (2.0, math.inf):
        for value in (float("nan"), float("inf")):
            chosen = parameters()
            chosen[1].grad[2] = value
            before = [each.grad.clone() for each in chosen[:-1]]
            try:
                torch.nn.utils.clip_grad_norm_(chosen, 0.1, kind, error_if_nonfinite=True)
            except RuntimeError:
                answer = "refused"
            else:
                answer = "accepted"
            title = f"norm {kind}, {value}"
            yield equal(title, answer, "refused")
            same = all(one.equal(other.grad) or math.isnan(value) for one, other in zip(before, chosen, strict=False))
            yield equal(f"gradients stay, {title}", same, bound=True)
            found = torch.nn.utils.clip_grad_norm_(chosen, 0.1, kind)
            yield equal(f"finite norm, {title}", bool(torch.isfinite(found)), bound=False)


@call(GROUP, phase=Phase.OPTIMIZER, requires=("norm_in_two_steps",))
def norms_in_two_steps(ctx: Context) -> Iterator[Check]:
    """get_total_norm and clip_grads_with_norm_ together clip as clip_grad_norm_, also by a norm of more tensors."""
    import torch

    del ctx
    for kind in NORMS:
        chosen = parameters()
        before = exact(chosen)
        gradients = [each.grad for each in chosen if each.grad is not None]
        found = torch.nn.utils.get_total_norm(gradients, kind)
        total = norm_of(before, kind)
        yield at_most(f"norm off, {kind}", abs(float(found) / total - 1), SAME)
        torch.nn.utils.clip_grads_with_norm_(chosen, 0.3 * total, 2 * found)
        yield from clipped_off(f"norm {kind}, twice the norm", chosen, before, 0.15, SAME)
