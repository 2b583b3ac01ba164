"""Sampling: the frequencies of thousands of drawn tokens against the exact distribution of the reference network."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.generation import decoding, generating
from cases.model import tiny
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Generation"
DRAWS, SEED = 8192, 0
TEMPERATURE, NUMBER, MASS, SHARE = 0.5, 12, 0.7, 0.25


def drawn(ctx: Context, prompt: list[int], **arguments: Any) -> list[int]:
    """How often each token was drawn first, in one batch."""
    import torch

    torch.manual_seed(SEED)
    usual = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0}
    model = generating.loaded(ctx, generating.options())
    rows = generating.generated(model, [prompt], max_new_tokens=1, num_return_sequences=DRAWS, **{**usual, **arguments})
    counts: list[int] = torch.bincount(rows[:, -1].cpu(), minlength=tiny.VOCABULARY).tolist()
    return counts


def sampled(ctx: Context, shares: Any, **arguments: Any) -> Iterator[Check]:
    """Compare drawn tokens with the distribution that ``shares`` makes of the reference's scores."""
    prompt = generating.prompts()[0]
    scores = generating.reference(ctx, generating.options()).logits(prompt)[-1].tolist()
    expected, counts = shares(scores), drawn(ctx, prompt, **arguments)
    yield at_most(
        "distance from the distribution",
        decoding.distance(counts, expected),
        decoding.distance_bound(expected, DRAWS),
    )
    outside = sum(count for count, share in zip(counts, expected, strict=True) if share == 0)
    yield equal("draws outside the distribution", outside, 0)
    probable = math.log(len(counts) / decoding.FALSE_ALARM) / DRAWS  # each is never drawn with exp(-share * draws)
    missing = sum(not count for count, share in zip(counts, expected, strict=True) if share >= probable)
    yield equal("probable tokens that were never drawn", missing, 0)


@call(GROUP, phase=Phase.INFER)
def sample_plain(ctx: Context) -> Iterator[Check]:
    """do_sample draws from the softmax of the logits."""
    yield from sampled(ctx, decoding.probabilities)


@call(GROUP, phase=Phase.INFER)
def sample_temperature(ctx: Context) -> Iterator[Check]:
    """The temperature divides the logits before the softmax."""
    yield from sampled(ctx, lambda scores: decoding.probabilities(scores, TEMPERATURE), temperature=TEMPERATURE)


@call(GROUP, phase=Phase.INFER)
def sample_top_k(ctx: Context) -> Iterator[Check]:
    """top_k draws from the most probable tokens alone."""
    yield from sampled(ctx, lambda scores: decoding.top_k(decoding.probabilities(scores), NUMBER), top_k=NUMBER)


@call(GROUP, phase=Phase.INFER)
def sample_top_p(ctx: Context) -> Iterator[Check]:
    """top_p draws from the smallest set of tokens that has at least this probability."""
    yield from sampled(ctx, lambda scores: decoding.top_p(decoding.probabilities(scores), MASS), top_p=MASS)


@call(GROUP, phase=Phase.INFER, requires=("min_p",))
def sample_min_p(ctx: Context) -> Iterator[Check]:
    """min_p draws from tokens with at least this share of the largest probability."""
    yield from sampled(ctx, lambda scores: decoding.min_p(decoding.probabilities(scores), SHARE), min_p=SHARE)


@call(GROUP, phase=Phase.INFER)
def sample_all_together(ctx: Context) -> Iterator[Check]:
    """The temperature acts first, then top_k, then top_p on what top_k left."""

    def shares(scores: list[float]) -> list[float]:
        return decoding.top_p(decoding.top_k(decoding.probabilities(scores, TEMPERATURE), NUMBER), MASS)

    yield from sampled(ctx, shares, temperature=TEMPERATURE, top_k=NUMBER, top_p=MASS)
