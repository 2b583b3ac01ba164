"""GRPOTrainer's variants of the ratio, of the advantages and of the tokens that count, against their papers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.preferences import alignment, grpo, objectives, policies
from cases.behaviour.preferences.grpo import GROUP, HIGH, LOW, Definition, compared
from cases.model import tiny
from cases.space.verdict import Check, Phase

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.reference.network import Network

    Rows = list[tuple[list[int], list[int]]]

TWICE: dict[str, Any] = {"num_iterations": 2}  # so that the policy differs from the one that generated
BOUNDS: dict[str, Any] = {"epsilon": LOW, "epsilon_high": HIGH}
LARGEST = 1.05  # of a ratio, in some losses
QUANTILES = (0.2, 0.5, 0.75)  # of tokens, by entropy
BONUSES = (0.3, 1.0)
WEIGHTS = (0.5, 2.0)
DRIFT = 0.01  # of a completion, from which on it may be left out
RULER = 3.0  # tokens of a completion for a reward of 1


@dataclass(frozen=True)
class TwoSided(Definition):
    """Ratios above a bound do not count if the advantage is negative: https://arxiv.org/abs/2505.07291, section 3.4."""

    def gain(self, log_ratio: Any, advantage: float, _learned: Any) -> Any:
        ratio = objectives.at_least(-log_ratio.exp(), -LARGEST)  # the smaller one, with its gradient
        inside = objectives.clipped(log_ratio.exp(), 1 - LOW, 1 + HIGH)
        return -objectives.smaller(-ratio * advantage, inside * advantage)


@call(GROUP, phase=Phase.OPTIMIZER, requires=("grpo", "grpo_delta"))
def grpo_delta(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer's delta also bounds the ratio of completions with a negative advantage."""
    definition = TwoSided(grpo.by_row, bounds=(LOW, HIGH), iterations=2)
    yield from compared(ctx, definition, logged=("reward",), delta=LARGEST, **BOUNDS, **TWICE)


@dataclass(frozen=True)
class ScaledByBatch(Definition):
    """Advantages over the deviation of all rewards: https://arxiv.org/abs/2508.08221, section 4.1."""

    def advantages(self, completions: list[list[int]]) -> list[float]:
        rewards = self.rewards(completions)
        return [each / (deviation(rewards) + grpo.EPSILON) for each in centred(rewards, self.group)]


def deviation(values: list[float]) -> float:
    """The standard deviation with the divisor n - 1, as torch's."""
    mean = sum(values) / len(values)
    return float((sum((value - mean) ** 2 for value in values) / (len(values) - 1)) ** 0.5)


def centred(rewards: list[float], group: int) -> list[float]:
    return objectives.advantages(rewards, group, scaled=False, epsilon=0.0)


@call(GROUP, phase=Phase.FORWARD, requires=("grpo", "grpo_batch"))
def grpo_scale_batch(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer's scale_rewards="batch" divides by the deviation of all rewards, less the mean of a group."""
    yield from compared(ctx, ScaledByBatch(grpo.by_row), logged=("reward",), scale_rewards="batch")


@call(GROUP, phase=Phase.FORWARD, requires=("grpo", "grpo_batch"))
def grpo_scale_none(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer's scale_rewards="none" takes the reward less the mean of its group."""
    yield from compared(ctx, Definition(grpo.by_row, scaled=False), logged=("reward",), scale_rewards="none")


@dataclass(frozen=True)
class WithoutTruncated(Definition):
    """Completions without an end token do not count, but their rewards do.

    Section 3.4 of https://arxiv.org/abs/2503.14476.
    """

    def kept(self, completion: list[int]) -> bool:
        return completion[-1] == tiny.END


@call(GROUP, phase=Phase.FORWARD, requires=("grpo", "grpo_mask_truncated_completions"))
def grpo_mask_truncated(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer's mask_truncated_completions leaves completions without an end out of loss and divergence."""
    more: dict[str, Any] = {"mask_truncated_completions": True, "loss_type": "bnpo"}
    yield from compared(ctx, WithoutTruncated(grpo.by_token, grpo.BETA), logged=("reward",), **more)


@dataclass(frozen=True)
class BySequence(Definition):
    """One ratio for a completion, the geometric mean of its tokens': equation 7 of https://arxiv.org/abs/2507.18071."""

    def gain(self, log_ratio: Any, advantage: float, _learned: Any) -> Any:
        return objectives.surrogate(log_ratio.mean().expand(len(log_ratio)), advantage, *self.bounds)


@call(GROUP, phase=Phase.OPTIMIZER, requires=("grpo", "grpo_importance_sampling_level"))
def grpo_sequence_ratio(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer's importance_sampling_level="sequence" is GSPO: ratio and clipping of whole completions."""
    narrow = (LOW / 20, HIGH / 20)
    definition = BySequence(grpo.by_row, bounds=narrow, iterations=2)
    more: dict[str, Any] = {"epsilon": narrow[0], "epsilon_high": narrow[1], "importance_sampling_level": "sequence"}
    yield from compared(ctx, definition, logged=("reward",), **more, **TWICE)


def summed_rows(tokens: list[Any]) -> Any:
    """The mean over completions of the sum over their tokens."""
    return policies.mean([each.sum() for each in tokens])


@call(GROUP, phase=Phase.OPTIMIZER, requires=("grpo", "grpo_luspo"))
def grpo_luspo(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer's luspo weighs each completion's sequence-level loss by its length.

    Equation 6 of https://arxiv.org/abs/2602.05261.
    """
    definition = BySequence(summed_rows, bounds=(LOW, HIGH), iterations=2)
    more: dict[str, Any] = {"loss_type": "luspo", "importance_sampling_level": "sequence"}
    yield from compared(ctx, definition, logged=("reward",), **more, **BOUNDS, **TWICE)


BY_ROW_OR_STEP = {  # losses that do not depend on how a step is split
    "grpo": grpo.by_row,
    "dr_grpo": grpo.by_largest_length,
    "dapo": grpo.by_token,
    "luspo": summed_rows,
}


def of_losses(group: int = grpo.GENERATIONS) -> dict[str, Definition]:
    """The definitions of those losses that this version has."""
    every = BY_ROW_OR_STEP.items()
    known = {name: mean for name, mean in every if alignment.source_mentions("GRPO", f'"{name}"')}
    return {name: Definition(mean, grpo.BETA, group=group) for name, mean in known.items()}


@call(GROUP, phase=Phase.BACKWARD, requires=("grpo", "grpo_loss_type"))
def grpo_accumulation_of_losses(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer's other losses do not depend on gradient_accumulation_steps: dr_grpo, dapo and luspo."""
    for name, definition in of_losses().items():
        yield from compared(ctx, definition, logged=("reward",), loss_type=name, **grpo.MANY)


@dataclass(frozen=True)
class Detached(Definition):
    """A bounded ratio as a constant factor of log p: equation 4 of https://arxiv.org/abs/2506.13585."""

    def gain(self, log_ratio: Any, advantage: float, learned: Any) -> Any:
        return -log_ratio.exp().detach().clamp(max=LARGEST) * advantage * learned


@call(GROUP, phase=Phase.OPTIMIZER, requires=("grpo", "grpo_cispo"))
def grpo_cispo(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer's cispo multiplies log p by the ratio, bounded by epsilon_high, without its gradient."""
    definition = Detached(grpo.by_token, iterations=2)
    yield from compared(ctx, definition, logged=("reward",), loss_type="cispo", epsilon_high=LARGEST, **TWICE)


@dataclass(frozen=True)
class Soft(Definition):
    """A sigmoid instead of clipping, steeper for negative advantages: https://arxiv.org/abs/2511.20347, equation 6."""

    def gain(self, log_ratio: Any, advantage: float, _learned: Any) -> Any:
        heat = 1.0 if advantage > 0 else 1.5
        return -4 / heat * objectives.sigmoid(heat * (log_ratio.exp() - 1)) * advantage


@call(GROUP, phase=Phase.OPTIMIZER, requires=("grpo", "grpo_sapo"))
def grpo_sapo(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer's sapo replaces clipping by a sigmoid whose temperature depends on the advantage's sign."""
    more: dict[str, Any] = {"loss_type": "sapo", "sapo_temperature_pos": 1.0, "sapo_temperature_neg": 1.5}
    yield from compared(ctx, Soft(grpo.by_row, iterations=2), logged=("reward",), **more, **TWICE)


GAMMA = {"pos": (2.0, 3.0), "neg": (3.0, 2.0)}  # k and lambda, by the sign of the advantage


@dataclass(frozen=True)
class OfGamma(Definition):
    """log p times w^k exp(lambda (1 - w)) of a completion's whole ratio w: https://arxiv.org/abs/2602.10693."""

    def gain(self, log_ratio: Any, advantage: float, learned: Any) -> Any:
        power, rate = GAMMA["pos" if advantage >= 0 else "neg"]
        whole = log_ratio.sum().detach()
        return -(rate + power * whole - rate * whole.exp()).exp() * advantage * learned


@call(GROUP, phase=Phase.OPTIMIZER, requires=("grpo", "grpo_vespo"))
def grpo_vespo(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer's vespo multiplies log p by a gamma function of the completion's ratio."""
    named: dict[str, Any] = {
        f"vespo_{name}_{sign}": value
        for sign, values in GAMMA.items()
        for name, value in zip(("k", "lambda"), values, strict=True)
    }
    yield from compared(
        ctx, OfGamma(grpo.by_token, iterations=2), logged=("reward",), loss_type="vespo", **named, **TWICE
    )


def entropies(policy: Network, rows: Rows) -> list[Any]:
    """The entropy of the policy at each token of completions."""
    found = [policies.log_distributions(policy, *row) for row in rows]
    return [-(chances.exp() * chances).sum(-1) for chances in found]


@dataclass(frozen=True)
class OfUncertainTokens(Definition):
    """Gains of the tokens with the highest entropy of a batch: equation 6 of https://arxiv.org/abs/2506.01939."""

    share: float = 1.0

    def weights(self, policy: Network, rows: Rows) -> list[Any]:
        found = entropies(policy, rows)
        ordered = sorted(float(value) for each in found for value in each)
        place = (1 - self.share) * (len(ordered) - 1)  # interpolated between two tokens
        below, above = ordered[math.floor(place)], ordered[math.ceil(place)]
        threshold = below + (place - math.floor(place)) * (above - below)
        return [(each.detach() >= threshold - 1e-9).double() for each in found]


@call(GROUP, phase=Phase.FORWARD, requires=("grpo", "grpo_top_entropy_quantile"))
def grpo_top_entropy(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer's top_entropy_quantile learns from that share of tokens, those with the highest entropy."""
    for share in QUANTILES:
        definition = OfUncertainTokens(grpo.by_row, share=share)
        yield from compared(ctx, definition, logged=("reward",), top_entropy_quantile=share)


@dataclass(frozen=True)
class Exploring(Definition):
    """The mean entropy over all tokens is subtracted, as documented for ``entropy_coef``."""

    factor: float = 0.0

    def bonus(self, policy: Network, rows: Rows) -> Any:
        found = entropies(policy, rows)
        return self.factor * sum(each.sum() for each in found) / sum(len(each) for each in found)


@call(GROUP, phase=Phase.FORWARD, requires=("grpo", "grpo_entropy_coef"))
def grpo_entropy_bonus(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer's entropy_coef adds the mean entropy of the tokens to what is maximised."""
    for factor in BONUSES:
        yield from compared(ctx, Exploring(grpo.by_row, factor=factor), logged=("reward",), entropy_coef=factor)


@dataclass(frozen=True)
class ExploringByRow(Exploring):
    """The mean over micro-batches of one row each of the mean entropy over their tokens."""

    def bonus(self, policy: Network, rows: Rows) -> Any:
        return self.factor * policies.mean([each.mean() for each in entropies(policy, rows)])


@call(GROUP, phase=Phase.BACKWARD, requires=("grpo", "grpo_entropy_coef"))
def grpo_entropy_bonus_accumulated(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer's entropy_coef adds the mean over a step's batches of the entropy, in every loss that is a mean."""
    single: dict[str, Any] = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": grpo.GENERATIONS}
    for name in ("grpo", "dr_grpo", "dapo"):
        definition = ExploringByRow(BY_ROW_OR_STEP[name], factor=BONUSES[0])
        yield from compared(ctx, definition, logged=("reward",), loss_type=name, entropy_coef=BONUSES[0], **single)


def length_score(completions: list[str], **_: Any) -> list[float]:
    """A second reward, the words of a completion."""
    return [len(text.split()) / RULER for text in completions]


def length_of(completion: list[int]) -> float:
    return len([each for each in completion if each != tiny.END]) / RULER


@dataclass(frozen=True)
class OfTwoRewards(Definition):
    """Weighted rewards are added before they are centred and scaled."""

    def rewards(self, completions: list[list[int]]) -> list[float]:
        return [WEIGHTS[0] * grpo.score(each) + WEIGHTS[1] * length_of(each) for each in completions]


TWO: dict[str, Any] = {"reward_weights": list(WEIGHTS)}


@call(GROUP, phase=Phase.FORWARD, requires=("grpo", "grpo_reward_weights"))
def grpo_two_rewards(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer adds the rewards of two functions by reward_weights."""
    yield from compared(
        ctx, OfTwoRewards(grpo.by_row), logged=("reward",), reward_funcs=[grpo.word_score, length_score], **TWO
    )


@dataclass(frozen=True)
class NormalisedApart(OfTwoRewards):
    """Each reward is scaled in its group, then their weighted sum in the batch: https://arxiv.org/abs/2601.05242."""

    def advantages(self, completions: list[list[int]]) -> list[float]:
        kinds = ([grpo.score(each) for each in completions], [length_of(each) for each in completions])
        scaled = [objectives.advantages(kind, self.group, scaled=True, epsilon=grpo.EPSILON) for kind in kinds]
        sums = [WEIGHTS[0] * one + WEIGHTS[1] * other for one, other in zip(*scaled, strict=True)]
        mean = sum(sums) / len(sums)
        return [(each - mean) / (deviation(sums) + grpo.EPSILON) for each in sums]


@call(GROUP, phase=Phase.FORWARD, requires=("grpo", "grpo_multi_objective_aggregation"))
def grpo_normalised_rewards(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer's multi_objective_aggregation="normalize_then_sum" scales each reward before it adds them."""
    more: dict[str, Any] = {"multi_objective_aggregation": "normalize_then_sum", **TWO}
    yield from compared(
        ctx, NormalisedApart(grpo.by_row), logged=(), reward_funcs=[grpo.word_score, length_score], **more
    )


@dataclass(frozen=True)
class WithoutDrifted(Definition):
    """A bad completion that has become less likely does not count: https://arxiv.org/abs/2512.02556, equation 9."""

    def gain(self, log_ratio: Any, advantage: float, learned: Any) -> Any:
        is_left_out = advantage < 0 and float(-log_ratio.mean()) > DRIFT
        return super().gain(log_ratio, advantage, learned) * (not is_left_out)


@call(GROUP, phase=Phase.OPTIMIZER, requires=("grpo", "grpo_off_policy_mask_threshold"))
def grpo_off_policy_mask(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer's off_policy_mask_threshold drops completions with a negative advantage that the policy left."""
    definition = WithoutDrifted(grpo.by_row, iterations=2)
    yield from compared(ctx, definition, logged=("reward",), off_policy_mask_threshold=DRIFT, **TWICE)


@call(GROUP, phase=Phase.FORWARD, requires=("grpo", "grpo_temperature"))
def grpo_temperature(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer takes log p at the temperature of its sampling, of policy and reference."""
    definition = Definition(grpo.by_row, grpo.BETA, temperature=0.7)
    yield from compared(ctx, definition)
