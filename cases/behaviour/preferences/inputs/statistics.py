"""Statistics and bounds that TRL's trainers keep: running moments, and the largest exponent of a dtype."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

from cases.api import call
from cases.behaviour.parallel import offloading
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "Rows of TRL"
SAME = 1e-5  # relative: sums in float32


@call(GROUP, phase=Phase.FORWARD, requires=("running_moments",))
def running_moments(ctx: Context) -> Iterator[Check]:
    """RunningMoments has mean, variance and deviation of all numbers so far; its file restores them.

    The variance is over all numbers, the deviation over one less. An update returns those of its own numbers.
    """
    import torch
    from trl.trainer.utils import RunningMoments

    made = offloading.alone(ctx)
    moments = RunningMoments(made)
    seen = torch.empty(0, dtype=torch.float64)
    for turn, size in enumerate((4, 2, 7)):
        own = torch.linspace(-1.5, 2.5 + turn, size) ** 2 + turn
        seen = torch.cat([seen, own.double()])
        mean, deviation = moments.update(own)
        wanted = {
            "mean": (moments.mean, seen.mean()),
            "variance": (moments.var, seen.var(unbiased=False)),
            "deviation": (moments.std, seen.std()),
            "count": (moments.count, len(seen)),
            "returned mean": (mean, own.double().mean()),
            "returned deviation": (deviation, own.double().std()),
        }
        for name, (found, exact) in wanted.items():
            yield at_most(f"{name} off, update {turn}", abs(float(found) / float(exact) - 1), SAME)
    path = ctx.kept / "moments.json"
    moments.save_to_json(str(path))
    held = json.loads(path.read_text())
    yield equal("fields of the file", ", ".join(sorted(held)), "count, mean, std, var")
    again = RunningMoments.load_from_json(made, str(path))
    same = all(getattr(again, name) == getattr(moments, name) for name in held)
    yield equal("moments of the file", same, bound=True)


@call(GROUP, phase=Phase.FORWARD, requires=("exponent_caps",))
def exponent_caps(_ctx: Context) -> Iterator[Check]:
    """cap_exp exponentiates numbers up to the logarithm of the dtype's largest, or up to a cap, and never overflows.

    "For float32 data type, the maximum exponent value is 88.7228 to 4 decimal points."
    """
    import torch
    from trl.trainer.utils import cap_exp, get_exp_cap

    for name in ("float32", "bfloat16"):
        dtype = getattr(torch, name)
        largest = math.log(torch.finfo(dtype).max)
        found = get_exp_cap(torch.zeros(1, dtype=dtype))
        yield at_most(f"cap over the largest exponent, {name}", float(found) - largest, 0.5 * (name != "float32"))
        yield at_most(
            f"cap below the largest exponent, {name}", largest - float(found), 2e-4 if name == "float32" else 0.5
        )
    numbers = torch.tensor([-3.0, 0.0, 2.0, 80.0, 95.0, 1000.0])
    found = cap_exp(numbers)
    wanted = numbers.double().clamp(max=88.7228).exp()
    yield at_most("exponentials off", float((found.double() / wanted - 1).abs().max()), 1e-4)
    yield equal("exponentials that overflow", int(found.isinf().sum()), 0)
    capped = cap_exp(numbers, cap=1.5)
    yield at_most("exponentials off, a cap", float((capped - numbers.clamp(max=1.5).exp()).abs().max()), 1e-5)


@call(GROUP, phase=Phase.FORWARD, requires=("exponent_caps",))
def exponent_caps_in_float16(_ctx: Context) -> Iterator[Check]:
    """cap_exp exponentiates numbers of float16 up to 11, whose exponential float16 still holds, and never overflows."""
    import torch
    from trl.trainer.utils import cap_exp, get_exp_cap

    cap = float(get_exp_cap(torch.zeros(1, dtype=torch.float16)))
    yield at_most("cap over the largest exponent", cap - math.log(torch.finfo(torch.float16).max), 0.01)
    found = cap_exp(torch.tensor([1.0, 11.0, 12.0, 80.0], dtype=torch.float16))
    yield equal("exponentials that overflow", int(found.isinf().sum()), 0)
