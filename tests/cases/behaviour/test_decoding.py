"""Tests of decoding by its definitions, on distributions that can be computed by hand."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

import pytest

from cases.behaviour.generation import decoding

if TYPE_CHECKING:
    from collections.abc import Sequence

END = 0
SHARES = [0.1, 0.4, 0.2, 0.3]


def chances(rows: Sequence[Sequence[int]]) -> list[list[float]]:
    """Log-probabilities of three tokens: after a 1 another 1 is rare, else it is likely; 0 always has a tenth."""
    return [[math.log(each) for each in ((0.1, 0.1, 0.8) if row[-1] == 1 else (0.1, 0.5, 0.4))] for row in rows]


def search(length_penalty: float = 0.0, *, early_stopping: bool = False, beams: int = 2) -> list[decoding.Hypothesis]:
    return decoding.beam_search(
        chances,
        [2],
        num_beams=beams,
        max_new_tokens=2,
        ends=[END],
        length_penalty=length_penalty,
        early_stopping=early_stopping,
    )


def every_continuation(ends: Sequence[int], most: int) -> list[tuple[tuple[int, ...], float]]:
    """All complete continuations of [2] with their log-probabilities."""
    complete: list[tuple[tuple[int, ...], float]] = []
    running: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    for length in range(1, most + 1):
        longer = [
            ((*tokens, token), total + each)
            for tokens, total in running
            for token, each in enumerate(chances([(2, *tokens)])[0])
        ]
        complete += [one for one in longer if one[0][-1] in ends or length == most]
        running = [one for one in longer if one[0][-1] not in ends]
    return complete


def test_beam_search_finds_the_most_probable_continuation() -> None:
    assert search()[0].tokens == (1, 2)


def test_the_penalty_divides_a_score_by_the_power_of_the_length() -> None:
    assert search(1.0)[0].score == pytest.approx(math.log(0.5 * 0.8) / 2)


def test_a_search_with_all_beams_is_exhaustive() -> None:
    expected = sorted((total / len(tokens) ** 0.5 for tokens, total in every_continuation([END], 2)), reverse=True)
    assert [each.score for each in search(0.5, beams=7)] == pytest.approx(expected)


def test_early_stopping_keeps_the_first_complete_candidates() -> None:
    early = search(2.0, early_stopping=True, beams=3)
    assert {len(each.tokens) for each in early} <= {1, 2}
    assert len(early) == 3


def test_a_penalty_acts_by_the_sign_of_the_score() -> None:
    assert decoding.repetition_penalty([0, 1], [2.0, -2.0, 2.0], 4.0) == [0.5, -8.0, 2.0]


def test_a_pair_may_not_occur_twice() -> None:
    assert decoding.no_repeat_ngram([1, 2, 0, 1], [0.0, 0.0, 0.0], 2) == [0.0, 0.0, -math.inf]


def test_three_tokens_are_compared_with_their_last_two() -> None:
    assert decoding.no_repeat_ngram([1, 2, 0, 1, 2], [0.0, 0.0, 0.0], 3) == [-math.inf, 0.0, 0.0]


def test_top_k_keeps_the_most_probable() -> None:
    assert decoding.top_k(SHARES, 2) == pytest.approx([0, 4 / 7, 0, 3 / 7])


def test_top_p_keeps_the_token_that_reaches_the_mass() -> None:
    assert decoding.top_p(SHARES, 0.75) == pytest.approx([0, 4 / 9, 2 / 9, 3 / 9])


def test_min_p_is_relative_to_the_largest() -> None:
    assert decoding.min_p(SHARES, 0.5) == pytest.approx([0, 4 / 9, 2 / 9, 3 / 9])


def test_the_temperature_divides_scores() -> None:
    assert decoding.probabilities([0.0, 1.0], 0.5)[1] == pytest.approx(1 / (1 + math.exp(-2)))


def test_true_draws_stay_within_the_bound_and_others_do_not() -> None:
    generator, draws = random.Random(0), 8192  # noqa: S311 - no cryptography
    drawn = generator.choices(range(4), weights=SHARES, k=draws)
    counts = [drawn.count(token) for token in range(4)]
    assert decoding.distance(counts, SHARES) < decoding.distance_bound(SHARES, draws)
    assert decoding.distance(counts, [0.2, 0.3, 0.2, 0.3]) > decoding.distance_bound(SHARES, draws)
