"""Completions that GRPOTrainer leaves out of a step: truncated ones, and those that no reward function judges.

https://huggingface.co/docs/trl/grpo_trainer: with mask_truncated_completions, "truncated completions are excluded from
the loss calculation", and a reward function returns None for a completion that it does not judge.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.preferences import alignment, grpo, grpo_variants, policies
from cases.behaviour.preferences.grpo_metrics import usual
from cases.behaviour.preferences.grpo_variants import BySequence, Detached, Soft, WithoutTruncated, deviation
from cases.behaviour.preferences.rollouts.generations import STILL
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "Preference losses"
SHORT = 3  # words up to which a completion is judged


class SoftWithoutTruncated(WithoutTruncated, Soft):
    """The gains of sapo."""


class DetachedWithoutTruncated(WithoutTruncated, Detached):
    """The gains of cispo."""


class WholeWithoutTruncated(WithoutTruncated, BySequence):
    """The gains of luspo."""


def of_losses() -> dict[str, tuple[WithoutTruncated, dict[str, Any]]]:
    """The definition and settings of those losses that this version has."""
    every: dict[str, tuple[WithoutTruncated, dict[str, Any]]] = {
        "grpo": (WithoutTruncated(grpo.by_row, grpo.BETA), {}),
        "bnpo": (WithoutTruncated(grpo.by_token, grpo.BETA), {}),
        "dr_grpo": (WithoutTruncated(grpo.by_largest_length, grpo.BETA), {}),
        "dapo": (WithoutTruncated(grpo.by_token, grpo.BETA), {}),
        "sapo": (SoftWithoutTruncated(grpo.by_row), {"sapo_temperature_neg": 1.5}),
        "cispo": (DetachedWithoutTruncated(grpo.by_token), {"epsilon_high": grpo_variants.LARGEST}),
        "luspo": (WholeWithoutTruncated(grpo_variants.summed_rows), {"importance_sampling_level": "sequence"}),
    }
    return {name: each for name, each in every.items() if alignment.source_mentions("GRPO", f'"{name}"')}


@call(GROUP, phase=Phase.BACKWARD, requires=("grpo", "grpo_mask_truncated_completions"))
def grpo_masks_truncated_in_losses(ctx: Context) -> Iterator[Check]:
    """Every loss of GRPOTrainer leaves truncated completions out, and is 0 with zero gradients if it has no others."""
    for name, (definition, more) in of_losses().items():
        given: dict[str, Any] = {"mask_truncated_completions": True, "loss_type": name, **more}
        yield from grpo.compared(ctx, definition, logged=("reward",), **given)
        made, rollouts = grpo.trainer(ctx, {**usual(), "beta": definition.beta, "max_steps": 1, **given})
        rollouts.completion = unfinished  # type: ignore[method-assign]
        made.train()
        yield equal(f"loss without completions that end, {name}", str(made.micro_losses), "[0.0]")
        largest = max(float(each.abs().max()) for each in made.micro_gradients[0].values())
        yield at_most(f"gradients without completions that end, {name}", largest, 0.0)


def unfinished(prompt: list[int], place: int) -> list[int]:
    """A completion of the largest length, without an end."""
    return policies.tokens(grpo.LONGEST, sum(prompt) + 100 * place)


def is_judged(ids: list[int]) -> bool:
    return len([each for each in ids if each >= policies.FIRST]) <= SHORT


def of_short(completions: list[str], **_: Any) -> list[float | None]:
    """Judges short completions alone."""
    scores = grpo.word_score(completions)
    return [each if len(text.split()) <= SHORT else None for each, text in zip(scores, completions, strict=True)]


def of_none(completions: list[str], **_: Any) -> list[float | None]:
    return [None] * len(completions)


@dataclass(frozen=True)
class OfJudged(grpo.Definition):
    """Completions that are judged are compared with each other; the others have no advantage and no reward."""

    def rewards(self, completions: list[list[int]]) -> list[float]:
        return [grpo.score(ids) for ids in completions if is_judged(ids)]

    def advantages(self, completions: list[list[int]]) -> list[float]:
        found: list[float] = []
        for begin in range(0, len(completions), self.group):
            of_group = completions[begin : begin + self.group]
            rewards = self.rewards(of_group)
            mean, scale = policies.mean(rewards), deviation(rewards) + grpo.EPSILON
            found += [(grpo.score(ids) - mean) / scale if is_judged(ids) else 0.0 for ids in of_group]
        return found


@call(GROUP, phase=Phase.FORWARD, requires=("grpo", "grpo_unscored_completions"))
def grpo_unjudged_completions(ctx: Context) -> Iterator[Check]:
    """A completion for which all rewards are None has no advantage, and counts in no mean or deviation of rewards."""
    definition = OfJudged(grpo.by_row, grpo.BETA)
    for judges in ([of_short], [of_short, of_none]):
        yield from grpo.compared(ctx, definition, logged=("reward",), reward_funcs=judges)
    made, rollouts = grpo.trainer(ctx, {**usual(), **STILL, "reward_funcs": of_short, "max_steps": 1})
    made.train()
    entry = next(entry for entry in made.state.log_history if "loss" in entry)
    rewards = definition.rewards([ids for _, ids in rollouts.calls[0]])
    wanted = {"reward": policies.mean(rewards), "reward_std": deviation(rewards)}
    wanted |= {f"rewards/of_short/{name}": wanted[key] for name, key in (("mean", "reward"), ("std", "reward_std"))}
    for name, value in wanted.items():
        yield at_most(f"logged {name} off", alignment.off(entry.get(name, float("inf")), value), grpo.SAME)
