"""The less common losses of preference pairs, as their papers define them, for one pair.

Ratios are log(pi/ref) of a completion. Every function takes floats or torch tensors, so that a test needs no torch.
"""

from __future__ import annotations

import math
from typing import Any

from cases.behaviour.preferences import objectives
from cases.behaviour.preferences.objectives import exp, log_sigmoid, sigmoid


def log(x: Any) -> Any:
    return x.log() if hasattr(x, "log") else math.log(x)


def exo(margin: Any, beta: float, epsilon: float) -> Any:
    """EXO for two completions, equation 16 of https://arxiv.org/abs/2402.00856.

    The reverse divergence of the policy's choice, a softmax of beta times both ratios, from the labels' 1 - ``epsilon``
    and ``epsilon``.
    """
    choice = sigmoid(beta * margin)
    return choice * (log(choice) - math.log(1 - epsilon)) + (1 - choice) * (log(1 - choice) - math.log(epsilon))


def nca(chosen: Any, rejected: Any, beta: float) -> Any:
    """NCA for a pair, equation 11 of https://arxiv.org/abs/2402.05369 with one rejected completion."""
    return -log_sigmoid(beta * chosen) - 0.5 * log_sigmoid(-beta * chosen) - 0.5 * log_sigmoid(-beta * rejected)


def bco(chosen: Any, rejected: Any, beta: float, shift: float) -> Any:
    """BCO, equation 9 of https://arxiv.org/abs/2404.04656: a classifier of rewards less ``shift``."""
    return -log_sigmoid(beta * chosen - shift) - log_sigmoid(shift - beta * rejected)


def sppo_hard(chosen: Any, rejected: Any, beta: float) -> Any:
    """SPPO, equation 4.7 of https://arxiv.org/abs/2405.00675; the chosen completion wins with certainty.

    The equation's eta is 1 / ``beta``; the loss is divided by eta squared.
    """
    return (chosen - 0.5 / beta) ** 2 + (rejected + 0.5 / beta) ** 2


def apo_zero(chosen: Any, rejected: Any, beta: float) -> Any:
    """APO-zero, equation 7 of https://arxiv.org/abs/2408.06266, plus 1."""
    return 1 - sigmoid(beta * chosen) + sigmoid(beta * rejected)


def apo_down(chosen: Any, rejected: Any, beta: float) -> Any:
    """APO-down, equation 8 of https://arxiv.org/abs/2408.06266, plus 1."""
    return sigmoid(beta * chosen) + 1 - sigmoid(beta * (chosen - rejected))


def discopop(margin: Any, beta: float, tau: float) -> Any:
    """DiscoPOP, equation 5 of https://arxiv.org/abs/2406.08414: a blend of the logistic and the exponential loss."""
    share = sigmoid(beta * margin / tau)
    return (1 - share) * objectives.dpo(margin, beta) + share * exp(-beta * margin)


def forward_kl(ratio: Any) -> Any:
    """The reward f'(pi/ref) of f(u) = -log u, less its value at 1: table 1 of https://arxiv.org/abs/2309.16240."""
    return 1 - exp(-ratio)


def jensen_shannon(ratio: Any) -> Any:
    """The reward f'(pi/ref) of the Jensen-Shannon divergence, log(2u / (1 + u))."""
    return math.log(2) + ratio - log(1 + exp(ratio))


def alpha_divergence(ratio: Any, alpha: float) -> Any:
    """The reward f'(pi/ref) of an alpha divergence, (1 - u^-alpha) / alpha."""
    return (1 - exp(-alpha * ratio)) / alpha


def log_odds(mean: Any) -> Any:
    """The logarithm of p / (1 - p) of a text whose tokens have this mean log p.

    Equations 4 and 5 of https://arxiv.org/abs/2403.07691.
    """
    return mean - log(1 - exp(mean))


def simpo(chosen: Any, rejected: Any, beta: float, gamma: float) -> Any:
    """SimPO, equation 6 of https://arxiv.org/abs/2405.14734, of both completions' mean log p."""
    return -log_sigmoid(beta * (chosen - rejected) - gamma)
