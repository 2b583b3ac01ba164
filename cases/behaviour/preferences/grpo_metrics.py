"""The metrics of GRPOTrainer, and settings of its reference, head and batches of generation.

https://huggingface.co/docs/trl/grpo_trainer#logged-metrics.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cases.api import call, ingredients
from cases.behaviour.preferences import alignment, grpo, kto, logged_metrics, policies, preference
from cases.behaviour.preferences.grpo import Definition, Follower
from cases.behaviour.preferences.grpo_variants import BySequence, deviation
from cases.model import tiny
from cases.reference import twin
from cases.space.options import Options
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cases.apply.context import Context

    Rollout = tuple[list[int], list[int]]  # prompt and completion

GROUP = "Metrics of TRL"
WEIGHTS = (1.0, 0.5)  # of two rewards
FULL = Options().but(method="full")
MIXED, GENTLE = 0.3, 0.01  # the share of the policy in a synchronised reference; a learning rate for whole weights
BROAD = 2.0**-6  # relative, of a loss in bfloat16


def brief_score(completions: list[str], **_: Any) -> list[float]:
    """A reward that is 0 for all completions of the second prompt of a call, so that their deviation is 0."""
    return [float(len(text.split()) in (1, 4)) for text in completions]


def brief(ids: list[int]) -> float:
    return float(len([each for each in ids if each != tiny.END]) in (1, 4))


@dataclass(frozen=True)
class Brief(Definition):
    def rewards(self, completions: list[list[int]]) -> list[float]:
        return [brief(each) for each in completions]


@dataclass(frozen=True)
class Both(Definition):
    def rewards(self, completions: list[list[int]]) -> list[float]:
        return [WEIGHTS[0] * grpo.score(each) + WEIGHTS[1] * brief(each) for each in completions]


NAMES = (
    *("num_tokens", "reward", "reward_std", "frac_reward_zero_std", "entropy", "kl", "completions/clipped_ratio"),
    *(f"completions/{end}_{length}" for end in ("mean", "min", "max") for length in ("length", "terminated_length")),
    *(f"clip_ratio/{name}" for name in ("low_mean", "high_mean", "low_min", "high_max")),
)
KINDS: dict[str, Callable[[list[int]], float]] = {"word_score": grpo.score, "brief_score": brief}


@dataclass
class MetricFollower:
    """A follower's loss with all metrics of a step; those of a generation with its first use.

    ``single``: each batch is one row, so that means over tokens are means over rows. ``whole``: a completion has one
    ratio, the geometric mean of its tokens'.
    """

    follower: Follower
    kinds: tuple[str, ...]
    tokens: int = 0
    group: int = grpo.GENERATIONS
    single: bool = False
    whole: bool = False

    def loss(self, step: tuple[bool, list[Rollout]]) -> tuple[Any, policies.Metrics]:
        is_new, rows = step
        found = [logged_metrics.entropies(self.follower.both.policy, *row) for row in rows]
        metrics: policies.Metrics = {"entropy": self.of_batches(found)}
        old = [each.clone() for each in self.follower.old]
        value, of_loss = self.follower.loss(step)
        if "kl" in of_loss:
            of_tokens = iter(of_loss["kl"])
            metrics["kl"] = self.of_batches([[next(of_tokens) for _ in ids] for _, ids in rows])
        metrics |= self.clipped(rows, old, is_new=is_new)
        if is_new:
            metrics |= self.of_generation(rows)
        return value, metrics

    def of_batches(self, rows: list[list[float]]) -> list[float]:
        """The values of each row, or their means, of which the mean is logged."""
        return [policies.mean(row) for row in rows] if self.single else [value for row in rows for value in row]

    def clipped(self, rows: list[Rollout], old: list[Any], *, is_new: bool) -> policies.Metrics:
        """The share of tokens that are clipped below and above, and the smallest and largest share of a completion."""
        definition = self.follower.definition
        advantages = definition.advantages([ids for _, ids in rows])
        low, high = definition.bounds
        shares: dict[str, list[list[float]]] = {"low": [], "high": []}
        for place, (row, advantage) in enumerate(zip(rows, advantages, strict=True)):
            now = policies.frozen_log_probabilities(self.follower.both.policy, *row)
            log_ratio = now * 0 if is_new else now - old[place]
            ratio = (log_ratio.mean()[None] if self.whole else log_ratio).exp().tolist()
            shares["low"].append([float(each < 1 - low and advantage < 0) for each in ratio])
            shares["high"].append([float(each > 1 + high and advantage > 0) for each in ratio])
        return {
            "clip_ratio/low_mean": self.of_batches(shares["low"]),
            "clip_ratio/high_mean": self.of_batches(shares["high"]),
            "clip_ratio/low_min": [min(policies.mean(row) for row in shares["low"])],
            "clip_ratio/high_max": [max(policies.mean(row) for row in shares["high"])],
        }

    def of_generation(self, rows: list[Rollout]) -> policies.Metrics:
        completions = [ids for _, ids in rows]
        lengths = [float(len(ids)) for ids in completions]
        ended = [float(len(ids)) for ids in completions if ids[-1] == tiny.END]
        self.tokens += sum(len(prompt) + len(ids) for prompt, ids in rows)
        totals = self.follower.definition.rewards(completions)
        groups = [totals[begin : begin + self.group] for begin in range(0, len(totals), self.group)]
        found: policies.Metrics = {
            "num_tokens": [float(self.tokens)],
            "completions/mean_length": lengths,
            "completions/min_length": [min(lengths)],
            "completions/max_length": [max(lengths)],
            "completions/clipped_ratio": [float(ids[-1] != tiny.END) for ids in completions],
            "completions/mean_terminated_length": ended,
            "completions/min_terminated_length": [min(ended)],
            "completions/max_terminated_length": [max(ended)],
            "reward": totals,
            "reward_std": [deviation(totals)],
            "frac_reward_zero_std": [float(len(set(each)) == 1) for each in groups],
        }
        for kind in self.kinds:
            values = [KINDS[kind](ids) for ids in completions]
            found[f"rewards/{kind}/mean"], found[f"rewards/{kind}/std"] = values, [deviation(values)]
        return found


def usual() -> dict[str, Any]:
    """The settings of the paper's loss, in all versions."""
    given: dict[str, Any] = {"temperature": 1.0, "loss_type": "grpo"}
    known = alignment.options_of("GRPO")
    return {**given, "use_bias_correction_kl": False} if "use_bias_correction_kl" in known else given


def followed(
    ctx: Context,
    definition: Definition,
    kinds: tuple[str, ...],
    *,
    single: bool = False,
    whole: bool = False,
    **chosen: Any,
) -> Iterator[Check]:
    """Train, and compare losses, gradients and all metrics that this version has."""
    made, rollouts = grpo.trainer(ctx, {**usual(), "beta": definition.beta, **chosen})
    both = policies.policies(ctx.cache, Options())
    follower = MetricFollower(Follower(both, definition), kinds, group=definition.group, single=single, whole=whole)
    parts = [f"rewards/{kind}/{part}" for kind in kinds for part in ("mean", "std")]
    names = (*parts, *(name for name in NAMES if alignment.source_mentions("GRPO", f'"{name}"')))
    yield from grpo.followed(made, rollouts, definition, both, names, follower.loss)


@call(GROUP, phase=Phase.FORWARD, requires=("grpo", "grpo_metrics"))
def grpo_metrics(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer logs lengths, rewards, deviations and entropies of its completions, and the tokens that it clips.

    The deviation of a reward is over all completions, and frac_reward_zero_std counts prompts whose rewards are equal.
    """
    yield from followed(ctx, Brief(grpo.by_row, grpo.BETA), ("brief_score",), reward_funcs=brief_score)


@call(GROUP, phase=Phase.FORWARD, requires=("grpo", "grpo_metrics", "grpo_reward_weights", "grpo_epsilon_high"))
def grpo_metrics_of_iterations(ctx: Context) -> Iterator[Check]:
    """With num_iterations=2, GRPOTrainer logs clipped tokens of each step, and a generation's metrics with its first.

    Each reward function is logged without its weight, ``reward`` with them.
    """
    definition = Both(grpo.by_row, bounds=(grpo.LOW, grpo.HIGH), iterations=2)
    more: dict[str, Any] = {"num_iterations": 2, "epsilon": grpo.LOW, "epsilon_high": grpo.HIGH}
    more |= {"reward_funcs": [grpo.word_score, brief_score], "reward_weights": list(WEIGHTS)}
    yield from followed(ctx, definition, ("word_score", "brief_score"), **more)


@call(GROUP, phase=Phase.FORWARD, requires=("grpo", "grpo_metrics", "grpo_importance_sampling_level"))
def grpo_metrics_of_sequences(ctx: Context) -> Iterator[Check]:
    """With importance_sampling_level="sequence", GRPOTrainer's clip_ratio counts completions, and entropy tokens."""
    narrow = (grpo.LOW / 20, grpo.HIGH / 20)
    definition = BySequence(grpo.by_row, bounds=narrow, iterations=2)
    more: dict[str, Any] = {"epsilon": narrow[0], "epsilon_high": narrow[1], "num_iterations": 2}
    more["importance_sampling_level"] = "sequence"
    yield from followed(ctx, definition, ("word_score",), whole=True, **more)


@call(GROUP, phase=Phase.FORWARD, requires=("grpo", "grpo_metrics"))
def grpo_metrics_of_single_rows(ctx: Context) -> Iterator[Check]:
    """With per_device_train_batch_size=1, GRPOTrainer logs the means of a step's batches, each of which is one row."""
    more: dict[str, Any] = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": grpo.GENERATIONS}
    yield from followed(ctx, Definition(grpo.by_row, grpo.BETA), ("word_score",), single=True, **more)


@call(GROUP, phase=Phase.FORWARD, ranks=2, requires=("grpo", "grpo_metrics"))
def grpo_metrics_two_ranks(ctx: Context) -> Iterator[Check]:
    """On two ranks, GRPOTrainer's metrics are over the completions, or the tokens, of both."""
    group = 2 * grpo.GENERATIONS
    more: dict[str, Any] = {"num_generations": group, "per_device_train_batch_size": grpo.GENERATIONS}
    definition = Definition(grpo.by_row, grpo.BETA, group=group)
    yield from followed(ctx, definition, ("word_score",), ddp_find_unused_parameters=False, **more)


def synchronised(both: policies.Policies, loss: policies.Loss) -> policies.Loss:
    """A loss whose reference moves towards the policy after each step: https://arxiv.org/abs/2404.09656, equation 5."""
    import torch

    held = twin.trained_tensors(both.reference, FULL)
    for tensor in held.values():
        tensor.requires_grad_(False)  # noqa: FBT003 - torch's argument
    steps = 0

    def after(step: Any) -> tuple[Any, policies.Metrics]:
        nonlocal steps
        if steps:
            with torch.no_grad():
                for name, tensor in held.items():
                    tensor.mul_(1 - MIXED).add_(MIXED * both.trained[name])
        steps += 1
        return loss(step)

    return after


SYNCHRONISED: dict[str, Any] = {
    "sync_ref_model": True,
    "ref_model_mixup_alpha": MIXED,
    "ref_model_sync_steps": 1,
    "learning_rate": GENTLE,
    "max_steps": 3,
}


@call("Preference losses", phase=Phase.OPTIMIZER, requires=("dpo_sync_ref_model",))
def dpo_synchronised_reference(ctx: Context) -> Iterator[Check]:
    """DPOTrainer's sync_ref_model moves the reference towards the policy, by ref_model_mixup_alpha after each step.

    https://huggingface.co/docs/trl/dpo_trainer#trl.DPOConfig, of TR-DPO.
    """
    both = policies.policies(ctx.cache, FULL)
    rows = [*preference.pairs(), *preference.pairs()[:4]]
    loss = synchronised(both, preference.loss_of(both, preference.each(preference.sigmoid)))
    expected = policies.train(both.trained, policies.dealt(rows, 4), loss, GENTLE)
    made = preference.trainer(ctx, ingredients.base(ctx), rows, ref_model=ingredients.base(ctx), **SYNCHRONISED)
    yield from alignment.as_defined(alignment.trained(made), expected)
    held = twin.trained_tensors(both.reference, FULL)
    found = dict(tiny.named(made.ref_model))
    moved = {name: MIXED * both.trained[name].detach() + (1 - MIXED) * tensor for name, tensor in held.items()}
    off = max(float((found[name].double() - tensor).norm() / tensor.norm()) for name, tensor in moved.items())
    yield at_most("weights of the reference off", off, alignment.SAME)


@call("Preference losses", phase=Phase.OPTIMIZER, requires=("grpo", "grpo_sync_ref_model", "grpo_loss_type"))
def grpo_synchronised_reference(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer's sync_ref_model moves the reference of its divergence towards the policy after each step."""
    both, definition = policies.policies(ctx.cache, FULL), Definition(grpo.by_row, grpo.BETA)
    given = {**usual(), "model": ingredients.base(ctx), "beta": grpo.BETA}
    made, rollouts = grpo.trainer(ctx, {**given, **SYNCHRONISED})
    found = alignment.trained(made)
    steps = [[(True, rows)] for rows in grpo.calls_by_step(rollouts, made)]
    loss = synchronised(both, Follower(both, definition).loss)
    expected = policies.train(both.trained, steps, loss, GENTLE)
    for metrics in expected.metrics:
        for name in set(metrics) - {"reward", "kl"}:
            del metrics[name]
    yield from alignment.as_defined(found, expected, grpo.SAME)


@call("Preference losses", phase=Phase.OPTIMIZER, requires=("kto_sync_ref_model",))
def kto_synchronised_reference(ctx: Context) -> Iterator[Check]:
    """KTOTrainer's sync_ref_model moves the reference of rewards and KL estimate towards the policy after each step."""
    both, data = policies.policies(ctx.cache, FULL), kto.rows()
    settings = {"beta": kto.BETA, "desirable_weight": kto.GOOD, "undesirable_weight": kto.BAD}
    chosen = {**settings, "per_device_train_batch_size": 4, **SYNCHRONISED, "max_steps": 2}
    models = {"model": ingredients.base(ctx), "ref_model": ingredients.base(ctx)}
    made = alignment.create(ctx, "KTO", chosen, train_dataset=kto.columns(data), **models)
    steps = policies.dealt(kto.mismatched(data, 4, 1), 4)
    expected = policies.train(both.trained, steps, synchronised(both, kto.loss_of(both)), GENTLE)
    yield from alignment.as_defined(alignment.trained(made), expected)


@call("Preference losses", phase=Phase.FORWARD, requires=("grpo", "grpo_cast_lm_head_to_fp32"))
def grpo_float32_head(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer's cast_lm_head_to_fp32 has a float32 head on a bfloat16 model, and trains on its objective.

    "Whether to cast the language modeling head of the policy and reference models to float32."
    """
    import torch

    model = ingredients.base(ctx).to(torch.bfloat16)
    given = {**usual(), "beta": grpo.BETA, "model": model, "cast_lm_head_to_fp32": True, "learning_rate": 0.0}
    made, rollouts = grpo.trainer(ctx, given)
    made.train()
    kinds = {str(p.dtype) for name, p in made.model.named_parameters() if "lm_head" not in name}
    yield equal("dtype of the head", str(made.model.lm_head.weight.dtype), "torch.float32")
    yield equal("dtypes of other weights", str(kinds), "{'torch.bfloat16'}")
    both = policies.policies(ctx.cache, FULL)
    entries = [entry for entry in made.state.log_history if "entropy" in entry]
    for entry, rows in zip(entries, grpo.calls_by_step(rollouts, made), strict=True):
        values = [v for row in rows for v in logged_metrics.entropies(both.policy, *row)]
        yield at_most("entropy off", abs(entry["entropy"] / policies.mean(values) - 1), BROAD)
