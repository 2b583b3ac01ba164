"""Rules for the scores of the next token by their definitions, in plain Python.

A rule gets the tokens so far, prompt included, and a score for each token of the vocabulary.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from cases.behaviour.generation import decoding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Scores = list[float]
    Rule = Callable[[Sequence[int], Scores], Scores]


def kept(scores: Sequence[float], tokens: Iterable[int]) -> Scores:
    """The scores of some tokens; all others are forbidden."""
    chosen = set(tokens)
    return [score if token in chosen else -math.inf for token, score in enumerate(scores)]


def log_probabilities(scores: Sequence[float]) -> Scores:
    largest = max(scores)
    whole = largest + math.log(sum(math.exp(score - largest) for score in scores))
    return [score - whole for score in scores]


def entropy(shares: Sequence[float]) -> float:
    return -sum(share * math.log(share) for share in shares if share > 0)


def heavy(shares: Sequence[float], order: Iterable[int], mass: float) -> set[int]:
    """The first tokens of an order that together have at least this mass."""
    found: set[int] = set()
    for token in order:
        if sum(shares[each] for each in found) >= mass:
            break
        found.add(token)
    return found


def top_k(scores: Scores, number: int) -> Scores:
    """The most probable tokens (https://arxiv.org/abs/1805.04833)."""
    return kept(scores, decoding.ranked(scores)[:number])


def top_p(scores: Scores, mass: float) -> Scores:
    """The smallest set of most probable tokens with at least this mass (https://arxiv.org/abs/1904.09751)."""
    shares = decoding.probabilities(scores)
    return kept(scores, heavy(shares, decoding.ranked(shares), mass))


def min_p(scores: Scores, share: float) -> Scores:
    """The tokens with at least this share of the largest probability (https://arxiv.org/abs/2407.01082)."""
    shares = decoding.probabilities(scores)
    return kept(scores, [token for token, each in enumerate(shares) if each >= share * max(shares)])


def typical(scores: Scores, mass: float) -> Scores:
    """The tokens whose information is nearest to the entropy, up to a mass (https://arxiv.org/abs/2202.00666)."""
    shares = decoding.probabilities(scores)
    whole = entropy(shares)
    information = [-math.log(share) if share > 0 else math.inf for share in shares]
    order = sorted(range(len(shares)), key=lambda token: abs(information[token] - whole))
    return kept(scores, heavy(shares, order, mass))


def epsilon(scores: Scores, least: float) -> Scores:
    """The tokens with at least this probability, or the best one (https://arxiv.org/abs/2210.15191, section 3)."""
    shares = decoding.probabilities(scores)
    return kept(scores, [token for token, each in enumerate(shares) if each >= least or each == max(shares)])


def eta(scores: Scores, least: float) -> Scores:
    """As above, with the smaller of the bound and its root times exp(-entropy) (the same, section 3.2)."""
    return epsilon(scores, min(least, math.sqrt(least) * math.exp(-entropy(decoding.probabilities(scores)))))


def top_h(scores: Scores, share: float) -> Scores:
    """The most probable tokens while their part of the entropy is at most this share (arXiv 2509.02510)."""
    shares = decoding.probabilities(scores)
    order, most, used = decoding.ranked(shares), share * entropy(shares), 0.0
    found = {order[0]}
    for token in order:
        used -= shares[token] * math.log(shares[token])
        if used > most:
            break
        found.add(token)
    return kept(scores, found)


def rewarded(scores: Scores, tokens: Iterable[int], factor: float) -> Scores:
    """Multiply positive and divide negative scores of tokens: the inverse of a repetition penalty."""
    return decoding.repetition_penalty(list(tokens), scores, 1 / factor)


def completing(text: Sequence[int], sequences: Iterable[Sequence[int]]) -> list[int]:
    """The last tokens of the sequences whose other tokens are the end of the text."""
    return [each[-1] for each in sequences if list(each[:-1]) == list(text[len(text) - len(each) + 1 :])]


def biased(text: Sequence[int], scores: Scores, biases: Mapping[tuple[int, ...], float]) -> Scores:
    """Add a bias to each token that would complete a sequence."""
    found = list(scores)
    for sequence, bias in biases.items():
        for token in completing(text, [sequence]):
            found[token] += bias
    return found


def grown(scores: Scores, tokens: Iterable[int], factor: float, steps: int) -> Scores:
    """Raise the scores of tokens by their size times factor ** steps - 1, if there are such steps."""
    chosen = set(tokens)
    extra = factor ** max(steps, 0) - 1
    return [score + abs(score) * extra if token in chosen else score for token, score in enumerate(scores)]
