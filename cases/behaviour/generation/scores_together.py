"""Settings of generation that act on the same scores, one after another.

https://huggingface.co/docs/transformers/main_classes/text_generation#transformers.GenerationConfig
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cases.api import call
from cases.behaviour.generation import decoding, score_rules
from cases.behaviour.generation.processed_scores import END, FACTOR, GROUP, OTHER, START, checked, new
from cases.space.verdict import Phase

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cases.apply.context import Context
    from cases.behaviour.generation.score_rules import Scores
    from cases.space.verdict import Check


@call(GROUP, phase=Phase.INFER)
def scores_of_forbidden_ends(ctx: Context) -> Iterator[Check]:
    """exponential_decay_length_penalty leaves ends that min_new_tokens forbids at minus infinity, and raises others."""
    ends, fewest = [END, OTHER], START + 3

    def rule(text: Sequence[int], scores: Scores) -> Scores:
        if new(text) < fewest:
            return decoding.without(scores, ends)
        return score_rules.grown(scores, ends, FACTOR, new(text) - START)

    settings = {"exponential_decay_length_penalty": (START, FACTOR), "min_new_tokens": fewest}
    yield from checked(ctx, {"both": (settings, rule)})
