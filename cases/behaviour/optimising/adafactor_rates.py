"""The schedule of transformers that shows the rate which Adafactor takes by itself."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from cases.api import call
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "Learning-rate schedules"


@call(GROUP, phase=Phase.OPTIMIZER, requires=("adafactor_rates",))
def adafactor_rates(_ctx: Context) -> Iterator[Check]:
    """AdafactorSchedule shows the relative rate that Adafactor takes in each step, and initial_lr before the first.

    https://arxiv.org/abs/1804.04235, algorithm 4 and section 8: min(0.01, 1 / sqrt(t)) times the root mean square of
    the weight, at least 0.001.
    """
    import torch
    from transformers.optimization import Adafactor, AdafactorSchedule

    weight = torch.nn.Parameter(torch.full((2, 3), 0.5))
    optimiser = Adafactor([weight], scale_parameter=True, relative_step=True, warmup_init=False, lr=None)
    schedule = AdafactorSchedule(optimiser, initial_lr=0.125)
    yield equal("rate before the first step", str(schedule.get_lr()), "[0.125]")
    for step in range(1, 4):
        size = max(1e-3, float(weight.detach().square().mean().sqrt()))
        weight.grad = torch.full_like(weight, 0.3)
        optimiser.step()
        found = [float(each) for each in schedule.get_lr()]
        exact = min(1e-2, 1 / math.sqrt(step)) * size
        yield at_most(f"rate off, step {step}", abs(found[0] / exact - 1), 1e-6)
        yield equal(f"rates, step {step}", len(found), 1)
