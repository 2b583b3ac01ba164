"""RewardTrainer against the loss of a reward model, on pairs of texts of different lengths.

A reward is a linear function of the last token's hidden state: equation 1 of https://arxiv.org/abs/2203.02155.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.preferences import alignment, objectives, policies
from cases.model import architectures, tiny
from cases.reference.models import llama
from cases.reference.network import Batch
from cases.space.options import Options
from cases.space.verdict import Check, Phase, at_most

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cases.apply.context import Context

    Loss = Callable[[Any, Any, float], Any]  # of the rewards of a pair and its margin

GROUP = "Preference losses"
LENGTHS = ((5, 4), (2, 7), (7, 2), (3, 5), (4, 3), (6, 6), (1, 8), (8, 2))
MARGINS = (0.0, 0.5, 1.25, 0.25, 2.0, 0.75, 0.0, 1.0)
CENTRED = 0.3  # center_rewards_coefficient
HEAD = "score.weight"
# A reward is not bounded, and its gradients here have norms of 8 and more: alignment.RATE would move the head by
# several times its size, so that the second step magnifies the rounding of the first.
RATE = 0.1


@dataclass(frozen=True)
class RankedTexts:
    """Token ids with the end token, and how much better the chosen text is."""

    chosen: list[int]
    rejected: list[int]
    margin: float


def pairs(number: int = 8) -> list[RankedTexts]:
    found = zip(policies.texts(LENGTHS[:number]), MARGINS, strict=False)
    return [RankedTexts([*chosen, tiny.END], [*rejected, tiny.END], margin) for (chosen, rejected), margin in found]


def columns(found: list[RankedTexts], *, margins: bool) -> Any:
    """Texts; tokens for versions that leave this to the user."""
    from datasets import Dataset

    data: dict[str, list[Any]] = {}
    if margins:
        data["margin"] = [pair.margin for pair in found]
    for kind in ("chosen", "rejected"):
        ids = [getattr(pair, kind) for pair in found]
        if alignment.source_mentions("Reward", '["chosen"]'):
            data[kind] = [policies.text(each) for each in ids]
        else:
            data[f"input_ids_{kind}"], data[f"attention_mask_{kind}"] = ids, [[1] * len(each) for each in ids]
    return Dataset.from_dict(data)


def reward(both: policies.Policies, ids: list[int]) -> Any:
    import torch

    windows: list[int | None] = [None] * both.policy.config["num_hidden_layers"]
    last = llama.hidden(both.policy, Batch(ids=torch.tensor([ids])), windows=windows)[0, -1]
    return both.trained[HEAD][0] @ last


def reward_policies(ctx: Context) -> policies.Policies:
    """The model with an adapter; a head of one row is trained too."""
    both = policies.policies(ctx.cache, Options())
    both.trained[HEAD] = tiny.values(HEAD, (1, tiny.HIDDEN)).double().requires_grad_()
    return both


def loss_of(both: policies.Policies, loss: Loss, *, logged: bool) -> policies.Loss:
    def mean_loss(batches: list[list[RankedTexts]]) -> tuple[Any, policies.Metrics]:
        every = [pair for batch in batches for pair in batch]
        found = [(reward(both, pair.chosen), reward(both, pair.rejected), pair.margin) for pair in every]
        return policies.mean([loss(*each) for each in found]), metrics(found) if logged else {}

    return mean_loss


def metrics(found: list[tuple[Any, Any, float]]) -> policies.Metrics:
    """https://huggingface.co/docs/trl/reward_trainer#logged-metrics."""
    return {
        "mean_reward": [each.item() for chosen, rejected, _ in found for each in (chosen, rejected)],
        "accuracy": [float(chosen > rejected) for chosen, rejected, _ in found],
        "margin": [(chosen - rejected).item() for chosen, rejected, _ in found],
    }


def model(ctx: Context) -> Any:
    """The checkpoint with a head for one reward, set to our values."""
    import torch
    from transformers import AutoModelForSequenceClassification

    folder = architectures.plain_checkpoint(ctx.cache)
    found = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=1).to(ctx.place.device)
    with torch.no_grad():
        found.score.weight.copy_(tiny.values(HEAD, (1, tiny.HIDDEN)))
    return found.float()


def trainer(ctx: Context, *, size: int, margins: bool, **chosen: Any) -> Any:
    more = {name: chosen.pop(name) for name in ("eval_dataset",) if name in chosen}
    made = alignment.create(
        ctx,
        "Reward",
        {"per_device_train_batch_size": size, "max_length": 32, **chosen},
        model=model(ctx),
        peft_config=alignment.lora(task_type="SEQ_CLS"),
        train_dataset=columns(pairs(), margins=margins),
        **more,
    )
    return alignment.fill(made)


def compared(
    ctx: Context, loss: Loss, *, size: int = 4, accumulation: int = 1, margins: bool = False, **chosen: Any
) -> Iterator[Check]:
    """Train two steps with an adapter and a head, and compare."""
    both = reward_policies(ctx)
    logged = alignment.source_mentions("Reward", '"mean_reward"')
    steps = policies.dealt(pairs(), size, ctx.place.world_size, accumulation)
    expected = policies.train(both.trained, steps, loss_of(both, loss, logged=logged), RATE)
    chosen = {"gradient_accumulation_steps": accumulation, "learning_rate": RATE, **chosen}
    yield from alignment.as_defined(alignment.trained(trainer(ctx, size=size, margins=margins, **chosen)), expected)


def plain(chosen: Any, rejected: Any, _margin: float) -> Any:
    return objectives.bradley_terry(chosen, rejected)


@call(GROUP, phase=Phase.FORWARD)
def reward_loss(ctx: Context) -> Iterator[Check]:
    """RewardTrainer computes the Bradley-Terry loss of the rewards at the last token."""
    yield from compared(ctx, plain)


LOSSES: tuple[dict[str, Any], ...] = (
    {"margins": False, "centred": None},
    {"margins": True, "centred": None},
    {"margins": False, "centred": CENTRED},
    {"margins": True, "centred": CENTRED},
    {"margins": True, "centred": 2.0},
)


@call(GROUP, phase=Phase.FORWARD, requires=("reward_center_rewards_coefficient",))
def reward_losses_of_batches(ctx: Context) -> Iterator[Check]:
    """RewardTrainer.compute_loss of single batches, with and without margins and centring, whatever is logged.

    The margin is subtracted (equation 2 of https://arxiv.org/abs/2307.09288); centring is equation 2 of
    https://arxiv.org/abs/2312.09244.
    """
    both = reward_policies(ctx)
    for chosen in LOSSES:
        margins, centred = chosen["margins"], chosen["centred"]
        made = trainer(ctx, size=4, margins=margins, **({"center_rewards_coefficient": centred} if centred else {}))
        title = f"margins {margins}, centred by {centred}"
        for place, batch in enumerate(made.get_train_dataloader()):
            wanted = []
            for pair in pairs()[4 * place : 4 * place + 4]:
                rewards = reward(both, pair.chosen), reward(both, pair.rejected)
                loss = objectives.bradley_terry(*rewards, pair.margin if margins else 0.0)
                wanted.append(float(loss + (centred or 0.0) * objectives.centring(*rewards)))
            found = float(made.compute_loss(made.model, dict(batch)).detach())
            mean = sum(wanted) / len(wanted)
            yield at_most(f"loss of batch {place} off, {title}", abs(found / mean - 1), 1e-5)


@call(GROUP, phase=Phase.FORWARD)
def reward_margins(ctx: Context) -> Iterator[Check]:
    """RewardTrainer subtracts the margin column, as in equation 2 of https://arxiv.org/abs/2307.09288."""
    yield from compared(ctx, objectives.bradley_terry, margins=True)


@call(GROUP, phase=Phase.FORWARD, requires=("reward_center_rewards_coefficient",))
def reward_centring(ctx: Context) -> Iterator[Check]:
    """RewardTrainer's center_rewards_coefficient adds the mean squared sum of a pair's rewards.

    Equation 2 of https://arxiv.org/abs/2312.09244.
    """

    def loss(chosen: Any, rejected: Any, _margin: float) -> Any:
        return objectives.bradley_terry(chosen, rejected) + CENTRED * objectives.centring(chosen, rejected)

    yield from compared(ctx, loss, center_rewards_coefficient=CENTRED)


@call(GROUP, phase=Phase.BACKWARD)
def reward_accumulation(ctx: Context) -> Iterator[Check]:
    """RewardTrainer with gradient_accumulation_steps=2 takes the mean over the pairs."""
    yield from compared(ctx, plain, size=2, accumulation=2)


@call(GROUP, phase=Phase.BACKWARD, ranks=2)
def reward_ddp(ctx: Context) -> Iterator[Check]:
    """RewardTrainer on two ranks trains on the mean over the pairs of both."""
    yield from compared(ctx, plain, size=2, ddp_find_unused_parameters=False)


@call(GROUP, phase=Phase.FORWARD)
def reward_evaluation(ctx: Context) -> Iterator[Check]:
    """RewardTrainer's evaluation gives the loss and the accuracy over all pairs, also if the last batch is smaller."""
    both, held_out = reward_policies(ctx), pairs(5)
    loss, found = loss_of(both, plain, logged=True)([held_out])
    made = trainer(
        ctx, size=4, margins=False, eval_dataset=columns(held_out, margins=False), per_device_eval_batch_size=2
    )
    logged = found if alignment.source_mentions("Reward", '"mean_reward"') else {"accuracy": found["accuracy"]}
    expected = {"loss": loss.item(), **policies.pooled([logged])}
    yield from alignment.evaluated(made, expected)
