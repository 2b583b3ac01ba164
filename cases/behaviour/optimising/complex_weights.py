"""torch's optimisers on complex weights, and on states that lack some parameters.

https://docs.pytorch.org/docs/stable/notes/autograd.html#autograd-for-complex-numbers: a complex number is a pair of
real ones, and so is its gradient. Under sharding, a rank may hold no number of a parameter, and so no state of it.
"""

from __future__ import annotations

import copy
from math import isnan
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.optimising.old_states import AFTER, BEFORE, WAYS, made, numbers_off, trained
from cases.behaviour.optimising.optimiser_steps import kinds, parameters
from cases.behaviour.optimising.tensors_together import DECAY, ROUNDOFF, RPROP, by_rule, gradient
from cases.behaviour.optimising.torch_optimisers import COUPLED, DECOUPLED, GROUP, OF_STEPS, OF_WEIGHT, STEPS
from cases.behaviour.optimising.update_rules import RATE
from cases.model import tiny
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cases.apply.context import Context
    from cases.behaviour.optimising.update_rules import Rule
    from cases.space.verdict import Check

PAIRS = {"matrix": (4, 3, 2), "vector": (5, 2)}  # the last dimension holds the real and the imaginary part


def stepped(kind: str, more: Mapping[str, Any]) -> dict[str, Any]:
    """Complex weights after all steps, as pairs of real numbers; a real one is beside them."""
    import torch

    held = {name: torch.nn.Parameter(torch.view_as_complex(tiny.values(name, shape))) for name, shape in PAIRS.items()}
    beside = torch.nn.Parameter(tiny.values("beside", (6,)))
    optimiser = getattr(torch.optim, kind)([*held.values(), beside], **{"lr": RATE, **more})
    for step in range(1, STEPS + 1):
        for name, parameter in held.items():
            parameter.grad = torch.view_as_complex(gradient(name, step, PAIRS[name]).float())
        beside.grad = gradient("beside", step, (6,)).float()
        optimiser.step()
    pairs = {name: torch.view_as_real(each.detach()) for name, each in held.items()}
    return {**pairs, "beside": beside.detach()}


def as_pairs(name: str, chosen: tuple[str, dict[str, Any], Rule], *, decoupled: bool) -> Iterator[Check]:
    kind, arguments, rule = chosen
    decay = 0.0 if kind == "Rprop" else DECAY
    for foreach in (False, True):
        more = {**arguments, **({"weight_decay": decay} if decay else {}), "foreach": foreach}
        worst = 0.0
        for key, weight in stepped(kind, more).items():
            shape = tuple(weight.shape)
            start = tiny.values(key, shape).double()
            wanted = by_rule(key, shape, rule, 1.0, decay, decoupled=decoupled)
            allowed = OF_STEPS * float((wanted - start).norm()) + OF_WEIGHT * STEPS * float(start.norm())
            off = float((weight.double() - wanted).norm()) / (ROUNDOFF["float32"] * allowed)
            worst = float("inf") if isnan(off) else max(worst, off)
        yield at_most(f"steps off, in units of what rounding may do, {name}, foreach={foreach}", worst, 1.0)


@call(GROUP, phase=Phase.OPTIMIZER)
def optimisers_of_complex_weights(_ctx: Context) -> Iterator[Check]:
    """Each optimiser of torch steps a complex weight as the pairs of its parts, one tensor at a time and together."""
    for name, chosen in {**COUPLED, **RPROP}.items():
        yield from as_pairs(name, chosen, decoupled=False)
    for name, chosen in DECOUPLED.items():
        yield from as_pairs(name, chosen, decoupled=True)


@call(GROUP, phase=Phase.RESUME)
def optimisers_from_states_of_some(_ctx: Context) -> Iterator[Check]:
    """A state without one of the parameters loads, and the others go on as they would have."""
    for name, (kind, more) in kinds().items():
        for title, way in WAYS.items():
            if kind == "Adafactor" and title == "together":
                continue  # it refuses that on CPUs before torch 2.6
            plain, again = parameters(), parameters()
            optimiser = made(kind, plain, **more, **way)
            trained(plain, optimiser, BEFORE)
            state = copy.deepcopy(optimiser.state_dict())
            state["state"].pop(1, None)
            for key, each in again.items():
                each.data.copy_(plain[key].detach())
            later = made(kind, again, **more, **way)
            later.load_state_dict(state)
            first, second = plain
            for held, steps in ((plain, optimiser), (again, later)):
                held[second].grad = None
                trained({first: held[first]}, steps, AFTER)
            off = numbers_off({first: again[first]}, {first: plain[first]})
            yield equal(f"numbers of weights that differ, {name}, {title}", off, 0)
