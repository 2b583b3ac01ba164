"""GRPOTrainer against the objectives of the papers, on completions and rewards that a script supplies.

The model's generation is replaced, as for a custom rollout: completions are fixed by the prompt, so that the reference
knows them. A completion ends with the end token or has the largest length.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cases.api import call, ingredients
from cases.behaviour import alignment, objectives, policies
from cases.model import tiny
from cases.space.options import Options
from cases.space.verdict import Check, Phase, at_least

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cases.apply.context import Context

    Objective = Callable[[list[Any]], Any]  # of the loss of each token, by completion

GROUP = "Preference losses"
PROMPTS = (5, 2, 7, 3)  # tokens of each prompt
LENGTHS = (3, 6, 2, 5, 4, 1, 6, 3)  # tokens of completions, with their end
LONGEST, GENERATIONS = 6, 4
EPSILON = 1e-4  # TRL's, https://huggingface.co/docs/trl/grpo_trainer#computing-the-advantage gives none
LOW, HIGH = 0.1, 0.25  # clipping
BETA = 0.2
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
    return policies.mean([each.mean() for each in tokens])


def by_token(tokens: list[Any]) -> Any:
    """The mean over all tokens, equation 8 of https://arxiv.org/abs/2503.14476."""
    return sum(each.sum() for each in tokens) / sum(len(each) for each in tokens)


def by_largest_length(tokens: list[Any]) -> Any:
    """The sum over tokens by a constant, section 3.2 of https://arxiv.org/abs/2503.20783."""
    return sum(each.sum() for each in tokens) / (len(tokens) * LONGEST)


@dataclass
class Case:
    """The hyperparameters of an expected training, and the old policy's log p of the present rollouts."""

    both: policies.Policies
    objective: Objective
    beta: float
    scaled: bool = True
    group: int = GENERATIONS
    bounds: tuple[float, float] = (0.2, 0.2)
    corrected: bool = False
    old: list[Any] = field(default_factory=list)

    def loss(self, step: tuple[bool, list[tuple[list[int], list[int]]]]) -> tuple[Any, policies.Metrics]:
        """The loss of rollouts that are new or used once more."""
        is_new, rows = step
        learned = [policies.log_probabilities(self.both.policy, *row) for row in rows]
        if is_new:
            self.old = [each.detach() for each in learned]
        frozen = [policies.frozen_log_probabilities(self.both.reference, *row) for row in rows]
        rewards = [score(completion) for _, completion in rows]
        advantages = objectives.advantages(rewards, self.group, scaled=self.scaled, epsilon=EPSILON)
        ratios = [now - before for now, before in zip(learned, self.old, strict=True)]
        clipped = [objectives.surrogate(*pair, *self.bounds) for pair in zip(ratios, advantages, strict=True)]
        kl = [objectives.token_kl(now, frozen_now) for now, frozen_now in zip(learned, frozen, strict=True)]
        if self.corrected:  # equation 7 of https://arxiv.org/abs/2512.02556
            kl = [each * ratio.exp() for each, ratio in zip(kl, ratios, strict=True)]
        tokens = [gain + self.beta * each for gain, each in zip(clipped, kl, strict=True)]
        metrics = {"clip_ratio/region_mean": self.clipped(ratios, advantages)}
        if is_new:
            metrics["reward"] = rewards
        if self.beta:
            metrics["kl"] = [each.item() for row in kl for each in row]
        return self.objective(tokens), metrics

    def clipped(self, ratios: list[Any], advantages: list[float]) -> list[float]:
        """Whether clipping changed a token's gain, for each token."""
        low, high = self.bounds
        return [
            float(ratio < 1 - low if advantage < 0 else advantage > 0 and ratio > 1 + high)
            for row, advantage in zip(ratios, advantages, strict=True)
            for ratio in row.exp().tolist()
        ]


def trainer(ctx: Context, **chosen: Any) -> tuple[Any, Rollouts]:
    settings = {
        "per_device_train_batch_size": 2 * GENERATIONS,
        "num_generations": GENERATIONS,
        "max_completion_length": LONGEST,
        "temperature": 1.0,
        **chosen,
    }
    prompts = [policies.text(policies.tokens(length, 500 + row)) for row, length in enumerate(PROMPTS)]
    made = alignment.create(
        ctx,
        "GRPO",
        settings,
        ordered=False,  # the trainer repeats each prompt in an order of its own
        model=ingredients.base(ctx),
        reward_funcs=word_score,
        peft_config=alignment.lora(),
        train_dataset=ingredients.dataset(prompt=prompts),
    )
    rollouts = Rollouts(ctx.place.rank)
    made.model.generate = rollouts.generate
    return alignment.fill(made), rollouts


def compared(
    ctx: Context,
    objective: Objective,
    *,
    beta: float = 0.0,
    logged: tuple[str, ...] = ("reward", "kl"),
    iterations: int = 1,
    scaled: bool = True,
    group: int = GENERATIONS,
    bounds: tuple[float, float] = (0.2, 0.2),
    corrected: bool = False,
    **chosen: Any,
) -> Iterator[Check]:
    """Train two steps with an adapter, then follow its rollouts with the reference, and compare."""
    if "use_bias_correction_kl" in alignment.options_of("GRPO"):
        chosen["use_bias_correction_kl"] = corrected
    made, rollouts = trainer(ctx, beta=beta, **chosen)
    found = alignment.trained(made)
    both = policies.policies(ctx.cache, Options())
    case = Case(both, objective, beta, scaled=scaled, group=group, bounds=bounds, corrected=corrected)
    steps = [[(use == 0, rows)] for rows in calls_by_step(rollouts, made) for use in range(iterations)]
    expected = policies.train(both.trained, steps, case.loss, alignment.RATE)
    if iterations > 1:
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
    types = {"loss_type": "grpo"} if "loss_type" in alignment.options_of("GRPO") else {}
    logged = ("reward", "kl") if types else ("reward",)  # the first versions log the mean of each row's mean
    yield from compared(ctx, by_row, beta=BETA, logged=logged, **types)


@call(GROUP, phase=Phase.FORWARD, requires=("grpo", "grpo_loss_type"))
def grpo_bnpo(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer's bnpo is the mean over the tokens of a batch."""
    yield from compared(ctx, by_token, beta=BETA, loss_type="bnpo")


@call(GROUP, phase=Phase.FORWARD, requires=("grpo", "grpo_use_bias_correction_kl"))
def grpo_corrected_kl(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer's use_bias_correction_kl multiplies each token's divergence by its ratio, which has a gradient.

    Equation 7 of https://arxiv.org/abs/2512.02556. Two iterations, so that the ratio is not only 1.
    """
    more = {"num_iterations": 2, "loss_type": "grpo"}
    yield from compared(ctx, by_row, beta=BETA, iterations=2, corrected=True, logged=("reward",), **more)


@call(GROUP, phase=Phase.FORWARD, requires=("grpo", "grpo_loss_type"))
def grpo_dr_grpo(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer's dr_grpo with scale_rewards=False is the loss of Dr. GRPO: no length and no deviation divides."""
    yield from compared(ctx, by_largest_length, loss_type="dr_grpo", scale_rewards=False, scaled=False)


@call(GROUP, phase=Phase.FORWARD, requires=("grpo", "grpo_dapo"))
def grpo_dapo(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer's dapo with two clipping bounds is the loss of DAPO, the mean over all tokens of a step."""
    yield from compared(
        ctx,
        by_token,
        logged=("reward",),
        loss_type="dapo",
        per_device_train_batch_size=GENERATIONS,
        gradient_accumulation_steps=2,
    )


@call(GROUP, phase=Phase.OPTIMIZER, requires=("grpo", "grpo_num_iterations", "grpo_epsilon_high"))
def grpo_clipping(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer's num_iterations=2 clips the ratio to the policy that generated, by epsilon and epsilon_high."""
    yield from compared(
        ctx,
        by_row,
        logged=("reward", "clip_ratio/region_mean"),
        iterations=2,
        bounds=(LOW, HIGH),
        num_iterations=2,
        epsilon=LOW,
        epsilon_high=HIGH,
        loss_type="grpo",
    )


@call(GROUP, phase=Phase.BACKWARD, requires=("grpo",))
def grpo_accumulation(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer with gradient_accumulation_steps=2 takes the mean over the completions of both batches."""
    types = {"loss_type": "grpo"} if "loss_type" in alignment.options_of("GRPO") else {}
    sizes = {"per_device_train_batch_size": GENERATIONS, "gradient_accumulation_steps": 2}
    yield from compared(ctx, by_row, beta=BETA, logged=("reward",), **types, **sizes)


@call(GROUP, phase=Phase.BACKWARD, ranks=2, requires=("grpo",))
def grpo_ddp(ctx: Context) -> Iterator[Check]:
    """GRPOTrainer on two ranks compares the completions of one prompt across both."""
    types = {"loss_type": "grpo"} if "loss_type" in alignment.options_of("GRPO") else {}
    sizes = {"per_device_train_batch_size": GENERATIONS, "num_generations": 2 * GENERATIONS}
    yield from compared(
        ctx,
        by_row,
        beta=BETA,
        logged=("reward",),
        group=2 * GENERATIONS,
        ddp_find_unused_parameters=False,
        **types,
        **sizes,
    )
