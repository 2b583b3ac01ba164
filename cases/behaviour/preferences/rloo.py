"""RLOOTrainer against its paper, on completions and rewards that a script supplies, as in the calls of GRPO.

https://arxiv.org/abs/2402.14740: the whole completion is one action, and its baseline is the mean reward of the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.preferences import grpo, objectives, policies
from cases.behaviour.preferences.grpo import GENERATIONS, GROUP, HIGH, LOW, Definition
from cases.space.options import Options
from cases.space.verdict import Check, Phase

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

BETA = 0.1
CLIPPED = (0.5, 2.0)  # bounds of rewards


@dataclass(frozen=True)
class LeaveOneOut(Definition):
    """Equation 8 of the paper, with PPO's clipping of the ratio of whole completions.

    ``beta`` times log(pi/ref) of a completion, when it was generated, is subtracted from its reward.
    """

    normalised: bool = False
    clip_rewards: bool = False

    def rewards(self, completions: list[list[int]]) -> list[float]:
        found = super().rewards(completions)
        return [objectives.clipped(each, *CLIPPED) for each in found] if self.clip_rewards else found

    def advantages_of(self, rewards: list[float]) -> list[float]:
        found = []
        for begin in range(0, len(rewards), self.group):
            of_group = rewards[begin : begin + self.group]
            found += [each - (sum(of_group) - each) / (self.group - 1) for each in of_group]
        if not self.normalised:
            return found
        mean = sum(found) / len(found)
        deviation = (sum((each - mean) ** 2 for each in found) / (len(found) - 1)) ** 0.5
        return [(each - mean) / (deviation + grpo.EPSILON) for each in found]


@dataclass
class LeaveOneOutFollower:
    """The reference's loss on a trainer's rollouts."""

    both: policies.Policies
    definition: LeaveOneOut
    old: tuple[list[Any], list[float]] = field(default_factory=lambda: ([], []))  # log p, and advantages

    def loss(self, step: tuple[bool, list[tuple[list[int], list[int]]]]) -> tuple[Any, policies.Metrics]:
        is_new, rows = step
        learned = [policies.log_probabilities(self.both.policy, *row).sum() for row in rows]
        metrics: policies.Metrics = {}
        if is_new:
            rewards = self.definition.rewards([completion for _, completion in rows])
            frozen = [policies.frozen_log_probabilities(self.both.reference, *row).sum() for row in rows]
            kl = [float(one.detach() - other) for one, other in zip(learned, frozen, strict=True)]
            penalised = [reward - self.definition.beta * each for reward, each in zip(rewards, kl, strict=True)]
            self.old = [each.detach() for each in learned], self.definition.advantages_of(penalised)
        losses = [
            objectives.surrogate(now - before, advantage, *self.definition.bounds)
            for now, before, advantage in zip(learned, *self.old, strict=True)
        ]
        return policies.mean(losses), metrics


def compared(
    ctx: Context, definition: LeaveOneOut, *, both: policies.Policies | None = None, **chosen: Any
) -> Iterator[Check]:
    """Train two steps with an adapter, then follow its rollouts with the reference, and compare."""
    given: dict[str, Any] = {"beta": definition.beta, "temperature": 1.0, "normalize_advantages": False, **chosen}
    made, rollouts = grpo.trainer(ctx, given, "RLOO")
    both = both or policies.policies(ctx.cache, Options())
    follower = LeaveOneOutFollower(both, definition)
    yield from grpo.followed(made, rollouts, definition, both, (), follower.loss)


@call(GROUP, phase=Phase.FORWARD, requires=("rloo",))
def rloo_loss(ctx: Context) -> Iterator[Check]:
    """RLOOTrainer compares each reward, less the divergence, with the mean of the other completions'."""
    yield from compared(ctx, LeaveOneOut(grpo.by_row, BETA))


@call(GROUP, phase=Phase.FORWARD, requires=("rloo",))
def rloo_normalised(ctx: Context) -> Iterator[Check]:
    """RLOOTrainer's normalize_advantages scales the advantages of a batch."""
    yield from compared(ctx, LeaveOneOut(grpo.by_row, normalised=True), normalize_advantages=True)


@call(GROUP, phase=Phase.FORWARD, requires=("rloo",))
def rloo_clipped_rewards(ctx: Context) -> Iterator[Check]:
    """RLOOTrainer's reward_clip_range bounds the rewards before they are compared."""
    yield from compared(ctx, LeaveOneOut(grpo.by_row, clip_rewards=True), reward_clip_range=CLIPPED)


@call(GROUP, phase=Phase.OPTIMIZER, requires=("rloo",))
def rloo_clipping(ctx: Context) -> Iterator[Check]:
    """RLOOTrainer's num_iterations=2 clips the ratio of whole completions, by epsilon and epsilon_high."""
    definition = LeaveOneOut(grpo.by_row, bounds=(LOW, HIGH), iterations=2)
    yield from compared(ctx, definition, num_iterations=2, epsilon=LOW, epsilon_high=HIGH)


@call(GROUP, phase=Phase.BACKWARD, requires=("rloo",))
def rloo_accumulation(ctx: Context) -> Iterator[Check]:
    """RLOOTrainer with gradient_accumulation_steps=2 takes the mean over the completions of both batches."""
    yield from compared(ctx, LeaveOneOut(grpo.by_row, BETA), **grpo.HALVES)


@call(GROUP, phase=Phase.BACKWARD, ranks=2, requires=("rloo",))
def rloo_ddp(ctx: Context) -> Iterator[Check]:
    """RLOOTrainer on two ranks compares the completions of one prompt across both."""
    group = 2 * GENERATIONS
    more: dict[str, Any] = {"num_generations": group, "ddp_find_unused_parameters": False}
    more["per_device_train_batch_size"] = GENERATIONS
    yield from compared(ctx, LeaveOneOut(grpo.by_row, BETA, group=group), **more)
