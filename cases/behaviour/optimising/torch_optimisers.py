"""torch's optimisers by their documented formulas: every class, one tensor at a time, in groups and fused."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.optimising import update_rules
from cases.behaviour.optimising.update_rules import AHEAD, ALPHA, BETAS, DAMPED, EPS, RATE
from cases.model import tiny
from cases.reference import tolerance
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cases.apply.context import Context
    from cases.behaviour.optimising.update_rules import Rule
    from cases.space.verdict import Check

GROUP = "torch's optimisers"
STEPS = 9  # RAdam rectifies from the sixth on; ASGD averages from the fourth on
SHAPES = {"matrix": (5, 7), "vector": (6,)}
# Allowed distances, in units of float32's roundoff: a step is rounded some tens of times, and the weight that it
# changes up to four times.
OF_STEPS, OF_WEIGHT = 64.0, 4.0
DECAYS = (0.0, 0.1, 1.0)
ADAMS: dict[str, Any] = {"betas": BETAS, "eps": EPS}

# The class, its arguments, its rule. A coupled decay is part of the gradient.
COUPLED: Mapping[str, tuple[str, dict[str, Any], Rule]] = {
    "Adam": ("Adam", ADAMS, update_rules.adam),
    "Adam, amsgrad": ("Adam", {**ADAMS, "amsgrad": True}, update_rules.amsgrad),
    "RAdam": ("RAdam", ADAMS, update_rules.radam),
    "NAdam": ("NAdam", ADAMS, update_rules.nadam),
    "Adamax": ("Adamax", ADAMS, update_rules.adamax),
    "Adadelta": ("Adadelta", {"rho": ALPHA, "eps": EPS}, update_rules.adadelta),
    "Adagrad": ("Adagrad", {"lr_decay": 0.5, "initial_accumulator_value": 0.1, "eps": EPS}, update_rules.adagrad),
    "RMSprop": ("RMSprop", {"alpha": ALPHA, "eps": EPS}, update_rules.rmsprop),
    "RMSprop, centered": (
        "RMSprop",
        {"alpha": ALPHA, "eps": EPS, "momentum": AHEAD, "centered": True},
        update_rules.centred_rmsprop,
    ),
    "ASGD": ("ASGD", {"lambd": 0.01, "alpha": 0.75, "t0": 2}, update_rules.asgd),
    "SGD": ("SGD", {}, update_rules.sgd),
    "SGD, momentum": ("SGD", {"momentum": AHEAD, "dampening": DAMPED}, update_rules.momentum),
    "SGD, nesterov": ("SGD", {"momentum": AHEAD, "nesterov": True}, update_rules.nesterov),
}
# A decoupled decay multiplies the weight by 1 - rate * decay before the step.
DECOUPLED: Mapping[str, tuple[str, dict[str, Any], Rule]] = {
    "AdamW": ("AdamW", ADAMS, update_rules.adam),
    "AdamW, amsgrad": ("AdamW", {**ADAMS, "amsgrad": True}, update_rules.amsgrad),
    "RAdam, decoupled": ("RAdam", {**ADAMS, "decoupled_weight_decay": True}, update_rules.radam),
    "NAdam, decoupled": ("NAdam", {**ADAMS, "decoupled_weight_decay": True}, update_rules.nadam),
}
FUSED = ("Adam", "Adam, amsgrad", "AdamW", "AdamW, amsgrad", "Adagrad", "SGD", "SGD, momentum", "SGD, nesterov")


@functools.cache
def gradient(name: str, step: int) -> Any:
    """A gradient that changes its sign in some steps; no two are equal. Callers change copies alone."""
    return tiny.values(f"{name} {step}", SHAPES[name]) * (1 + step**0.5 / 10) + 0.05 * (step % 3 - 1)


def starts() -> dict[str, Any]:
    return {name: tiny.values(name, shape) for name, shape in SHAPES.items()}


@functools.cache
def by_rule(name: str, rule: Rule, decay: float, sign: float, *, decoupled: bool) -> Any:
    """A weight after all steps, float64."""
    weight = starts()[name].double()
    state: dict[str, Any] = {}
    for step in range(1, STEPS + 1):
        wanted = sign * gradient(name, step).double()
        weight = weight * (1 - RATE * decay) if decoupled else weight
        weight = rule(weight, wanted if decoupled else wanted + decay * weight, state, step)
    return weight


def by_torch(kind: str, **more: Any) -> tuple[dict[str, Any], Any]:
    """The weights after all steps, and the optimiser. One parameter has no gradient, and stays as it is."""
    import torch

    found = {name: torch.nn.Parameter(start) for name, start in starts().items()}
    unused = torch.nn.Parameter(torch.ones(2))
    made = getattr(torch.optim, kind)([*found.values(), unused], **{"lr": RATE, **more})
    for step in range(1, STEPS + 1):
        for name, parameter in found.items():
            parameter.grad = gradient(name, step).clone()
        made.step()
    return {**found, "unused": unused}, made


def compared(title: str, kind: str, rule: Rule, more: Mapping[str, Any], *, decoupled: bool = False) -> Check:
    """Compare all weights with the rule, relative to the distance that they moved."""
    import torch

    found, _ = by_torch(kind, **more)
    sign = -1.0 if more.get("maximize") else 1.0
    errors = [float((found["unused"].detach() - torch.ones(2)).norm())]
    for name in SHAPES:
        wanted = by_rule(name, rule, more.get("weight_decay", 0.0), sign, decoupled=decoupled)
        errors.append(float((found[name].detach().double() - wanted).norm()) / allowed(name, wanted))
    return at_most(f"steps off, in units of what rounding may do, {title}", max(errors), 1.0)


def allowed(name: str, wanted: Any) -> float:
    """How far rounding in float32 may move a weight in all steps."""
    start = starts()[name].double()
    moved = OF_STEPS * float((wanted - start).norm()) + OF_WEIGHT * STEPS * float(start.norm())
    return tolerance.UNIT_ROUNDOFF["fp32"] * moved


def every_way(name: str, *, decoupled: bool) -> Iterator[Check]:
    """One tensor at a time with every decay and in both directions; then all tensors together, and fused."""
    kind, arguments, rule = (DECOUPLED if decoupled else COUPLED)[name]
    for decay in DECAYS:
        more = {**arguments, "weight_decay": decay, "foreach": False}
        yield compared(f"{name}, decay {decay}", kind, rule, more, decoupled=decoupled)
    for title, chosen in (("foreach", {"foreach": True}), ("maximize", {"maximize": True, "foreach": False})):
        more = {**arguments, "weight_decay": 0.1, **chosen}
        yield compared(f"{name}, {title}", kind, rule, more, decoupled=decoupled)


@call(GROUP, phase=Phase.OPTIMIZER)
def torch_coupled_optimisers(_ctx: Context) -> Iterator[Check]:
    """Each optimiser of torch with weight_decay in the gradient follows its formula, also with foreach and maximize."""
    for name in COUPLED:
        yield from every_way(name, decoupled=False)


@call(GROUP, phase=Phase.OPTIMIZER)
def torch_decoupled_optimisers(_ctx: Context) -> Iterator[Check]:
    """Each optimiser of torch with decoupled weight_decay steps by its formula, also with foreach and maximize."""
    for name in DECOUPLED:
        yield from every_way(name, decoupled=True)


@call(GROUP, phase=Phase.OPTIMIZER)
def torch_sign_optimisers(_ctx: Context) -> Iterator[Check]:
    """Rprop steps by the signs of the gradient, one tensor at a time and together."""
    for foreach in (False, True):
        for maximize in (False, True):
            more = {"etas": (0.5, 1.2), "step_sizes": (1e-3, 0.03), "foreach": foreach, "maximize": maximize}
            yield compared(f"Rprop, foreach={foreach}, maximize={maximize}", "Rprop", update_rules.rprop, more)


@call(GROUP, phase=Phase.OPTIMIZER, requires=("fused_optimisers",))
def torch_fused_optimisers(_ctx: Context) -> Iterator[Check]:
    """The fused optimisers of torch step by the formula of the others."""
    for name in FUSED:
        decoupled = name in DECOUPLED
        kind, arguments, rule = (DECOUPLED if decoupled else COUPLED)[name]
        for title, chosen in (("fused", {}), ("fused, maximize", {"maximize": True})):
            more = {**arguments, "weight_decay": 0.1, "fused": True, **chosen}
            yield compared(f"{name}, {title}", kind, rule, more, decoupled=decoupled)


@call(GROUP, phase=Phase.OPTIMIZER)
def torch_average_of_asgd(_ctx: Context) -> Iterator[Check]:
    """ASGD keeps the average of the weights from t0 on in its state."""
    found, made = by_torch("ASGD", lambd=0.01, alpha=0.75, t0=2, weight_decay=0.1)
    for name in SHAPES:
        weight, state = starts()[name].double(), {}  # type: ignore[var-annotated]
        for step in range(1, STEPS + 1):
            wanted = gradient(name, step).double() + 0.1 * weight
            weight = update_rules.asgd(weight, wanted, state, step)
        kept = made.state[found[name]]["ax"].double()
        off = float((kept - state["average"]).norm()) / allowed(name, weight)
        yield at_most(f"average off, in units of what rounding may do, {name}", off, 1.0)


def lost_in(groups: Any, wanted: list[dict[str, Any]]) -> list[str]:
    """The arguments that parameter groups do not have."""
    return [
        name
        for group, expected in zip(groups, wanted, strict=True)
        for name, value in expected.items()
        if group.get(name) != value
    ]


@call(GROUP, phase=Phase.SAVE)
def torch_optimiser_settings(_ctx: Context) -> Iterator[Check]:
    """state_dict of an optimiser has every argument that it was made with, in each group; load_state_dict takes them.

    https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.state_dict.html
    """
    import torch

    for name, (kind, arguments, _) in {**COUPLED, **DECOUPLED}.items():
        shared = {"lr": RATE, "weight_decay": 0.1, "maximize": True, "foreach": False, "differentiable": True}
        known = inspect.signature(getattr(torch.optim, kind).__init__).parameters
        given = {**shared, **({"capturable": True} if "capturable" in known else {}), **arguments}
        groups = [{"params": [torch.nn.Parameter(torch.ones(2))]} for _ in range(2)]
        groups[1]["lr"] = 2 * RATE  # type: ignore[assignment]
        state = getattr(torch.optim, kind)(groups, **given).state_dict()
        wanted = [given, {**given, "lr": 2 * RATE}]
        yield equal(f"arguments lost, {name}", ", ".join(lost_in(state["param_groups"], wanted)) or "none", "none")
        again = getattr(torch.optim, kind)([{"params": [torch.nn.Parameter(torch.ones(2))]} for _ in range(2)])
        again.load_state_dict(state)
        yield equal(f"arguments not loaded, {name}", ", ".join(lost_in(again.param_groups, wanted)) or "none", "none")
