"""The activation functions that configurations name."""

from __future__ import annotations

from typing import Any


def activation(name: str, x: Any) -> Any:
    """Apply the function of this name.

    GELU is x P(X <= x) for a normal X (https://arxiv.org/abs/1606.08415); section 2 also states the approximations by
    tanh, which is that of GPT-2's published code, and by a sigmoid. SiLU is x sigmoid(x).

    Raises:
        KeyError: the reference does not know the function.
    """
    import torch

    gelu = torch.nn.functional.gelu
    functions = {
        "silu": lambda: x * x.sigmoid(),
        "relu": lambda: x.clamp_min(0),
        "gelu": lambda: gelu(x),
        "gelu_new": lambda: gelu(x, approximate="tanh"),
        "gelu_pytorch_tanh": lambda: gelu(x, approximate="tanh"),
        "quick_gelu": lambda: x * (1.702 * x).sigmoid(),
        "tanh": x.tanh,
    }
    return functions[name]()
