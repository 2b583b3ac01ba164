"""Settings of RLOOTrainer that leave its objective as it is, its evaluation, and every metric that it logs.

https://huggingface.co/docs/trl/rloo_trainer#logged-metrics
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.preferences import alignment, grpo, logged_metrics, policies, rloo
from cases.behaviour.preferences.grpo_metrics import MetricFollower
from cases.behaviour.preferences.rloo import BETA, LeaveOneOut, LeaveOneOutFollower
from cases.space.options import Options
from cases.space.verdict import Check, Phase, at_least, at_most

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "Metrics of TRL"
LOW, HIGH = 0.05, 0.1  # clipping
EQUAL = 1e-8  # the difference of rewards that do not differ, as torch.isclose has it
NAMES = (
    *("num_tokens", "reward", "reward_std", "frac_reward_zero_std", "entropy", "completions/clipped_ratio"),
    *(f"completions/{end}_{length}" for end in ("mean", "min", "max") for length in ("length", "terminated_length")),
    *(f"clip_ratio/{name}" for name in ("low_mean", "low_min", "high_mean", "high_max", "region_mean")),
    *("rewards/word_score/mean", "rewards/word_score/std"),
)


@dataclass
class Logged(LeaveOneOutFollower):
    """Also the metrics of generations and of clipping; a completion has one ratio."""

    generations: MetricFollower | None = None

    def loss(self, step: Any) -> tuple[Any, policies.Metrics]:
        is_new, rows = step
        value, metrics = super().loss(step)
        before, advantages = self.old
        found = [logged_metrics.entropies(self.both.policy, *row) for row in rows]
        metrics["entropy"] = [each for row in found for each in row]
        now = [policies.frozen_log_probabilities(self.both.policy, *row).sum() for row in rows]
        ratios = [float((one - other).exp()) for one, other in zip(now, before, strict=True)]
        low, high = self.definition.bounds
        judged = list(zip(ratios, advantages, strict=True))
        below = [float(ratio < 1 - low and advantage < 0) for ratio, advantage in judged]
        above = [float(ratio > 1 + high and advantage > 0) for ratio, advantage in judged]
        metrics["clip_ratio/low_mean"], metrics["clip_ratio/low_min"] = below, [min(below)]
        metrics["clip_ratio/high_mean"], metrics["clip_ratio/high_max"] = above, [max(above)]
        metrics["clip_ratio/region_mean"] = [one + other for one, other in zip(below, above, strict=True)]
        if is_new and self.generations is not None:
            metrics |= self.generations.of_generation(rows)
        return value, metrics


@call(GROUP, phase=Phase.OPTIMIZER, requires=("rloo",))
def rloo_metrics_of_iterations(ctx: Context) -> Iterator[Check]:
    """With num_iterations=2, RLOOTrainer logs clipped completions of each step, and a generation's metrics once."""
    definition = LeaveOneOut(grpo.by_row, bounds=(LOW, HIGH), iterations=2)
    given = {"beta": 0.0, "temperature": 1.0, "normalize_advantages": False, "num_iterations": 2}
    made, rollouts = grpo.trainer(ctx, {**given, "epsilon": LOW, "epsilon_high": HIGH, "max_steps": 4}, "RLOO")
    made.model.double()  # rounding of float32 alone moves the gradient of a later step by 4e-5, twice what is allowed
    both = policies.policies(ctx.cache, Options())
    generations = MetricFollower(grpo.Follower(both, definition), ("word_score",))
    names = tuple(name for name in NAMES if "/word_score" in name or alignment.source_mentions("RLOO", f'"{name}"'))
    follower = Logged(both, definition, generations=generations)
    seen: list[policies.Metrics] = []

    def loss(step: Any) -> tuple[Any, policies.Metrics]:
        value, metrics = follower.loss(step)
        seen.append(metrics)
        return value, dict(metrics)

    yield from grpo.followed(made, rollouts, definition, both, names, loss)
    for name in ("low", "high"):
        largest = max(policies.mean(metrics[f"clip_ratio/{name}_mean"]) for metrics in seen)
        yield at_least(f"expected share of clipped completions, {name}", largest, 0.01)


@call("Preference losses", phase=Phase.FORWARD, requires=("rloo", "rloo_pad_to_multiple_of"))
def rollouts_padded_to_multiples(ctx: Context) -> Iterator[Check]:
    """pad_to_multiple_of of RLOOTrainer and GRPOTrainer changes neither loss nor gradients."""
    yield from rloo.compared(ctx, LeaveOneOut(grpo.by_row, BETA), pad_to_multiple_of=8)
    yield from grpo.compared(ctx, grpo.Definition(grpo.by_row, grpo.BETA), pad_to_multiple_of=8)


@call("Preference losses", phase=Phase.FORWARD, requires=("rloo", "rloo_num_generations_eval"))
def rloo_evaluation(ctx: Context) -> Iterator[Check]:
    """RLOOTrainer evaluates num_generations_eval completions of each prompt, and trains on num_generations.

    A single completion has no other to compare with: its advantage is 0, and its rewards do not differ. A batch may
    be a single row.
    """
    yield from rloo.compared(ctx, LeaveOneOut(grpo.by_row, BETA), num_generations_eval=2, per_device_eval_batch_size=4)
    for number, size in ((grpo.GENERATIONS, grpo.GENERATIONS), (2, grpo.GENERATIONS), (1, grpo.GENERATIONS), (1, 1)):
        definition = LeaveOneOut(grpo.by_row, BETA, group=number)
        given = {"beta": BETA, "temperature": 1.0, "normalize_advantages": False, "evaluated": True}
        given |= {"num_generations_eval": number, "per_device_eval_batch_size": size}
        made, rollouts = grpo.trainer(ctx, given, "RLOO")
        found = made.evaluate()
        for entry in made.state.log_history:
            found = {**entry, **found}
        both = policies.policies(ctx.cache, Options())
        losses, same, rewards = [], [], []
        for rows in rollouts.calls:
            completions = [ids for _, ids in rows]
            values = definition.rewards(completions)
            rewards += values
            penalised = [value - BETA * divergence(both, row) for value, row in zip(values, rows, strict=True)]
            groups = [penalised[begin : begin + number] for begin in range(0, len(penalised), number)]
            same.append(policies.mean([float(max(each) - min(each) < EQUAL) for each in groups]))
            advantages = definition.advantages_of(penalised) if number > 1 else [0.0] * len(rows)
            losses.append(-policies.mean(advantages))
        wanted = {
            "loss": policies.mean(losses),
            "reward": policies.mean(rewards),
            "frac_reward_zero_std": policies.mean(same),
        }
        for name, value in wanted.items():
            off = alignment.off(found.get(f"eval_{name}", float("inf")), value)
            yield at_most(f"evaluated {name} off, {number} completions, {size} rows", off, grpo.SAME)


def divergence(both: policies.Policies, row: tuple[list[int], list[int]]) -> float:
    """The log ratio of a completion."""
    ours, theirs = (policies.frozen_log_probabilities(each, *row).sum() for each in (both.policy, both.reference))
    return float(ours - theirs)


@call(GROUP, phase=Phase.FORWARD, requires=("rloo", "rloo_log_metric"))
def rloo_logged_by_rewards(ctx: Context) -> Iterator[Check]:
    """RLOOTrainer logs the mean of what a reward gives to log_metric in each step, apart from the steps before."""

    def judge(completions: list[str], log_metric: Any, **_: Any) -> list[float]:
        for completion in completions:
            log_metric("words", float(len(completion.split())))
        return grpo.word_score(completions)

    given = {"beta": 0.0, "temperature": 1.0, "reward_funcs": judge, "max_steps": 3}
    made, rollouts = grpo.trainer(ctx, given, "RLOO")
    made.train()
    entries = [entry for entry in made.state.log_history if "loss" in entry]
    for step, (entry, rows) in enumerate(zip(entries, rollouts.calls, strict=True)):
        words = [float(len([each for each in ids if each >= policies.FIRST])) for _, ids in rows]
        yield at_most(f"logged words off, step {step}", alignment.off(entry["words"], policies.mean(words)), grpo.SAME)
