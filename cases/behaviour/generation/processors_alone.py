"""Processors of scores on their own: the arguments that they refuse, and what they keep at the ends of their range.

https://huggingface.co/docs/transformers/internal/generation_utils
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.space.verdict import Check, Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "Scores"
KEPT = "min_tokens_to_keep"
ALMOST_ONE = 0.9999999  # sums in float32 do not reach it
# By class: arguments that it refuses with a ValueError, with a word of its message.
REFUSED: dict[str, tuple[tuple[dict[str, Any], str], ...]] = {
    "MinLengthLogitsProcessor": (({"min_length": -1, "eos_token_id": 2}, "min_length"),),
    "MinNewTokensLengthLogitsProcessor": (
        ({"prompt_length_to_skip": -1, "min_new_tokens": 2, "eos_token_id": 2}, "prompt_length_to_skip"),
        ({"prompt_length_to_skip": 2, "min_new_tokens": -1, "eos_token_id": 2}, "min_new_tokens"),
    ),
    "TemperatureLogitsWarper": tuple(({"temperature": value}, "temperature") for value in (0.0, -1.0, 2)),
    "RepetitionPenaltyLogitsProcessor": tuple(({"penalty": value}, "penalty") for value in (0.0, -1.0, 2)),
    "EncoderRepetitionPenaltyLogitsProcessor": tuple(
        ({"penalty": value, "encoder_input_ids": None}, "penalty") for value in (0.0, 2)
    ),
    "TopPLogitsWarper": (
        ({"top_p": -0.1}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"top_p": 0.5, KEPT: 0}, KEPT),
        ({"top_p": 0.5, KEPT: 1.5}, KEPT),
    ),
    "TopKLogitsWarper": tuple(({"top_k": value}, "top_k") for value in (0, -3, 2.5)),
    "MinPLogitsWarper": (
        ({"min_p": -0.1}, "min_p"),
        ({"min_p": 1.1}, "min_p"),
        ({"min_p": 0.5, KEPT: 0}, KEPT),
        ({"min_p": 0.5, KEPT: 1.5}, KEPT),
    ),
    "TypicalLogitsWarper": (
        ({"mass": 0.0}, "typical_p"),
        ({"mass": 1.0}, "typical_p"),
        ({"mass": 0.5, KEPT: 0}, KEPT),
        ({"mass": 0.5, KEPT: 1.5}, KEPT),
    ),
    "EpsilonLogitsWarper": (
        ({"epsilon": 0.0}, "epsilon_cutoff"),
        ({"epsilon": 1.0}, "epsilon_cutoff"),
        ({"epsilon": 0.5, KEPT: 0}, KEPT),
    ),
    "EtaLogitsWarper": (
        ({"epsilon": 0.0}, "eta_cutoff"),
        ({"epsilon": 1.0}, "eta_cutoff"),
        ({"epsilon": 0.5, KEPT: 0}, KEPT),
    ),
    "NoRepeatNGramLogitsProcessor": tuple(({"ngram_size": value}, "ngram_size") for value in (0, -1, 1.5)),
    "EncoderNoRepeatNGramLogitsProcessor": tuple(
        ({"encoder_ngram_size": value, "encoder_input_ids": None}, "encoder_ngram_size") for value in (0, 1.5)
    ),
    "SequenceBiasLogitsProcessor": tuple(
        ({"sequence_bias": value}, "sequence_bias")
        for value in ({}, {5: 1.0}, {(): 1.0}, {(-1,): 1.0}, {(3,): 1}, [[3, 1.0]])
    ),
    "NoBadWordsLogitsProcessor": tuple(
        ({"bad_words_ids": value, "eos_token_id": 2}, "bad_words_ids") for value in ([], [3], [[-1]], [["a"]])
    ),
    "ForcedEOSTokenLogitsProcessor": (({"max_length": 5, "eos_token_id": -1}, "eos_token_id"),),
}


def refusal(kind: Any, arguments: dict[str, Any]) -> str:
    try:
        kind(**arguments)
    except ValueError as error:
        return str(error)
    return "nothing"


@call(GROUP, phase=Phase.INFER)
def refused_by_processors(_ctx: Context) -> Iterator[Check]:
    """Each processor refuses arguments outside its range with a ValueError that names the argument."""
    import transformers

    for name, rows in REFUSED.items():
        kind = getattr(transformers, name)
        for arguments, word in rows:
            found = refusal(kind, arguments)
            yield equal(f"{name} names what it refuses, {arguments}", f"`{word}`" in found, bound=True)


def kept(warper: Any, scores: Any) -> list[list[int]]:
    """The tokens of each row that a warper leaves, whose scores it must not change."""
    import torch

    found = warper(torch.zeros(len(scores), 1, dtype=torch.long), scores.clone())
    left = found > -float("inf")
    assert bool((found[left] == scores[left]).all())  # noqa: S101 - a red cell names it
    return [row.nonzero().flatten().tolist() for row in left]


def typical(row: Any, mass: float, least: int) -> list[int]:
    """The tokens whose information is nearest to the entropy, up to this mass: https://arxiv.org/abs/2202.00666."""
    p = row.double().softmax(-1)
    distances = (-p.log() + (p * p.log()).sum()).abs()
    order = distances.sort(stable=True).indices.tolist()
    total, count = 0.0, 0
    for token in order:
        count, total = count + 1, total + float(p[token])
        if total >= mass:
            break
    return sorted(order[: max(count, least)])


@call(GROUP, phase=Phase.INFER)
def scores_at_the_ends(_ctx: Context) -> Iterator[Check]:
    """Truncations keep the tokens of their definitions, at least min_tokens_to_keep, also where they keep one or all.

    A mass so near to 1 that sums in float32 do not reach it keeps every token.
    """
    import torch
    import transformers

    def named(name: str) -> Any:
        return getattr(transformers, name)

    # The greatest first, then uneven steps, so that no two tokens tie.
    scores = torch.tensor([[4.0, 1.5, 0.75, 0.2, -1.0, -3.5], [-2.0, 0.1, 5.0, 1.25, -0.5, 2.0]])
    probabilities = scores.double().softmax(-1)
    ranks = scores.sort(descending=True).indices.tolist()
    whole = [list(range(6))] * 2
    for least in (1, 2, 6, 9):
        bound = min(least, 6)
        for mass in (0.05, 0.6, 0.97, ALMOST_ONE):
            wanted = whole if mass == ALMOST_ONE else [typical(row, mass, bound) for row in scores]
            found = kept(named("TypicalLogitsWarper")(mass=mass, min_tokens_to_keep=bound), scores)
            yield equal(f"typical tokens, {mass}, at least {least}", str(found), str(wanted))
        for share in (0.0, 0.02, 0.5, 1.0):
            limits = share * probabilities.max(-1).values
            wanted = [
                of_limit(p, float(limit), ranks[row], bound)
                for row, (p, limit) in enumerate(zip(probabilities, limits, strict=True))
            ]
            found = kept(named("MinPLogitsWarper")(min_p=share, min_tokens_to_keep=bound), scores)
            yield equal(f"tokens of min_p, {share}, at least {least}", str(found), str(wanted))
        for limit in (1e-4, 0.03, 0.99):
            wanted = [of_limit(p, limit, ranks[row], bound) for row, p in enumerate(probabilities)]
            found = kept(named("EpsilonLogitsWarper")(epsilon=limit, min_tokens_to_keep=least), scores)
            yield equal(f"tokens of epsilon, {limit}, at least {least}", str(found), str(wanted))
            entropies = -(probabilities * probabilities.log()).sum(-1)
            edges = torch.minimum(torch.tensor(limit), limit**0.5 * (-entropies).exp())
            wanted = [of_limit(p, float(edges[row]), ranks[row], bound) for row, p in enumerate(probabilities)]
            found = kept(named("EtaLogitsWarper")(epsilon=limit, min_tokens_to_keep=least, device="cpu"), scores)
            yield equal(f"tokens of eta, {limit}, at least {least}", str(found), str(wanted))
        for count in (1, 3, 6, 50):
            wanted = [sorted(row[: max(count, bound)]) for row in ranks]
            found = kept(named("TopKLogitsWarper")(top_k=count, min_tokens_to_keep=least), scores)
            yield equal(f"tokens of top_k, {count}, at least {least}", str(found), str(wanted))
        for mass in (0.0, 0.7, 0.95, 1.0):
            wanted = [of_mass(p, mass, ranks[row], bound) for row, p in enumerate(probabilities)]
            found = kept(named("TopPLogitsWarper")(top_p=mass, min_tokens_to_keep=bound), scores)
            yield equal(f"tokens of top_p, {mass}, at least {least}", str(found), str(wanted))


def of_limit(p: Any, limit: float, order: list[int], least: int) -> list[int]:
    """The tokens with at least this probability, and the ``least`` most probable ones."""
    return sorted({*(token for token in order if float(p[token]) >= limit), *order[:least]})


def of_mass(p: Any, mass: float, order: list[int], least: int) -> list[int]:
    """The fewest most probable tokens with at least this probability together."""
    total, count = 0.0, 0
    for token in order:
        if count and total >= mass:
            break
        count, total = count + 1, total + float(p[token])
    return sorted(order[: max(count, least)])
