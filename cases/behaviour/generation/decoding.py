"""Decoding by its definitions, in plain Python: penalties, truncated distributions, beam search.

Tokens are numbers; scores of the next token are a list with one number per token of the vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Rows = Sequence[Sequence[int]]
    LogProbabilities = Callable[[Rows], list[list[float]]]  # of the next token of each row

FALSE_ALARM = 1e-7


def repetition_penalty(text: Sequence[int], scores: Sequence[float], penalty: float) -> list[float]:
    """Divide positive scores of tokens that occurred by the penalty and multiply negative ones (arXiv 1909.05858)."""
    seen = set(text)
    return [
        score if token not in seen else (score / penalty if score > 0 else score * penalty)
        for token, score in enumerate(scores)
    ]


def no_repeat_ngram(text: Sequence[int], scores: Sequence[float], size: int) -> list[float]:
    """Forbid tokens that would complete a sequence of ``size`` tokens that occurred (https://arxiv.org/abs/1705.04304)."""
    last = tuple(text[len(text) - size + 1 :])
    grams = [tuple(text[start : start + size]) for start in range(len(text) - size + 1)]
    forbidden = {gram[-1] for gram in grams if gram[:-1] == last}
    return [-math.inf if token in forbidden else score for token, score in enumerate(scores)]


def without(scores: Sequence[float], tokens: Sequence[int]) -> list[float]:
    return [-math.inf if token in tokens else score for token, score in enumerate(scores)]


def probabilities(scores: Sequence[float], temperature: float = 1.0) -> list[float]:
    largest = max(scores)
    powers = [math.exp((score - largest) / temperature) for score in scores]
    return [power / sum(powers) for power in powers]


def only(shares: Sequence[float], kept: set[int]) -> list[float]:
    """A distribution restricted to some tokens, and normalised."""
    whole = sum(shares[token] for token in kept)
    return [share / whole if token in kept else 0.0 for token, share in enumerate(shares)]


def ranked(shares: Sequence[float]) -> list[int]:
    return sorted(range(len(shares)), key=lambda token: -shares[token])


def top_k(shares: Sequence[float], number: int) -> list[float]:
    """The most probable tokens (https://arxiv.org/abs/1805.04833)."""
    return only(shares, set(ranked(shares)[:number]))


def top_p(shares: Sequence[float], mass: float) -> list[float]:
    """The smallest set of most probable tokens that has at least this mass (https://arxiv.org/abs/1904.09751)."""
    kept: set[int] = set()
    for token in ranked(shares):
        if sum(shares[each] for each in kept) >= mass:
            break
        kept.add(token)
    return only(shares, kept)


def min_p(shares: Sequence[float], share: float) -> list[float]:
    """The tokens with at least this share of the largest probability (https://arxiv.org/abs/2407.01082)."""
    return only(shares, {token for token, each in enumerate(shares) if each >= share * max(shares)})


def distance(counts: Sequence[int], shares: Sequence[float]) -> float:
    """The total variation distance of drawn tokens from their distribution."""
    draws = sum(counts)
    return sum(abs(count / draws - share) for count, share in zip(counts, shares, strict=True)) / 2


def distance_bound(shares: Sequence[float], draws: int) -> float:
    """A bound that the distance of independent draws exceeds with a probability of at most ``FALSE_ALARM``.

    Its expectation is at most half the sum of the shares' standard deviations, by Jensen's inequality; one draw changes
    it by at most 1 / draws, so McDiarmid's inequality bounds the rest.
    """
    expected = sum(math.sqrt(share * (1 - share) / draws) for share in shares) / 2
    return expected + math.sqrt(math.log(1 / FALSE_ALARM) / (2 * draws))


@dataclass(frozen=True)
class Hypothesis:
    """A completed continuation with its score: the sum of its log-probabilities over length ** length_penalty."""

    tokens: tuple[int, ...]
    score: float


def beam_search(
    log_probabilities: LogProbabilities,
    prompt: Sequence[int],
    *,
    num_beams: int,
    max_new_tokens: int,
    ends: Sequence[int],
    length_penalty: float,
    early_stopping: bool,
) -> list[Hypothesis]:
    """The completed continuations with the highest scores, best first.

    In each step, the best ``num_beams`` continuations that do not end go on, and those among the best ``num_beams`` of
    all that end, or have reached the length, are complete. With ``early_stopping``, the search ends when it has
    ``num_beams`` complete ones, else only when none can become better (transformers' "never").
    """
    running: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    complete: list[Hypothesis] = []
    for length in range(1, max_new_tokens + 1):
        rows = log_probabilities([(*prompt, *tokens) for _, tokens in running])
        candidates = sorted(
            (
                (total + each, (*tokens, token))
                for (total, tokens), row in zip(running, rows, strict=True)
                for token, each in enumerate(row)
            ),
            reverse=True,
        )
        complete += [
            Hypothesis(tokens, total / length**length_penalty)
            for total, tokens in candidates[:num_beams]
            if tokens[-1] in ends or length == max_new_tokens
        ]
        complete = sorted(complete, key=lambda each: -each.score)[:num_beams]
        if early_stopping and len(complete) == num_beams:
            break
        running = [each for each in candidates if each[1][-1] not in ends][:num_beams]
    return complete
