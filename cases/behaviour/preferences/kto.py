"""KTOTrainer against the loss of its paper: rows that are either desirable or not, and a KL estimate for each batch.

Equations 7 and 8 of https://arxiv.org/abs/2402.01306. The reference point of a batch is its mean log ratio of prompts
with the completions of other rows, or 0 if that is negative.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.preferences import alignment, objectives, policies
from cases.model import tiny
from cases.space.options import Options
from cases.space.verdict import Check, Phase, at_least, at_most

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cases.apply.context import Context

GROUP = "Preference losses"
LENGTHS = ((5, 4), (2, 7), (7, 2), (3, 5), (4, 3), (6, 6), (1, 8), (8, 2))
DESIRABLE = (True, False, True, True, False, True, False, False)  # uneven in each half
BETA, GOOD, BAD = 0.3, 1.5, 0.7  # the weights of desirable and undesirable rows differ
SEED = 14  # of rows whose KL estimates are above 0, so that they count
NEGATIVE = 0  # a seed of rows whose mean log ratios are negative
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


def rows(seed: int = SEED, judged: Sequence[bool] = DESIRABLE) -> list[JudgedCompletion]:
    found = zip(policies.texts(LENGTHS, seed), judged, strict=True)
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


def loss_of(both: policies.Policies, *, anchored: bool = True) -> policies.Loss:
    """The mean over rows; not ``anchored``: 0 is the reference point, and no KL estimate is logged."""

    def loss(batches: list[list[JudgedCompletion]]) -> tuple[Any, policies.Metrics]:
        point = divergence(both, batches) if anchored else 0.0
        losses = []
        metrics: policies.Metrics = {"kl": [point]} if anchored else {}
        for row in (row for batch in batches for row in batch):
            found, learned = ratio(both, row.prompt, row.completion)
            weight, kind = (GOOD, "chosen") if row.desirable else (BAD, "rejected")
            losses.append(weight * objectives.kto(found, point, BETA, desirable=row.desirable))
            metrics.setdefault(f"rewards/{kind}", []).append(BETA * found.item())
            metrics.setdefault(f"logps/{kind}", []).append(learned.item())
        return policies.mean(losses), metrics

    return loss


def compared(
    ctx: Context,
    *,
    size: int,
    accumulation: int = 1,
    data: list[JudgedCompletion] | None = None,
    both: policies.Policies | None = None,
    model: Any = None,
    anchored: bool = True,
    negative: bool = False,
    **chosen: Any,
) -> Iterator[Check]:
    """Train two steps with an adapter, and compare; ``negative``: every mean log ratio is below 0."""
    both, data = both or policies.policies(ctx.cache, Options()), data or rows()
    settings = {
        "beta": BETA,
        "desirable_weight": GOOD,
        "undesirable_weight": BAD,
        "per_device_train_batch_size": size,
        "gradient_accumulation_steps": accumulation,
        "data_seed": SHUFFLED,
        **chosen,
    }
    adapted = alignment.fresh(ctx) if model is None else {"model": model}
    trainer = alignment.create(ctx, "KTO", settings, train_dataset=columns(data), **adapted)
    paired = mismatched(in_order_of(trainer, data), size, accumulation)
    steps = policies.dealt(paired, size, ctx.place.world_size, accumulation)
    expected = policies.train(both.trained, steps, loss_of(both, anchored=anchored), alignment.RATE)
    for metrics in expected.metrics:
        if "rewards/chosen" in metrics and "rewards/rejected" in metrics:
            metrics["rewards/margins"] = metrics["rewards/chosen"] - metrics["rewards/rejected"]
    if anchored:
        largest = max(metrics["kl"] for metrics in expected.metrics)
        name = "largest KL estimate"
        yield at_most(name, largest, 0.0) if negative else at_least(name, largest, alignment.SAME)
    yield from alignment.as_defined(alignment.trained(alignment.fill(trainer) if model is None else trainer), expected)


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


@call(GROUP, phase=Phase.FORWARD)
def kto_negative_estimate(ctx: Context) -> Iterator[Check]:
    """KTOTrainer takes a KL estimate of 0 where the mean log ratio is negative."""
    yield from compared(ctx, size=4, data=rows(NEGATIVE), negative=True)


@call(GROUP, phase=Phase.FORWARD)
def kto_one_kind(ctx: Context) -> Iterator[Check]:
    """KTOTrainer trains on batches, and on data sets, whose rows are all desirable, or all not."""
    yield from compared(ctx, size=4, data=rows(judged=[True] * 4 + [False] * 4))
    for desirable in (True, False):
        yield from compared(ctx, size=4, data=rows(judged=[desirable] * 8))


@call(GROUP, phase=Phase.FORWARD)
def kto_apo_zero_unpaired(ctx: Context) -> Iterator[Check]:
    """KTOTrainer's apo_zero_unpaired anchors both kinds of rows at 0 and needs no KL estimate.

    Section 3.1 of https://arxiv.org/abs/2408.06266.
    """
    yield from compared(ctx, size=4, anchored=False, loss_type="apo_zero_unpaired")


@call(GROUP, phase=Phase.FORWARD)
def kto_precomputed_reference(ctx: Context) -> Iterator[Check]:
    """KTOTrainer's precompute_ref_log_probs gives the loss and the KL estimate that it computes without it."""
    yield from compared(ctx, size=4, precompute_ref_log_probs=True, remove_unused_columns=True)
