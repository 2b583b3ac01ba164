"""torch's optimisers with foreach=True, the default on GPUs, on whatever tensors a group has: one, many, two dtypes.

https://docs.pytorch.org/docs/stable/optim.html#algorithms: foreach changes how fast a step is, and not the step.
"""

from __future__ import annotations

import functools
import itertools
from math import isnan
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.optimising import update_rules
from cases.behaviour.optimising.torch_optimisers import COUPLED, DECOUPLED, GROUP, OF_STEPS, OF_WEIGHT, STEPS
from cases.behaviour.optimising.update_rules import RATE
from cases.model import tiny
from cases.space.verdict import Phase, at_most

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cases.apply.context import Context
    from cases.behaviour.optimising.update_rules import Rule
    from cases.space.verdict import Check

    Group = Sequence[tuple[tuple[int, ...], str]]  # the shape and the dtype of each tensor of a group

ROUNDOFF = {"float32": 2.0**-24, "float64": 2.0**-53}
# The groups of an optimiser. A prompt is one tensor; a model has some of single numbers, and may have two dtypes.
GROUPS: Mapping[str, Sequence[Group]] = {
    "one tensor": [[((5, 7), "float32")]],
    "one number": [[((1,), "float32")]],
    "one tensor in each of two groups": [[((6,), "float32")], [((4, 3), "float32")]],
    "three and one": [[((5, 7), "float32"), ((6,), "float32"), ((1,), "float32")], [((2, 3, 2), "float32")]],
    "two dtypes": [[((5, 7), "float32"), ((6,), "float64"), ((3,), "float32"), ((2, 2), "float64")]],
}
RPROP: Mapping[str, tuple[str, dict[str, Any], Rule]] = {
    "Rprop": ("Rprop", {"etas": (0.5, 1.2), "step_sizes": (1e-3, 0.03)}, update_rules.rprop),
}
DECAY = 0.1
SINGLE = ("ASGD", "NAdam")  # their states keep factors of all numbers in float32


@functools.cache
def gradient(name: str, step: int, shape: tuple[int, ...]) -> Any:
    """A gradient that changes its sign in some steps, float64; callers change copies alone."""
    return (tiny.values(f"{name} {step}", shape) * (1 + step**0.5 / 10) + 0.05 * (step % 3 - 1)).double()


@functools.cache
def by_rule(name: str, shape: tuple[int, ...], rule: Rule, sign: float, decay: float, *, decoupled: bool) -> Any:
    weight, state = tiny.values(name, shape).double(), {}  # type: ignore[var-annotated]
    for step in range(1, STEPS + 1):
        wanted = sign * gradient(name, step, shape)
        weight = weight * (1 - RATE * decay) if decoupled else weight
        weight = rule(weight, wanted if decoupled else wanted + decay * weight, state, step)
    return weight


def stepped(kind: str, groups: Sequence[Group], more: Mapping[str, Any]) -> dict[str, Any]:
    """The weights of all groups after all steps, by the numbers of their group and place."""
    import torch

    found: dict[str, Any] = {}
    given: list[dict[str, Any]] = []
    for number, group in enumerate(groups):
        given.append({"params": []})
        for place, (shape, dtype) in enumerate(group):
            name = f"{number}.{place}"
            found[name] = torch.nn.Parameter(tiny.values(name, shape).to(getattr(torch, dtype)))
            given[-1]["params"].append(found[name])
    made = getattr(torch.optim, kind)(given, **{"lr": RATE, **more})
    for step in range(1, STEPS + 1):
        for name, parameter in found.items():
            parameter.grad = gradient(name, step, tuple(parameter.shape)).to(parameter.dtype, copy=True)
        made.step()
    return {name: parameter.detach() for name, parameter in found.items()}


def together(name: str, chosen: tuple[str, dict[str, Any], Rule], *, decoupled: bool) -> Iterator[Check]:
    """Step every kind of groups in both directions, and compare with the rule by what rounding may do."""
    kind, arguments, rule = chosen
    decays = {} if kind == "Rprop" else {"weight_decay": DECAY}
    for (title, groups), maximize in itertools.product(GROUPS.items(), (False, True)):
        more = {**arguments, **decays, "foreach": True, "maximize": maximize}
        worst = 0.0
        for key, weight in stepped(kind, groups, more).items():
            sign, decay = -1.0 if maximize else 1.0, decays.get("weight_decay", 0.0)
            wanted = by_rule(key, tuple(weight.shape), rule, sign, decay, decoupled=decoupled)
            start = tiny.values(key, tuple(weight.shape)).double()
            allowed = OF_STEPS * float((wanted - start).norm()) + OF_WEIGHT * STEPS * float(start.norm())
            roundoff = ROUNDOFF["float32" if kind in SINGLE else str(weight.dtype).rpartition(".")[2]]
            off = float((weight.double() - wanted).norm()) / (roundoff * allowed)
            worst = float("inf") if isnan(off) else max(worst, off)
        yield at_most(f"steps off, in units of what rounding may do, {name}, {title}, maximize={maximize}", worst, 1.0)


@call(GROUP, phase=Phase.OPTIMIZER)
def optimisers_of_any_tensors(_ctx: Context) -> Iterator[Check]:
    """foreach=True steps one tensor, many, several groups and two dtypes by each optimiser's formula, up and down."""
    for name, chosen in {**COUPLED, **RPROP}.items():
        yield from together(name, chosen, decoupled=False)
    for name, chosen in DECOUPLED.items():
        yield from together(name, chosen, decoupled=True)
