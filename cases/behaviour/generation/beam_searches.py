"""Beam search by its definition, on the log-probabilities of the reference network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.generation import decoding, generating
from cases.behaviour.generation.generating import NEW
from cases.model import tiny
from cases.space.verdict import Phase, at_least, at_most

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Generation"
BEAMS = 3
SAME = 1e-5  # relative: sums of log-probabilities in float32


@dataclass(frozen=True)
class BeamArguments:
    """Arguments of a search; without ``early_stopping`` it goes on as long as a result can become better."""

    length_penalty: float
    early_stopping: bool = False


def ends_of(judge: generating.Judge, batch: Sequence[Sequence[int]]) -> list[int]:
    """Two tokens in the middle of continuations that beam search would choose, so that beams end at different steps."""
    found = [expected_of(judge, row, ends=(), length_penalty=0.0, early_stopping=False)[0].tokens for row in batch[:2]]
    return [generating.first_real(found[0][2:]), generating.first_real(found[1][4:])]


def expected_of(judge: generating.Judge, row: Sequence[int], **arguments: Any) -> list[decoding.Hypothesis]:
    return decoding.beam_search(judge.log_probabilities, row, num_beams=BEAMS, max_new_tokens=NEW, **arguments)


def found_by(model: Any, batch: Sequence[Sequence[int]], search: BeamArguments, **arguments: Any) -> Any:
    return generating.generated(
        model,
        batch,
        num_beams=BEAMS,
        num_return_sequences=BEAMS,
        length_penalty=search.length_penalty,
        early_stopping=search.early_stopping or "never",
        use_cache=True,
        return_dict_in_generate=True,
        output_scores=True,
        **arguments,
    )


def searched(
    ctx: Context,
    search: BeamArguments,
    unlike: BeamArguments,
    *,
    method: str = "full",
    several_ends: bool = False,
    model: str = "llama",
) -> Iterator[Check]:
    """Compare scores and order of the returned sequences with a search by the definition, row by row.

    ``unlike`` is a search with other results, as a control.
    """
    chosen = generating.options(model, method)
    judge, batch = generating.reference(ctx, chosen), generating.prompts()
    ends = ends_of(judge, batch)[: 2 if several_ends else 1]
    # A padding id other than 0: beam_search_padding is about that one.
    loaded = generating.loaded(ctx, chosen)
    found = found_by(loaded, batch, search, eos_token_id=ends, pad_token_id=tiny.START)
    rows = generating.new_tokens(found.sequences, batch)
    kept = [generating.up_to_end(row, ends) for row in rows]
    own = [score_of(judge, batch[number // BEAMS], tokens, search.length_penalty) for number, tokens in enumerate(kept)]
    expected, other = (
        [each for row in batch for each in expected_of(judge, row, ends=ends, **vars(one))] for one in (search, unlike)
    )
    differ = sum(one.tokens != another.tokens for one, another in zip(expected, other, strict=True))
    yield at_least("sequences that another search would not return", differ, 1)
    scores = found.sequences_scores.tolist()
    yield at_most("scores off those of the sequences", furthest(scores, own), SAME)
    steps = loaded.compute_transition_scores(found.sequences, found.scores, found.beam_indices).sum(dim=1)
    sums = [float(step) / len(tokens) ** search.length_penalty for step, tokens in zip(steps, kept, strict=True)]
    yield at_most("transition scores off those of the sequences", furthest(sums, own), SAME)
    yield at_most("scores off the search by its definition", furthest(scores, [each.score for each in expected]), SAME)
    yield from generating.shape_checks(rows, ends, padding=tiny.START)


def score_of(judge: generating.Judge, prompt: Sequence[int], tokens: Sequence[int], penalty: float) -> float:
    """The sum of a continuation's log-probabilities over length ** penalty; the end token counts."""
    chances = judge.logits([*prompt, *tokens])[len(prompt) - 1 : -1].log_softmax(-1)
    total = sum(float(chances[place, token]) for place, token in enumerate(tokens))
    return float(total / len(tokens) ** penalty)


def furthest(found: Sequence[float], expected: Sequence[float]) -> float:
    """The largest relative difference of two lists."""
    if len(found) != len(expected):
        return float("inf")
    return max(abs(one - other) / abs(other) for one, other in zip(found, expected, strict=True))


@call(GROUP, phase=Phase.INFER)
def beam_search_long(ctx: Context) -> Iterator[Check]:
    """Beam search with length_penalty=2 returns the best sequences, by their score over length squared.

    The documentation of ``GenerationConfig``: the length, to the power of the penalty, divides the score.
    """
    yield from searched(ctx, BeamArguments(2.0), BeamArguments(0.0))


@call(GROUP, phase=Phase.INFER)
def beam_search_short(ctx: Context) -> Iterator[Check]:
    """Beam search with length_penalty=0 returns the sequences with the highest probability."""
    yield from searched(ctx, BeamArguments(0.0), BeamArguments(1.0))


@call(GROUP, phase=Phase.INFER)
def beam_search_early(ctx: Context) -> Iterator[Check]:
    """early_stopping=True ends beam search as soon as there are num_beams complete candidates."""
    yield from searched(ctx, BeamArguments(2.0, early_stopping=True), BeamArguments(2.0), model="gpt2")


@call(GROUP, phase=Phase.INFER)
def beam_search_adapted(ctx: Context) -> Iterator[Check]:
    """Beam search of a LoRA model scores sequences by W + s B A."""
    yield from searched(ctx, BeamArguments(0.5), BeamArguments(1.0), method="lora")


@call(GROUP, phase=Phase.INFER)
def beam_search_gpt2(ctx: Context) -> Iterator[Check]:
    """Beam search of padded prompts with learned positions finds the sequences of each prompt alone."""
    yield from searched(ctx, BeamArguments(0.9), BeamArguments(2.0), model="gpt2")


@call(GROUP, phase=Phase.INFER, requires=("model_mistral",))
def beam_search_mistral(ctx: Context) -> Iterator[Check]:
    """Beam search beyond a sliding window reorders the window's cache with its sequences."""
    yield from searched(ctx, BeamArguments(0.9), BeamArguments(2.0), model="mistral")


@call(GROUP, phase=Phase.INFER, requires=("model_qwen3",))
def beam_search_qwen3(ctx: Context) -> Iterator[Check]:
    """Beam search of padded prompts with Qwen 3 finds the sequences of each prompt alone."""
    yield from searched(ctx, BeamArguments(0.9), BeamArguments(2.0), model="qwen3")


@call(GROUP, phase=Phase.INFER)
def beam_search_several_ends(ctx: Context) -> Iterator[Check]:
    """Beam search with several end tokens returns each sequence with the end that it was scored with."""
    yield from searched(ctx, BeamArguments(0.5), BeamArguments(1.0), method="lora", several_ends=True)


@call(GROUP, phase=Phase.INFER)
def beam_search_padding(ctx: Context) -> Iterator[Check]:
    """Beam search fills sequences behind their end with the padding token, also if its id is 0."""
    chosen = generating.options("gpt2")
    judge, batch = generating.reference(ctx, chosen), generating.prompts()
    ends = ends_of(judge, batch)
    found = found_by(generating.loaded(ctx, chosen), batch, BeamArguments(0.9), eos_token_id=ends)
    yield from generating.shape_checks(generating.new_tokens(found.sequences, batch), ends)
