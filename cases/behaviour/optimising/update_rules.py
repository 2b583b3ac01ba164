"""The updates of torch's optimisers as torch documents them, in float64.

https://docs.pytorch.org/docs/stable/optim.html#algorithms. A rule returns the new weight and changes the state; the
coefficients are those that ``cases.behaviour.optimising.torch_optimisers`` passes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    State = dict[str, Any]
    Rule = Callable[[Any, Any, State, int], Any]  # weight, gradient with the decay that is part of it, state, step

RATE, EPS = 0.02, 1e-3
BETAS = (0.8, 0.9)
DAMPED, AHEAD, ALPHA = 0.25, 0.9, 0.7  # dampening, momentum, smoothing
RECTIFIED = 5.0  # RAdam's variance is tractable above this length of its average


def blend(state: State, name: str, value: Any, beta: float) -> Any:
    state[name] = beta * state.get(name, 0.0) + (1 - beta) * value
    return state[name]


def adam(weight: Any, gradient: Any, state: State, step: int) -> Any:
    first = blend(state, "first", gradient, BETAS[0]) / (1 - BETAS[0] ** step)
    second = blend(state, "second", gradient**2, BETAS[1]) / (1 - BETAS[1] ** step)
    return weight - RATE * first / (second.sqrt() + EPS)


def amsgrad(weight: Any, gradient: Any, state: State, step: int) -> Any:
    """The largest second moment so far divides (https://arxiv.org/abs/1904.09237, algorithm 2)."""
    first = blend(state, "first", gradient, BETAS[0]) / (1 - BETAS[0] ** step)
    second = blend(state, "second", gradient**2, BETAS[1])
    state["largest"] = second.maximum(state["largest"]) if "largest" in state else second
    return weight - RATE * first / ((state["largest"] / (1 - BETAS[1] ** step)).sqrt() + EPS)


def radam(weight: Any, gradient: Any, state: State, step: int) -> Any:
    """https://arxiv.org/abs/1908.03265, algorithm 2."""
    first = blend(state, "first", gradient, BETAS[0]) / (1 - BETAS[0] ** step)
    second = blend(state, "second", gradient**2, BETAS[1])
    longest = 2 / (1 - BETAS[1]) - 1
    length = longest - 2 * step * BETAS[1] ** step / (1 - BETAS[1] ** step)
    if length <= RECTIFIED:
        return weight - RATE * first
    share = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
    return weight - RATE * first * math.sqrt(share * (1 - BETAS[1] ** step)) / (second.sqrt() + EPS)


def nadam(weight: Any, gradient: Any, state: State, step: int) -> Any:
    """https://openreview.net/forum?id=OM0jvwB8jIp57ZJjtNEZ, with torch's momentum_decay of 0.004."""
    now, following = (BETAS[0] * (1 - 0.5 * 0.96 ** ((step + each) * 0.004)) for each in (0, 1))
    product = state["product"] = state.get("product", 1.0) * now
    first, second = blend(state, "first", gradient, BETAS[0]), blend(state, "second", gradient**2, BETAS[1])
    mixed = following * first / (1 - product * following) + (1 - now) * gradient / (1 - product)
    return weight - RATE * mixed / ((second / (1 - BETAS[1] ** step)).sqrt() + EPS)


def adamax(weight: Any, gradient: Any, state: State, step: int) -> Any:
    """https://arxiv.org/abs/1412.6980, algorithm 2."""
    first = blend(state, "first", gradient, BETAS[0])
    size = gradient.abs() + EPS
    state["largest"] = (BETAS[1] * state["largest"]).maximum(size) if "largest" in state else size
    return weight - RATE / (1 - BETAS[0] ** step) * first / state["largest"]


def adadelta(weight: Any, gradient: Any, state: State, _step: int) -> Any:
    """https://arxiv.org/abs/1212.5701, algorithm 1."""
    square = blend(state, "square", gradient**2, ALPHA)
    change = ((state.get("change", 0.0) + EPS) / (square + EPS)) ** 0.5 * gradient
    blend(state, "change", change**2, ALPHA)
    return weight - RATE * change


def adagrad(weight: Any, gradient: Any, state: State, step: int) -> Any:
    """With lr_decay=0.5 and initial_accumulator_value=0.1."""
    state["sum"] = state.get("sum", 0.1) + gradient**2
    return weight - RATE / (1 + (step - 1) * 0.5) * gradient / (state["sum"].sqrt() + EPS)


def rmsprop(weight: Any, gradient: Any, state: State, _step: int) -> Any:
    return weight - RATE * gradient / (blend(state, "square", gradient**2, ALPHA).sqrt() + EPS)


def centred_rmsprop(weight: Any, gradient: Any, state: State, _step: int) -> Any:
    """With momentum."""
    square, mean = blend(state, "square", gradient**2, ALPHA), blend(state, "mean", gradient, ALPHA)
    state["first"] = AHEAD * state.get("first", 0.0) + gradient / ((square - mean**2).sqrt() + EPS)
    return weight - RATE * state["first"]


def asgd(weight: Any, gradient: Any, state: State, step: int) -> Any:
    """Averaged gradient descent with lambd=0.01, alpha=0.75 and t0=2; ``average`` holds the averaged weight."""
    rate = RATE / (1 + 0.01 * RATE * (step - 1)) ** 0.75
    weight = weight * (1 - 0.01 * rate) - rate * gradient
    share = 1 / max(1, step - 1 - 2)
    state["average"] = state.get("average", 0.0) + share * (weight - state.get("average", 0.0))
    return weight


def rprop(weight: Any, gradient: Any, state: State, _step: int) -> Any:
    """With etas (0.5, 1.2) and step sizes from 1e-3 to 0.03; a change of the sign skips the number."""
    agrees = (gradient * state["last"]).sign() if "last" in state else 0 * gradient
    factor = 1 + 0.2 * (agrees > 0).double() - 0.5 * (agrees < 0).double()
    state["size"] = (state.get("size", RATE) * factor).clamp(1e-3, 0.03)
    state["last"] = gradient * (agrees >= 0)
    return weight - state["size"] * state["last"].sign()


def sgd(weight: Any, gradient: Any, _state: State, _step: int) -> Any:
    return weight - RATE * gradient


def momentum(weight: Any, gradient: Any, state: State, _step: int) -> Any:
    """With dampening, which the first step does not know."""
    state["first"] = AHEAD * state["first"] + (1 - DAMPED) * gradient if "first" in state else gradient
    return weight - RATE * state["first"]


def nesterov(weight: Any, gradient: Any, state: State, _step: int) -> Any:
    state["first"] = AHEAD * state["first"] + gradient if "first" in state else gradient
    return weight - RATE * (gradient + AHEAD * state["first"])
