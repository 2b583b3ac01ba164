"""KTOTrainer against the loss of its paper: rows that are either desirable or not, and a KL estimate for each batch.

Equations 7 and 8 of https://arxiv.org/abs/2402.01306. The reference point of a batch is its mean log ratio of prompts
with the completions of other rows, or 0 if that is negative.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cases.api import call, ingredients
from cases.behaviour.preferences import alignment, objectives, policies
from cases.model import tiny
from cases.space.options import Options
from cases.space.verdict import Check, Phase, at_least

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cases.apply.context import Context

GROUP = "Preference losses"
LENGTHS = ((5, 4), (2, 7), (7, 2), (3, 5), (4, 3), (6, 6), (1, 8), (8, 2))
DESIRABLE = (True, False, True, True, False, True, False, False)  # uneven in each half
BETA, GOOD, BAD = 0.3, 1.5, 0.7  # the weights of desirable and undesirable rows differ
SEED = 14  # of rows whose KL estimates are above 0, so that they count
SHUFFLED = 0  # the seed with which early versions shuffle the dataset


@dataclass(frozen=True)
class JudgedCompletion:
    """Token ids, without the end token that the trainer adds to a completion.

    The KL estimate pairs the prompt with ``other``, the completion of another row.
    """

    prompt: list[int]
    completion: list[int]
    desirable: bool
    other: tuple[int, ...] = ()


def rows() -> list[JudgedCompletion]:
    found = zip(policies.texts(LENGTHS, SEED), DESIRABLE, strict=True)
    return [JudgedCompletion([tiny.START, *prompt], completion, good) for (prompt, completion), good in found]


def columns(found: list[JudgedCompletion]) -> Any:
    from datasets import Dataset

    return Dataset.from_dict(
        {
            "prompt": [policies.text(row.prompt) for row in found],
            "completion": [policies.text(row.completion) for row in found],
            "label": [row.desirable for row in found],
        }
    )


def ratio(both: policies.Policies, prompt: Sequence[int], completion: Sequence[int]) -> tuple[Any, Any]:
    """log(pi/ref) of a completion and its end, and log pi."""
    ended = [*completion, tiny.END]
    learned = policies.log_probabilities(both.policy, prompt, ended).sum()
    return learned - policies.frozen_log_probabilities(both.reference, prompt, ended).sum(), learned


def mismatched(found: list[JudgedCompletion], size: int, accumulation: int) -> list[JudgedCompletion]:
    """Rows with the completion of the row before in their batch or, in early versions, from the end of their step."""
    early = alignment.source_mentions("KTO", '["answer_input_ids"][::-1]')
    window = size * accumulation if early else size
    paired = []
    for begin in range(0, len(found), window):
        batch = found[begin : begin + window]
        others = batch[::-1] if early else [batch[-1], *batch[:-1]]
        paired += [replace(row, other=tuple(other.completion)) for row, other in zip(batch, others, strict=True)]
    return paired


def in_order_of(trainer: Any, found: list[JudgedCompletion]) -> list[JudgedCompletion]:
    """The rows in the trainer's order: early versions shuffle the dataset."""
    if "prompt" not in trainer.train_dataset.column_names:
        return found
    by_text = {policies.text(row.prompt).strip(): row for row in found}
    return [by_text[text.strip()] for text in trainer.train_dataset["prompt"]]


def divergence(both: policies.Policies, batches: list[list[JudgedCompletion]]) -> float:
    """The reference point: the mean over the ranks, not below 0."""
    import torch

    with torch.no_grad():
        means = [policies.mean([ratio(both, row.prompt, row.other)[0].item() for row in each]) for each in batches]
    return max(0.0, float(policies.mean(means)))


def loss_of(both: policies.Policies) -> policies.Loss:
    def loss(batches: list[list[JudgedCompletion]]) -> tuple[Any, policies.Metrics]:
        point = divergence(both, batches)
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
    both = policies.policies(ctx.cache, Options())
    settings = {
        "beta": BETA,
        "desirable_weight": GOOD,
        "undesirable_weight": BAD,
        "per_device_train_batch_size": size,
        "gradient_accumulation_steps": accumulation,
        "data_seed": SHUFFLED,
        **chosen,
    }
    trainer = alignment.create(
        ctx,
        "KTO",
        settings,
        model=ingredients.base(ctx),
        peft_config=alignment.lora(),
        train_dataset=columns(rows()),
    )
    data = mismatched(in_order_of(trainer, rows()), size, accumulation)
    steps = policies.dealt(data, size, ctx.place.world_size, accumulation)
    expected = policies.train(both.trained, steps, loss_of(both), alignment.RATE)
    for metrics in expected.metrics:
        metrics["rewards/margins"] = metrics["rewards/chosen"] - metrics["rewards/rejected"]
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
