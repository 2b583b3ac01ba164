"""KTOTrainer against the loss of its paper: rows that are either desirable or not, and a KL estimate for each batch.

Equations 7 and 8 of https://arxiv.org/abs/2402.01306. The reference point of a batch is its mean log ratio of prompts
with the completions of other rows, or 0 if that is negative.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cases.api import call, ingredients
from cases.behaviour import alignment, objectives, policies
from cases.model import tiny
from cases.space.options import Options
from cases.space.verdict import Check, Phase, at_least

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "Preference losses"
LENGTHS = ((5, 4), (2, 7), (7, 2), (3, 5), (4, 3), (6, 6), (1, 8), (8, 2))
DESIRABLE = (True, False, True, True, False, True, False, False)  # uneven in each half
BETA, GOOD, BAD = 0.3, 1.5, 0.7  # the weights of desirable and undesirable rows differ
SEED = 14  # of rows whose KL estimates are above 0, so that they count


@dataclass(frozen=True)
class Row:
    """Token ids, without the end token that the trainer adds to a completion."""

    prompt: list[int]
    completion: list[int]
    desirable: bool


def rows() -> list[Row]:
    found = zip(policies.texts(LENGTHS, SEED), DESIRABLE, strict=True)
    return [Row([tiny.START, *prompt], completion, good) for (prompt, completion), good in found]


def columns(found: list[Row]) -> Any:
    from datasets import Dataset

    return Dataset.from_dict(
        {
            "prompt": [policies.text(row.prompt) for row in found],
            "completion": [policies.text(row.completion) for row in found],
            "label": [row.desirable for row in found],
        }
    )


def ratio(both: policies.Policies, prompt: list[int], completion: list[int]) -> tuple[Any, Any]:
    """log(pi/ref) of a completion and its end, and log pi."""
    ended = [*completion, tiny.END]
    learned = policies.log_probabilities(both.policy, prompt, ended).sum()
    return learned - policies.frozen_log_probabilities(both.reference, prompt, ended).sum(), learned


def mismatched(batch: list[Row], *, reversed_order: bool) -> list[tuple[list[int], list[int]]]:
    """Each prompt with the completion of another row: of the one before it or, in early versions, from the end."""
    completions = [row.completion for row in batch]
    others = completions[::-1] if reversed_order else [completions[-1], *completions[:-1]]
    return [(row.prompt, other) for row, other in zip(batch, others, strict=True)]


def divergence(both: policies.Policies, batches: list[list[Row]], *, reversed_order: bool) -> float:
    """The reference point: the mean over the ranks, not below 0."""
    import torch

    with torch.no_grad():
        means = [
            policies.mean([ratio(both, *pair)[0].item() for pair in mismatched(batch, reversed_order=reversed_order)])
            for batch in batches
        ]
    return max(0.0, float(policies.mean(means)))


def loss_of(both: policies.Policies, *, reversed_order: bool) -> policies.Loss:
    def loss(batches: list[list[Row]]) -> tuple[Any, policies.Metrics]:
        point = divergence(both, batches, reversed_order=reversed_order)
        losses = []
        metrics: policies.Metrics = {"kl": [point]}
        for row in (row for batch in batches for row in batch):
            found, learned = ratio(both, row.prompt, row.completion)
            weight, kind = (GOOD, "chosen") if row.desirable else (BAD, "rejected")
            losses.append(weight * objectives.kto(found, point, BETA, desirable=row.desirable))
            metrics.setdefault(f"rewards/{kind}", []).append(BETA * found.item())
            metrics.setdefault(f"logps/{kind}", []).append(learned.item())
        return policies.mean(losses), metrics

    return loss


def compared(ctx: Context, *, size: int, accumulation: int = 1, **chosen: Any) -> Iterator[Check]:
    """Train two steps with an adapter, and compare."""
    both, data = policies.policies(ctx.cache, Options()), rows()
    steps = policies.dealt(data, size, ctx.place.world_size, accumulation)
    loss = loss_of(both, reversed_order=alignment.source_mentions("KTO", '["answer_input_ids"][::-1]'))
    expected = policies.train(both.trained, steps, loss, alignment.RATE)
    for metrics in expected.metrics:
        metrics["rewards/margins"] = metrics["rewards/chosen"] - metrics["rewards/rejected"]
    settings = {
        "beta": BETA,
        "desirable_weight": GOOD,
        "undesirable_weight": BAD,
        "per_device_train_batch_size": size,
        "gradient_accumulation_steps": accumulation,
        **chosen,
    }
    trainer = alignment.create(
        ctx,
        "KTO",
        settings,
        model=ingredients.base(ctx),
        peft_config=alignment.lora(),
        train_dataset=columns(data),
    )
    yield at_least("largest KL estimate", max(metrics["kl"] for metrics in expected.metrics), alignment.SAME)
    yield from alignment.as_defined(alignment.trained(alignment.fill(trainer)), expected)


@call(GROUP, phase=Phase.FORWARD)
def kto_loss(ctx: Context) -> Iterator[Check]:
    """KTOTrainer computes the loss of its paper, with the KL estimate from mismatched prompts and completions."""
    yield from compared(ctx, size=4)


@call(GROUP, phase=Phase.BACKWARD)
def kto_accumulation(ctx: Context) -> Iterator[Check]:
    """KTOTrainer with gradient_accumulation_steps=2 takes and logs means over rows, however its batches are mixed."""
    yield from compared(ctx, size=2, accumulation=2)


@call(GROUP, phase=Phase.BACKWARD, ranks=2)
def kto_ddp(ctx: Context) -> Iterator[Check]:
    """KTOTrainer on two ranks shares the KL estimate, and trains on the mean over the rows of both."""
    yield from compared(ctx, size=2, ddp_find_unused_parameters=False)
