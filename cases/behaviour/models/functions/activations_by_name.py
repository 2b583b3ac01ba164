"""The activations that a configuration names, by their formulas.

https://github.com/huggingface/transformers/blob/main/src/transformers/activations.py lists the names; the formulas are
those of GELU (https://arxiv.org/abs/1606.08415), Mish (https://arxiv.org/abs/1908.08681), squared ReLU
(https://arxiv.org/abs/2109.08668), Laplace (https://arxiv.org/abs/2209.10655) and torch's documentation.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from cases.api import call
from cases.space.verdict import Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Models"
SAME = 2e-6  # of values below 20
POINTS = (-20.0, -6.5, -3.5, -3.0, -1.0, -0.5, -0.125, 0.0, 0.25, 0.75, 1.0, 2.5, 3.0, 5.5, 6.5, 20.0)


def gelu(x: float) -> float:
    return x * (1 + math.erf(x / math.sqrt(2))) / 2


def gelu_of_tanh(x: float) -> float:
    return x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def softplus(x: float) -> float:
    return math.log1p(math.exp(x))


FORMULAS: Mapping[str, Callable[[float], float]] = {
    "gelu": gelu,
    "gelu_10": lambda x: min(max(gelu(x), -10.0), 10.0),
    "gelu_fast": gelu_of_tanh,
    "gelu_new": gelu_of_tanh,
    "gelu_python": gelu,
    "gelu_pytorch_tanh": gelu_of_tanh,
    "gelu_python_tanh": gelu_of_tanh,
    "gelu_accurate": gelu_of_tanh,
    "hardswish": lambda x: x * min(max(x + 3, 0.0), 6.0) / 6,
    "laplace": lambda x: (1 + math.erf((x - 0.707107) / (0.282095 * math.sqrt(2)))) / 2,
    "leaky_relu": lambda x: x if x > 0 else 0.01 * x,
    "linear": lambda x: x,
    "mish": lambda x: x * math.tanh(softplus(x)),
    "quick_gelu": lambda x: x * sigmoid(1.702 * x),
    "relu": lambda x: max(x, 0.0),
    "relu2": lambda x: max(x, 0.0) ** 2,
    "relu6": lambda x: min(max(x, 0.0), 6.0),
    "sigmoid": sigmoid,
    "silu": lambda x: x * sigmoid(x),
    "sqrtsoftplus": lambda x: math.sqrt(softplus(x)),
    "swish": lambda x: x * sigmoid(x),
    "tanh": math.tanh,
    "prelu": lambda x: x if x > 0 else 0.25 * x,
    # https://arxiv.org/abs/2411.13010, with its initial values
    "xielu": lambda x: 0.8 * x * x + 0.5 * x if x > 0 else 0.8 * (math.expm1(min(x, -1e-6)) - x) + 0.5 * x,
}


@call(GROUP, phase=Phase.FORWARD)
def activations_by_name(_ctx: Context) -> Iterator[Check]:
    """Each activation that a configuration may name computes its formula, and hands on the formula's slope."""
    import torch
    from transformers.activations import ACT2FN

    told = 0
    for name, formula in FORMULAS.items():
        if name not in ACT2FN:
            continue
        told += 1
        dtype = torch.bfloat16 if name == "xielu" else torch.float32  # its parameters are made in bfloat16
        given = torch.tensor(POINTS, dtype=torch.float32, requires_grad=True)
        found = ACT2FN[name].to(torch.float32)(given)
        wanted = [formula(x) for x in POINTS]
        room = 2e-2 if dtype == torch.bfloat16 else SAME
        off = max(abs(a - b) / max(1.0, abs(b)) for a, b in zip(found.tolist(), wanted, strict=True))
        yield at_most(f"values off, {name}", off, room)
        found.sum().backward()
        step = 1e-6
        places = [n for n, x in enumerate(POINTS) if x not in (-3.0, 0.0, 3.0)]  # where no formula has a corner
        slopes = [(formula(POINTS[n] + step) - formula(POINTS[n] - step)) / (2 * step) for n in places]
        grads = given.grad.tolist() if given.grad is not None else []
        off = max(abs(grads[n] - slope) / max(1.0, abs(slope)) for n, slope in zip(places, slopes, strict=True))
        yield at_most(f"slopes off, {name}", off, room + 1e-5)
        yield equal(f"dtype, {name}", str(found.dtype), "torch.float32")
    yield at_least("activations", told, 15)
