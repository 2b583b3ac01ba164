"""The losses of preference and reinforcement fine-tuning, as their papers define them, for one row or one token.

Every function takes floats or torch tensors, so that a test needs no torch.
"""

from __future__ import annotations

import math
from typing import Any


def log_sigmoid(x: Any) -> Any:
    """log(1 / (1 + exp(-x)))."""
    inner = 1 + exp(-x)
    return -(inner.log() if hasattr(inner, "log") else math.log(inner))


def exp(x: Any) -> Any:
    return x.exp() if hasattr(x, "exp") else math.exp(x)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + exp(-x))


def at_least(x: Any, floor: float) -> Any:
    return x.clamp_min(floor) if hasattr(x, "clamp_min") else max(x, floor)


def smaller(one: Any, other: Any) -> Any:
    return one.minimum(other) if hasattr(one, "minimum") else min(one, other)


def clipped(x: Any, low: float, high: float) -> Any:
    return x.clamp(low, high) if hasattr(x, "clamp") else min(max(x, low), high)


def dpo(margin: Any, beta: float) -> Any:
    """DPO, equation 7 of https://arxiv.org/abs/2305.18290.

    ``margin`` is log(pi/ref) of the chosen completion less that of the rejected one.
    """
    return -log_sigmoid(beta * margin)


def conservative_dpo(margin: Any, beta: float, smoothing: float) -> Any:
    """DPO with smoothed labels, equation 3 of https://ericmitchell.ai/cdpo.pdf: labels are wrong with ``smoothing``."""
    return (1 - smoothing) * dpo(margin, beta) + smoothing * dpo(-margin, beta)


def robust_dpo(margin: Any, beta: float, smoothing: float) -> Any:
    """DPO that is unbiased under flipped labels, equation 7 of https://arxiv.org/abs/2403.00409."""
    return ((1 - smoothing) * dpo(margin, beta) - smoothing * dpo(-margin, beta)) / (1 - 2 * smoothing)


def hinge(margin: Any, beta: float) -> Any:
    """The hinge loss of SLiC-HF with DPO's reward, https://arxiv.org/abs/2309.06657, section 3.3."""
    return at_least(1 - beta * margin, 0.0)


def ipo(margin: Any, tau: float) -> Any:
    """IPO, equation 17 of https://arxiv.org/abs/2310.12036."""
    return (margin - 1 / (2 * tau)) ** 2


def kto(ratio: Any, reference_point: float, beta: float, *, desirable: bool) -> Any:
    """KTO, equations 7 and 8 of https://arxiv.org/abs/2402.01306, without the weight of its kind.

    ``ratio`` is log(pi/ref) of the completion; ``reference_point`` is the estimated KL divergence, not below 0.
    """
    value = beta * (ratio - reference_point)
    return 1 - sigmoid(value if desirable else -value)


def bradley_terry(chosen: Any, rejected: Any, margin: float = 0.0) -> Any:
    """The loss of a reward model, equation 1 of https://arxiv.org/abs/2203.02155.

    ``margin`` is the one of Llama 2, equation 2 of https://arxiv.org/abs/2307.09288.
    """
    return -log_sigmoid(chosen - rejected - margin)


def centring(chosen: Any, rejected: Any) -> Any:
    """The auxiliary loss that keeps rewards around 0, equation 2 of https://arxiv.org/abs/2312.09244."""
    return (chosen + rejected) ** 2


def surrogate(log_ratio: Any, advantage: float, low: float, high: float) -> Any:
    """PPO's clipped objective of a token, to be minimised; ``log_ratio`` is log(pi/pi_old).

    Equation 3 of https://arxiv.org/abs/2402.03300; with two bounds, equation 8 of https://arxiv.org/abs/2503.14476.
    """
    ratio = exp(log_ratio)
    return -smaller(ratio * advantage, clipped(ratio, 1 - low, 1 + high) * advantage)


def token_kl(policy: Any, reference: Any) -> Any:
    """The unbiased estimate of KL(pi || ref) of a token, equation 4 of https://arxiv.org/abs/2402.03300."""
    return exp(reference - policy) - (reference - policy) - 1


def advantages(rewards: list[float], group: int, *, scaled: bool, epsilon: float) -> list[float]:
    """The rewards less the mean of their group, over its standard deviation if ``scaled``.

    Section 4.1.2 of https://arxiv.org/abs/2402.03300; unscaled, equation 2 of https://arxiv.org/abs/2503.20783.
    ``epsilon`` is added to the deviation, which has the divisor ``group`` - 1, as torch's.
    """
    found = []
    for begin in range(0, len(rewards), group):
        of_group = rewards[begin : begin + group]
        mean = sum(of_group) / group
        deviation = (sum((reward - mean) ** 2 for reward in of_group) / (group - 1)) ** 0.5
        found += [(reward - mean) / (deviation + epsilon if scaled else 1) for reward in of_group]
    return found
