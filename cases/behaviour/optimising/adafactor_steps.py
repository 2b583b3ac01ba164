"""Adafactor of transformers by its paper: relative steps, warm-up, scaled parameters, momentum, clipping and decay.

https://arxiv.org/abs/1804.04235, algorithms 4 and 5.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "Optimisers"
STEPS = 4
EPS, DECAY, CLIP = (1e-30, 1e-3), -0.8, 1.0
SAME = 1e-6  # relative, of what four steps in float64 move; the step sizes are rounded


def drawn(shape: tuple[int, ...], seed: int) -> Any:
    import torch

    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2 - 1


def root_mean_square(each: Any) -> float:
    return float(each.square().mean().sqrt())


def by_paper(
    weight: Any, gradients: list[Any], rate: float | None, *, scaled: bool, warm: bool, beta: float | None, decay: float
) -> Any:
    """The weight after all steps, in float64."""
    import torch

    weight = weight.double()
    rows = columns = moments = first = torch.zeros(())
    for step, gradient in enumerate((each.double() for each in gradients), start=1):
        mixed = 1 - step**DECAY
        square = gradient.square() + EPS[0]
        if weight.dim() > 1:
            rows = mixed * rows + (1 - mixed) * square.mean(-1)
            columns = mixed * columns + (1 - mixed) * square.mean(-2)
            second = rows[..., :, None] * columns[..., None, :] / rows.mean(-1)[..., None, None]
        else:
            moments = mixed * moments + (1 - mixed) * square
            second = moments
        update = gradient / second.sqrt()
        update = update / max(1.0, root_mean_square(update) / CLIP)
        size = rate
        if size is None:
            size = min(1e-6 * step if warm else 1e-2, 1 / math.sqrt(step))
        if scaled:
            size *= max(EPS[1], root_mean_square(weight))
        update = update * size
        if beta is not None:
            first = beta * first + (1 - beta) * update
            update = first
        weight = weight - decay * size * weight - update
    return weight


@call(GROUP, phase=Phase.OPTIMIZER)
def adafactor_by_its_paper(_ctx: Context) -> Iterator[Check]:
    """Each setting of Adafactor moves vectors, matrices and stacks of matrices as the paper's algorithm does.

    The state holds rows and columns of matrices, and a first moment only if beta1 is set.
    """
    import torch
    from transformers import Adafactor

    shapes = ((6,), (4, 3), (2, 3, 5))
    for scaled, (rate, relative, warm) in itertools.product(
        (True, False), ((None, True, False), (None, True, True), (0.05, False, False))
    ):
        for beta, decay in ((None, 0.0), (0.9, 0.0), (None, 0.1)):
            starts = [drawn(shape, seed) for seed, shape in enumerate(shapes)]
            gradients = [
                [drawn(shape, 10 * step + seed) * 3 for step in range(1, STEPS + 1)]
                for seed, shape in enumerate(shapes)
            ]
            weights = [torch.nn.Parameter(each.clone()) for each in starts]
            made = Adafactor(
                weights,
                lr=rate,
                scale_parameter=scaled,
                relative_step=relative,
                warmup_init=warm,
                beta1=beta,
                weight_decay=decay,
            )
            for step in range(STEPS):
                for weight, of_weight in zip(weights, gradients, strict=True):
                    weight.grad = of_weight[step].clone()
                made.step()
            title = f"rate {rate}, warm {warm}, scaled {scaled}, beta1 {beta}, decay {decay}"
            for shape, weight, start, of_weight in zip(shapes, weights, starts, gradients, strict=True):
                wanted = by_paper(start, of_weight, rate, scaled=scaled, warm=warm, beta=beta, decay=decay)
                moved = float((wanted - start).norm())
                off = float((weight.detach().double() - wanted).norm()) / moved
                yield at_most(f"movement off, {len(shape)} dimensions, {title}", off, SAME)
                state = made.state[weight]
                named = ["exp_avg_sq"] if len(shape) == 1 else ["exp_avg_sq_col", "exp_avg_sq_row"]
                named = sorted([*named, "step", "RMS", *(["exp_avg"] if beta is not None else [])])
                yield equal(f"state, {len(shape)} dimensions, {title}", ", ".join(sorted(state)), ", ".join(named))
    for given in ({"lr": 0.1}, {"lr": 0.1, "warmup_init": True, "relative_step": False}):
        try:
            Adafactor([torch.nn.Parameter(torch.zeros(2))], **given)
        except ValueError:
            refused = True
        else:
            refused = False
        yield equal(f"refused, {', '.join(given)}", refused, bound=True)


@call(GROUP, phase=Phase.OPTIMIZER)
def adafactor_schedule(_ctx: Context) -> Iterator[Check]:
    """AdafactorSchedule shows the rates that Adafactor takes by itself: the initial one before, then relative steps."""
    import torch
    from transformers import Adafactor
    from transformers.optimization import AdafactorSchedule

    weight = torch.nn.Parameter(torch.full((3,), 2.0))
    made = Adafactor([weight], scale_parameter=False, relative_step=True, warmup_init=False)
    schedule = AdafactorSchedule(made, initial_lr=0.25)
    yield equal("rate before", str(schedule.get_lr()), "[0.25]")
    for step in range(1, 4):
        weight.grad = torch.ones(3)
        made.step()
        found = schedule.get_lr()[0]
        yield at_most(f"rate off, step {step}", abs(float(found) - min(1e-2, 1 / math.sqrt(step))), 1e-9)
