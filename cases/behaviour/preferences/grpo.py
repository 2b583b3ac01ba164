"""GRPOTrainer against the objectives of the papers, on completions and rewards that a script supplies.

The model's generation is replaced, as for a custom rollout: completions are fixed by the prompt, so that the reference
knows them. A completion ends with the end token or has the largest length.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cases.api import call, ingredients
from cases.behaviour.preferences import alignment, objectives, policies
from cases.model import tiny
from cases.space.options import Options
from cases.space.verdict import Check, Phase, at_least

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cases.apply.context import Context
    from cases.reference.network import Network

    Objective = Callable[[list[Any]], Any]  # of the loss of each token, by completion

GROUP = "Preference losses"
PROMPTS = (5, 2, 7, 3)  # tokens of each prompt
LENGTHS = (3, 6, 2, 5, 4, 1, 6, 3)  # tokens of completions, with their end
LONGEST, GENERATIONS = 6, 4
EPSILON = 1e-4  # TRL's, https://huggingface.co/docs/trl/grpo_trainer#computing-the-advantage gives none
LOW, HIGH = 0.1, 0.25  # clipping
BETA = 0.2
HALVES: Mapping[str, Any] = {"per_device_train_batch_size": GENERATIONS, "gradient_accumulation_steps": 2}
MANY: Mapping[str, Any] = {**HALVES, "gradient_accumulation_steps": 4}
SAME = 2e-5  # relative; advantages of both signs cancel in a gradient


@dataclass
class Rollouts:
    """The rows that a trainer asked for: prompt and completion, token ids, by call."""

    rank: int
    calls: list[list[tuple[list[int], list[int]]]] = field(default_factory=list)

    def generate(self, input_ids: Any, attention_mask: Any = None, **_: Any) -> Any:
        """Replace ``model.generate``: prompts padded on the left, behind them completions padded on the right."""
        import torch

        prompts = [row[mask.bool()].tolist() for row, mask in zip(input_ids, attention_mask, strict=True)]
        rows = [(prompt, self.completion(prompt, place)) for place, prompt in enumerate(prompts)]
        self.calls.append(rows)
        padded = [[*ids, *[tiny.PADDING] * (LONGEST - len(ids))] for _, ids in rows]
        return torch.cat([input_ids, torch.tensor(padded).to(input_ids)], dim=1)

    def completion(self, prompt: list[int], place: int) -> list[int]:
        length = LENGTHS[place % len(LENGTHS)]
        found = policies.tokens(length, sum(prompt) + 100 * place + 10_000 * len(self.calls) + 77 * self.rank)
        return found if length == LONGEST else [*found[:-1], tiny.END]

    def of_all_ranks(self) -> list[list[tuple[list[int], list[int]]]]:
        import torch.distributed as dist

        if not dist.is_initialized():
            return self.calls
        every: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(every, self.calls)
        return [[row for rank in of_call for row in rank] for of_call in zip(*every, strict=True)]


def score(ids: list[int]) -> float:
    """The reward of a completion without its end token."""
    return float(sum(each for each in ids if each != tiny.END) % 11) / 4


def word_score(completions: list[str], **_: Any) -> list[float]:
    """The same of texts, as a reward function of GRPOTrainer."""
    return [score([int(word[1:]) for word in text.split()]) for text in completions]


def by_row(tokens: list[Any]) -> Any:
    """The mean over completions of the mean over their tokens, equation 3 of https://arxiv.org/abs/2402.03300."""
    return policies.mean([each.sum() / max(1, len(each)) for each in tokens])


def by_token(tokens: list[Any]) -> Any:
    """The mean over all tokens, equation 8 of https://arxiv.org/abs/2503.14476."""
    return sum(each.sum() for each in tokens) / sum(len(each) for each in tokens)


def by_largest_length(tokens: list[Any]) -> Any:
    """The sum over tokens by a constant, section 3.2 of https://arxiv.org/abs/2503.20783."""
    return sum(each.sum() for each in tokens) / (len(tokens) * LONGEST)


@dataclass(frozen=True)
class Definition:
    """What defines a loss: how token losses are averaged, and the hyperparameters.

    ``scaled``: advantages are divided by the deviation of their ``group``. ``bounds`` clip the ratio, below and above
    1. ``corrected``: the ratio multiplies the divergence. ``iterations``: the steps for which rollouts are used.
    """

    objective: Objective
    beta: float = 0.0
    scaled: bool = True
    group: int = GENERATIONS
    bounds: tuple[float, float] = (0.2, 0.2)
    corrected: bool = False
    iterations: int = 1
    temperature: float = 1.0

    def advantages(self, completions: list[list[int]]) -> list[float]:
        return objectives.advantages(self.rewards(completions), self.group, scaled=self.scaled, epsilon=EPSILON)

    def gain(self, log_ratio: Any, advantage: float, _learned: Any) -> Any:
        """The loss of each token of a completion; ``_learned`` is log p by the policy."""
        return objectives.surrogate(log_ratio, advantage, *self.bounds)

    def weights(self, _policy: Network, rows: list[tuple[list[int], list[int]]]) -> list[Any]:
        """A factor of each token's gain, by completion."""
        return [1.0] * len(rows)

    def kept(self, _completion: list[int]) -> bool:
        """Whether a completion counts."""
        return True

    def places(self, completion: list[int]) -> list[int]:
        """The places of the tokens of a completion that count."""
        return list(range(len(completion))) if self.kept(completion) else []

    def rewards(self, completions: list[list[int]]) -> list[float]:
        return [score(completion) for completion in completions]

    def bonus(self, _policy: Network, _rows: list[tuple[list[int], list[int]]]) -> Any:
        """What is subtracted from the loss."""
        return 0.0


@dataclass
class Follower:
    """The reference's loss on a trainer's rollouts; ``old`` is log p by the policy that generated them."""

    both: policies.Policies
    definition: Definition
    old: list[Any] = field(default_factory=list)

    def loss(self, step: tuple[bool, list[tuple[list[int], list[int]]]]) -> tuple[Any, policies.Metrics]:
        """The loss of rollouts that are new or used once more."""
        is_new, rows = step
        definition, completions = self.definition, [completion for _, completion in rows]
        heat = definition.temperature
        learned = [policies.log_probabilities(self.both.policy, *row, heat) for row in rows]
        if is_new:
            self.old = [each.detach() for each in learned]
        advantages = definition.advantages(completions)
        ratios = [now - before for now, before in zip(learned, self.old, strict=True)]
        weights = definition.weights(self.both.policy, rows)
        gains = [
            weight * definition.gain(*of_row)
            for weight, *of_row in zip(weights, ratios, advantages, learned, strict=True)
        ]
        frozen = [policies.frozen_log_probabilities(self.both.reference, *row, heat) for row in rows]
        kl = [objectives.token_kl(*pair) for pair in zip(learned, frozen, strict=True)]
        metrics = {"clip_ratio/region_mean": self.clipped(ratios, advantages)}
        if is_new:
            metrics["reward"] = definition.rewards(completions)
        if definition.beta:
            metrics["kl"] = [each.item() for row in kl for each in row]
        if definition.corrected:  # equation 7 of https://arxiv.org/abs/2512.02556
            kl = [each * ratio.exp() for each, ratio in zip(kl, ratios, strict=True)]
        tokens = [gain + definition.beta * each for gain, each in zip(gains, kl, strict=True)]
        counted = zip(tokens, completions, strict=True)
        loss = definition.objective([row[definition.places(ids)] for row, ids in counted])
        return loss - definition.bonus(self.both.policy, rows), metrics

    def clipped(self, ratios: list[Any], advantages: list[float]) -> list[float]:
        """Whether clipping changed a token's gain, for each token."""
        low, high = self.definition.bounds
        return [
            float(ratio < 1 - low if advantage < 0 else advantage > 0 and ratio > 1 + high)
            for row, advantage in zip(ratios, advantages, strict=True)
            for ratio in row.exp().tolist()
        ]


def prompts() -> list[str]:
    return [policies.text(policies.tokens(length, 500 + row)) for row, length in enumerate(PROMPTS)]


def trainer(ctx: Context, chosen: dict[str, Any], kind: str = "GRPO", **more: Any) -> tuple[Any, Rollouts]:
    """A trainer on a few prompts; ``columns`` of ``chosen`` are further ones, ``evaluated``: on the same rows.

    ``streamed``: the prompts are a stream. ``more`` goes to the trainer.
    """
    settings = {
        "per_device_train_batch_size": 2 * GENERATIONS,
        "num_generations": GENERATIONS,
        "max_completion_length": LONGEST,
        **chosen,
    }
    data = ingredients.dataset(**{"prompt": prompts(), **settings.pop("columns", {})})
    judged = {"eval_dataset": data} if settings.pop("evaluated", False) else {}
    if settings.pop("streamed", False):
        data = data.to_iterable_dataset()
    adapted = {"model": settings.pop("model")} if "model" in settings else alignment.fresh(ctx)
    judge = settings.pop("reward_funcs", word_score)
    made = alignment.create(
        ctx,
        kind,
        settings,
        ordered=False,  # the trainer repeats each prompt in an order of its own
        reward_funcs=judge,
        train_dataset=data,
        **judged,
        **adapted,
        **more,
    )
    rollouts = Rollouts(ctx.place.rank)
    made.model.generate = rollouts.generate
    return alignment.fill(made) if "peft_config" in adapted else made, rollouts


def compared(
    ctx: Context,
    definition: Definition,
    *,
    logged: tuple[str, ...] = ("reward", "kl"),
    both: policies.Policies | None = None,
    **chosen: Any,
) -> Iterator[Check]:
    """Train two steps with an adapter, then follow its rollouts with the reference, and compare."""
    known = alignment.options_of("GRPO")
    chosen = {"beta": definition.beta, **chosen}
    if "use_bias_correction_kl" in known:
        chosen["use_bias_correction_kl"] = definition.corrected
    if "loss_type" in known:
        chosen = {"loss_type": "grpo", **chosen}
    made, rollouts = trainer(ctx, {"temperature": definition.temperature, **chosen})
    yield from followed(made, rollouts, definition, both or policies.policies(ctx.cache, Options()), logged)


def followed(
    made: Any,
    rollouts: Rollouts,
    definition: Definition,
    both: policies.Policies,
    logged: tuple[str, ...],
    loss: policies.Loss | None = None,
) -> Iterator[Check]:
    """Train, and follow the rollouts with the reference; ``loss`` is by default that of a ``Follower``."""
    found = alignment.trained(made)
    calls, times = calls_by_step(rollouts, made), definition.iterations
    steps = [[(use == 0, rows)] for rows in calls for use in range(times)]
    expected = policies.train(both.trained, steps, loss or Follower(both, definition).loss, alignment.RATE)
    if times > 1 and loss is None:
        share = max(metrics["clip_ratio/region_mean"] for metrics in expected.metrics)
        yield at_least("expected share of clipped tokens", share, 0.01)
    for metrics in expected.metrics:
        for name in set(metrics) - set(logged):
            del metrics[name]
    yield from alignment.as_defined(found, expected, SAME)


def calls_by_step(rollouts: Rollouts, made: Any) -> list[list[tuple[list[int], list[int]]]]:
    """The rollouts of each step; early versions generate for each micro-batch of a step."""
    calls, rows = rollouts.of_all_ranks(), made.args.per_device_train_batch_size * made.args.world_size
    number = made.args.gradient_accumulation_steps if len(calls[0]) == rows else 1
    return [[row for of_call in calls[at : at + number] for row in of_call] for at in range(0, len(calls), number)]


@call(GROUP, phase=Phase.FORWARD, requires=("grpo",))
def grpo_loss(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer computes the loss of the GRPO paper, with its KL divergence from the model without its adapter."""
    by_token_kl = "loss_type" in alignment.options_of("GRPO")  # the first version logs the mean of each row's mean
    yield from compared(ctx, Definition(by_row, BETA), logged=("reward", "kl") if by_token_kl else ("reward",))


@call(GROUP, phase=Phase.FORWARD, requires=("grpo", "grpo_loss_type"))
def grpo_bnpo(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer's bnpo is the mean over the tokens of a batch."""
    yield from compared(ctx, Definition(by_token, BETA), loss_type="bnpo")


@call(GROUP, phase=Phase.FORWARD, requires=("grpo", "grpo_use_bias_correction_kl"))
def grpo_corrected_kl(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer's use_bias_correction_kl multiplies each token's divergence by its ratio, which has a gradient.

    Equation 7 of https://arxiv.org/abs/2512.02556. Two iterations, so that the ratio is not only 1.
    """
    definition = Definition(by_row, BETA, corrected=True, iterations=2)
    yield from compared(ctx, definition, logged=("reward",), num_iterations=2)


@call(GROUP, phase=Phase.FORWARD, requires=("grpo", "grpo_loss_type"))
def grpo_dr_grpo(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer's dr_grpo with scale_rewards=False is the loss of Dr. GRPO: no length and no deviation divides."""
    yield from compared(ctx, Definition(by_largest_length, scaled=False), loss_type="dr_grpo", scale_rewards=False)


@call(GROUP, phase=Phase.FORWARD, requires=("grpo", "grpo_dapo"))
def grpo_dapo(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer's dapo is the mean over all tokens of a step, also with gradient_accumulation_steps=2."""
    yield from compared(ctx, Definition(by_token), logged=("reward",), loss_type="dapo", **HALVES)


@call(GROUP, phase=Phase.OPTIMIZER, requires=("grpo", "grpo_num_iterations", "grpo_epsilon_high"))
def grpo_clipping(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer's num_iterations=2 clips the ratio to the policy that generated, by epsilon and epsilon_high."""
    definition = Definition(by_row, bounds=(LOW, HIGH), iterations=2)
    names = ("reward", "clip_ratio/region_mean")
    yield from compared(ctx, definition, logged=names, num_iterations=2, epsilon=LOW, epsilon_high=HIGH)


@call(GROUP, phase=Phase.BACKWARD, requires=("grpo",))
def grpo_accumulation(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer with gradient_accumulation_steps takes the mean over the completions of all batches of a step.

    The reference scores what is generated in batches too; at last these are more rows than a row has tokens.
    """
    yield from compared(ctx, Definition(by_row, BETA), logged=("reward",), **HALVES)
    yield from compared(ctx, Definition(by_row, BETA), logged=("reward",), **MANY)


@call(GROUP, phase=Phase.BACKWARD, ranks=2, requires=("grpo",))
def grpo_ddp(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer on two ranks compares the completions of one prompt across both."""
    group = 2 * GENERATIONS
    more: dict[str, Any] = {"num_generations": group, "ddp_find_unused_parameters": False}
    more["per_device_train_batch_size"] = GENERATIONS
    yield from compared(ctx, Definition(by_row, BETA, group=group), logged=("reward",), **more)


@call(GROUP, phase=Phase.BACKWARD, ranks=2, requires=("grpo", "grpo_dapo"))
def grpo_tokens_of_all_ranks(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer's dapo, also the default loss, divides by the completions' tokens of all ranks, which differ."""
    more: dict[str, Any] = {"ddp_find_unused_parameters": False, "per_device_train_batch_size": GENERATIONS}
    for accumulation in (1, 2):
        more["gradient_accumulation_steps"] = accumulation
        yield from compared(ctx, Definition(by_token), logged=("reward",), loss_type="dapo", **more)
