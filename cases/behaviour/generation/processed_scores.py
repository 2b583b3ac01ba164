"""The scores that generation chooses by, after each setting that changes them, by the setting's definition.

``generate`` returns the model's logits and the processed scores, so each rule is applied to the logits of every step
and compared with the scores: https://huggingface.co/docs/transformers/main_classes/text_generation
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.generation import decoding, generating, score_rules
from cases.behaviour.generation.generating import NEW
from cases.behaviour.models import building
from cases.behaviour.models.building import Variant
from cases.model import tiny
from cases.space.verdict import Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cases.apply.context import Context
    from cases.behaviour.generation.score_rules import Rule, Scores
    from cases.space.verdict import Check

    Rules = Mapping[str, tuple[Mapping[str, Any], Rule]]

GROUP = "Generation"
SAME = 1e-5  # relative to the largest score: float32
PROMPT, ROWS = tiny.LENGTH // 2, 3
RETURNED = {"return_dict_in_generate": True, "output_logits": True, "output_scores": True}
SAMPLING = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0}
END, OTHER = 70, 71  # tokens that end a row, which no row chooses by itself
SUPPRESSED, START = (17, 90), 2  # tokens; the step after which the score of the end grows
FACTOR, PENALTY, SCALE = 1.5, 2.5, 1.8


def compared(name: str, found: Any, rule: Rule, *, best: bool = True) -> Iterator[Check]:
    """Compare the scores of every step, and the chosen tokens, with a rule for the logits."""
    worst, changed, others = 0.0, 0, 0
    for step, (logits, scores) in enumerate(zip(found.logits, found.scores, strict=True)):
        length = found.sequences.shape[1] - len(found.logits) + step
        for row, (own, mine) in enumerate(zip(logits.tolist(), scores.tolist(), strict=True)):
            text = found.sequences[row, :length].tolist()
            if ended(text, found):
                continue
            wanted = rule(text, own)
            worst = max(worst, distance(mine, wanted))
            changed += own != wanted
            others += mine[int(found.sequences[row, length])] != max(mine) if best else 0
    yield at_most(f"scores off, {name}", worst, SAME)
    yield at_least(f"rows of scores that it changes, {name}", changed, 1)
    yield equal(f"tokens that are not the best, {name}", others, 0)


def ended(text: Sequence[int], found: Any) -> bool:
    return any(token in (END, OTHER) for token in text[found.sequences.shape[1] - len(found.logits) :])


def distance(found: Sequence[float], wanted: Sequence[float]) -> float:
    """The largest difference relative to the largest finite score; forbidden tokens must be the same."""
    finite = [abs(each) for each in wanted if math.isfinite(each)]
    pairs = [(one, other) for one, other in zip(found, wanted, strict=True) if one != other]
    return max([abs(one - other) / max([*finite, 1e-9]) for one, other in pairs], default=0.0)


def prompts() -> list[list[int]]:
    rows: list[list[int]] = tiny.prompt()[:ROWS].tolist()
    return rows


def tokens_of(ctx: Context) -> list[list[int]]:
    """What the first two prompts are continued with if no rule applies."""
    judge = generating.reference(ctx, generating.options())
    return [judge.greedy(row, NEW) for row in prompts()[:2]]


def checked(ctx: Context, rules: Rules, **more: Any) -> Iterator[Check]:
    """Generate with each rule of a table."""
    import torch

    model, batch = generating.loaded(ctx, generating.options()), prompts()
    for name, (arguments, rule) in rules.items():
        torch.manual_seed(0)
        usual = {"eos_token_id": [END, OTHER], "pad_token_id": tiny.PADDING, **RETURNED, **more}
        found = generating.generated(model, batch, **{**usual, **arguments})
        yield from compared(name, found, rule, best=not more.get("do_sample"))


def prompt_of(text: Sequence[int]) -> Sequence[int]:
    return text[:PROMPT]


def new(text: Sequence[int]) -> int:
    """The number of tokens behind the prompt."""
    return len(text) - PROMPT


@call(GROUP, phase=Phase.INFER)
def scores_of_forbidden_tokens(ctx: Context) -> Iterator[Check]:
    """bad_words_ids, suppress_tokens, begin_suppress_tokens and no_repeat_ngram_size forbid the tokens they name."""
    first, second = tokens_of(ctx)
    words = [[first[0]], [second[1], second[2]], [*first[3:6]], [END]]
    rules: Rules = {
        "bad_words_ids": (
            {"bad_words_ids": words},  # a word that is the end token alone is ignored
            lambda text, scores: decoding.without(scores, score_rules.completing(text, words[:-1])),
        ),
        "suppress_tokens": (
            {"suppress_tokens": [*SUPPRESSED, first[0]]},
            lambda _, scores: decoding.without(scores, [*SUPPRESSED, first[0]]),
        ),
        "begin_suppress_tokens": (
            {"begin_suppress_tokens": [*SUPPRESSED, second[0]]},
            lambda text, scores: scores if new(text) else decoding.without(scores, [*SUPPRESSED, second[0]]),
        ),
        "no_repeat_ngram_size of 1": (
            {"no_repeat_ngram_size": 1},
            lambda text, scores: decoding.no_repeat_ngram(text, scores, 1),
        ),
    }
    yield from checked(ctx, rules)


@call(GROUP, phase=Phase.INFER)
def scores_of_ends(ctx: Context) -> Iterator[Check]:
    """min_length, min_new_tokens, forced_eos_token_id and exponential_decay_length_penalty act on the end alone."""
    ends = [END, OTHER]
    rules: Rules = {
        "min_length": (  # counts the prompt
            {"min_length": PROMPT + 3},
            lambda text, scores: decoding.without(scores, ends) if new(text) < 3 else scores,  # noqa: PLR2004
        ),
        "min_new_tokens": (
            {"min_new_tokens": 4},
            lambda text, scores: decoding.without(scores, ends) if new(text) < 4 else scores,  # noqa: PLR2004
        ),
        "forced_eos_token_id": (
            {"forced_eos_token_id": END},
            lambda text, scores: forced(scores, END) if new(text) == NEW - 1 else scores,
        ),
        "exponential_decay_length_penalty": (
            {"exponential_decay_length_penalty": (START, FACTOR)},
            lambda text, scores: score_rules.grown(scores, ends, FACTOR, new(text) - START),
        ),
    }
    yield from checked(ctx, rules)


def forced(scores: Sequence[float], token: int) -> Scores:
    return [0.0 if each == token else -math.inf for each in range(len(scores))]


@call(GROUP, phase=Phase.INFER)
def scores_of_penalties(ctx: Context) -> Iterator[Check]:
    """Penalties, biases of sequences, allowed tokens and normalised scores have the values of their definitions."""
    first, second = tokens_of(ctx)
    biases = {(first[0],): -10.0, (second[0], second[1]): -9.0, (first[1],): 2.5, (*first[1:3], first[3]): 7.0}

    def allowed(_row: int, text: Any) -> list[int]:
        return list(range(int(text[-1]) % 3, tiny.VOCABULARY, 3))

    rules: Rules = {
        "repetition_penalty": (
            {"repetition_penalty": PENALTY},
            lambda text, scores: decoding.repetition_penalty(text, scores, PENALTY),
        ),
        "encoder_repetition_penalty": (  # "on sequences that are not in the original input"
            {"encoder_repetition_penalty": PENALTY},
            lambda text, scores: score_rules.rewarded(scores, prompt_of(text), PENALTY),
        ),
        "sequence_bias": (
            {"sequence_bias": biases},
            lambda text, scores: score_rules.biased(text, scores, biases),
        ),
        "sequence_bias as a list": (
            {"sequence_bias": [[list(key), value] for key, value in biases.items()]},
            lambda text, scores: score_rules.biased(text, scores, biases),
        ),
        "prefix_allowed_tokens_fn": (
            {"prefix_allowed_tokens_fn": allowed},
            lambda text, scores: score_rules.kept(scores, range(text[-1] % 3, tiny.VOCABULARY, 3)),
        ),
        "renormalize_logits": (
            {"renormalize_logits": True, "suppress_tokens": list(SUPPRESSED)},
            lambda _, scores: score_rules.log_probabilities(decoding.without(scores, SUPPRESSED)),
        ),
    }
    yield from checked(ctx, rules)


@call(GROUP, phase=Phase.INFER)
def scores_of_sampling(ctx: Context) -> Iterator[Check]:
    """Each setting that truncates a distribution keeps the scores of the tokens of its definition."""
    rules: Rules = {
        "temperature": ({"temperature": 0.4}, lambda _, scores: [score / 0.4 for score in scores]),
        "top_k": ({"top_k": 5}, lambda _, scores: score_rules.top_k(scores, 5)),
        "top_k of 1": ({"top_k": 1}, lambda _, scores: score_rules.top_k(scores, 1)),
        "top_p": ({"top_p": 0.6}, lambda _, scores: score_rules.top_p(scores, 0.6)),
        "top_p of little": ({"top_p": 0.001}, lambda _, scores: score_rules.top_p(scores, 0.001)),
        "typical_p": ({"typical_p": 0.6}, lambda _, scores: score_rules.typical(scores, 0.6)),
        "typical_p of little": ({"typical_p": 0.01}, lambda _, scores: score_rules.typical(scores, 0.01)),
        "epsilon_cutoff": ({"epsilon_cutoff": 0.02}, lambda _, scores: score_rules.epsilon(scores, 0.02)),
        "epsilon_cutoff of much": ({"epsilon_cutoff": 0.9}, lambda _, scores: score_rules.epsilon(scores, 0.9)),
        "eta_cutoff": ({"eta_cutoff": 0.01}, lambda _, scores: score_rules.eta(scores, 0.01)),
        "eta_cutoff of much": ({"eta_cutoff": 0.5}, lambda _, scores: score_rules.eta(scores, 0.5)),
        "all": (
            {"temperature": 0.7, "top_k": 40, "top_p": 0.9, "typical_p": 0.8, "epsilon_cutoff": 0.01},
            lambda _, scores: score_rules.epsilon(
                score_rules.typical(score_rules.top_p(score_rules.top_k([s / 0.7 for s in scores], 40), 0.9), 0.8),
                0.01,
            ),
        ),
    }
    yield from checked(ctx, rules, **SAMPLING)


@call(GROUP, phase=Phase.INFER, requires=("min_p",))
def scores_of_min_p(ctx: Context) -> Iterator[Check]:
    """min_p keeps the scores of tokens with a share of the largest probability, after the temperature."""
    rules: Rules = {
        "min_p": ({"min_p": 0.2}, lambda _, scores: score_rules.min_p(scores, 0.2)),
        "min_p of 1": ({"min_p": 1.0}, lambda _, scores: score_rules.min_p(scores, 1.0)),
        "temperature and min_p": (
            {"temperature": 2.0, "min_p": 0.4},
            lambda _, scores: score_rules.min_p([score / 2 for score in scores], 0.4),
        ),
    }
    yield from checked(ctx, rules, **SAMPLING)


@call(GROUP, phase=Phase.INFER, requires=("top_h",))
def scores_of_top_h(ctx: Context) -> Iterator[Check]:
    """top_h keeps the most probable tokens up to its share of the entropy."""
    few, many = ({"temperature": 0.3, "top_h": share} for share in (0.3, 0.7))
    rules: Rules = {  # a temperature at which the least probable tokens, beyond the first hundred, have no share
        "top_h of 0.3": (few, lambda _, scores: score_rules.top_h([score / 0.3 for score in scores], 0.3)),
        "top_h of 0.7": (many, lambda _, scores: score_rules.top_h([score / 0.3 for score in scores], 0.7)),
    }
    yield from checked(ctx, rules, **SAMPLING)


@call(GROUP, phase=Phase.INFER)
def scores_without_broken_values(ctx: Context) -> Iterator[Check]:
    """remove_invalid_values replaces NaN by 0 and infinities by the largest and lowest finite numbers."""
    import torch

    model, batch = generating.loaded(ctx, generating.options()), prompts()
    broken = {17: math.nan, 90: math.inf, 91: -math.inf}

    def breaking(_module: Any, _given: Any, output: Any) -> Any:
        output = output.clone()
        for token, value in broken.items():
            output[..., token] = value
        return output

    model.get_output_embeddings().register_forward_hook(breaking)
    found = generating.generated(model, batch, remove_invalid_values=True, max_new_tokens=2, **RETURNED)
    largest = torch.finfo(torch.float32).max
    for token, wanted in ((17, 0.0), (90, largest), (91, -largest)):
        values = {float(value) for step in found.scores for value in step[:, token]}
        yield equal(f"scores of token {token}", "+".join(map(str, values)), str(wanted))
    others = [token for token in range(tiny.VOCABULARY) if token not in broken]
    off = max(float((a[:, others] - b[:, others]).abs().max()) for a, b in zip(found.logits, found.scores, strict=True))
    yield equal("largest difference of other scores", off, 0.0)
    yield equal("tokens that are not the best", int((found.sequences[:, PROMPT:] != 90).sum()), 0)  # noqa: PLR2004


@call(GROUP, phase=Phase.INFER)
def scores_with_guidance(ctx: Context) -> Iterator[Check]:
    """guidance_scale mixes log-probabilities behind the prompt with those behind a negative prompt or its last token.

    log p(w | negative) + s (log p(w | prompt) - log p(w | negative)): https://arxiv.org/abs/2306.17806, eq. 7.
    """
    import torch

    judge, batch = generating.reference(ctx, generating.options()), prompts()
    model = generating.loaded(ctx, generating.options())
    negative = tiny.batch(1)[: len(batch), :5]
    for name, given in (("a negative prompt", negative), ("none", None)):
        for use_cache in (True, False):
            more = {} if given is None else {"negative_prompt_ids": given.to(model.device)}
            found = generating.generated(
                model, batch, guidance_scale=SCALE, min_new_tokens=NEW, use_cache=use_cache, **more, **RETURNED
            )
            worst = 0.0
            for row, prompt in enumerate(batch):
                tokens = found.sequences[row, PROMPT:].tolist()
                start = prompt[-1:] if given is None else given[row].tolist()
                mine, other = (
                    judge.logits([*text, *tokens])[len(text) - 1 : -1].log_softmax(-1) for text in (prompt, start)
                )
                wanted = other + SCALE * (mine - other)
                scores = torch.stack([step[row] for step in found.scores]).cpu()
                finite = torch.isfinite(scores)
                worst = max(worst, float((scores - wanted)[finite].norm() / wanted[finite].norm()))
                worst = math.inf if int((~finite).sum()) != NEW else worst  # the end token
            yield at_most(f"scores off, {name}, use_cache={use_cache}", worst, building.bound("logits"))


@call(GROUP, phase=Phase.INFER)
def scores_of_own_processors(ctx: Context) -> Iterator[Check]:
    """A processor in logits_processor acts after the settings for all strategies and before those for sampling."""
    import torch
    from transformers import LogitsProcessor, LogitsProcessorList

    model, batch = generating.loaded(ctx, generating.options()), prompts()
    seen: list[Any] = []

    class Squared(LogitsProcessor):  # type: ignore[misc]  # of a package without types
        def __call__(self, input_ids: Any, scores: Any) -> Any:
            seen.append((input_ids.clone(), scores.clone()))
            return scores * scores.abs()

    torch.manual_seed(0)
    found = generating.generated(
        model,
        batch,
        logits_processor=LogitsProcessorList([Squared()]),
        repetition_penalty=PENALTY,
        eos_token_id=END,
        **{**SAMPLING, "temperature": 2.0, **RETURNED},
    )
    yield equal("passes", len(seen), len(found.scores))
    yield equal("tokens seen", all(a.equal(found.sequences[:, : a.shape[1]]) for a, _ in seen), bound=True)
    yield from compared(
        "own processor",
        found,
        lambda text, scores: [each * abs(each) / 2 for each in decoding.repetition_penalty(text, scores, PENALTY)],
        best=False,
    )


@call(GROUP, phase=Phase.INFER)
def scores_of_encoder_settings(ctx: Context) -> Iterator[Check]:
    """T5's settings that read the encoder's text, or the place behind the decoder's start, act by their definitions."""
    import torch

    folder = Variant("t5").written(ctx, "scored")
    model = building.loaded(ctx, folder)
    texts = torch.tensor(prompts(), device=model.device)
    plain = model.generate(texts, max_new_tokens=NEW, do_sample=False, eos_token_id=END, use_cache=True)
    pairs = torch.cat([texts[:, :4], plain[:, 1:4]], dim=1)  # the text holds what would be written
    settings: Mapping[str, Mapping[str, Any]] = {
        "encoder_repetition_penalty": {"encoder_repetition_penalty": PENALTY},
        "encoder_no_repeat_ngram_size": {"encoder_no_repeat_ngram_size": 2},
        "forced_bos_token_id": {"forced_bos_token_id": 44},
        "begin_suppress_tokens": {"begin_suppress_tokens": plain[:, 1].tolist()},
        "begin_suppress_tokens after forced_bos_token_id": {
            "begin_suppress_tokens": plain[:, 1:3].flatten().tolist(),
            "forced_bos_token_id": int(plain[0, 1]),
        },
        "min_length": {"min_length": 4},
    }
    for name, arguments in settings.items():
        source = pairs if name == "encoder_no_repeat_ngram_size" else texts
        found = model.generate(
            source,
            attention_mask=torch.ones_like(source),
            **{"max_new_tokens": NEW, "do_sample": False, "eos_token_id": END, "use_cache": True, **RETURNED},
            **arguments,
        )
        yield from compared_by_row(name, found, source.tolist(), encoder_rule(arguments))


def encoder_rule(arguments: Mapping[str, Any]) -> Any:
    """The scores that these arguments make of an encoder's text, a decoder's text and scores."""

    def rule(source: Sequence[int], text: Sequence[int], scores: Scores) -> Scores:
        if "encoder_repetition_penalty" in arguments:
            scores = score_rules.rewarded(scores, source, PENALTY)
        if "encoder_no_repeat_ngram_size" in arguments:
            pairs = list(itertools.pairwise(source))
            scores = decoding.without(scores, score_rules.completing(text, pairs))
        if len(text) < arguments.get("min_length", 0):  # counts the decoder's start
            scores = decoding.without(scores, [END])
        has_start = "forced_bos_token_id" in arguments
        if has_start and len(text) == 1:
            scores = forced(scores, arguments["forced_bos_token_id"])
        if len(text) == 1 + has_start:
            scores = decoding.without(scores, arguments.get("begin_suppress_tokens", []))
        return scores

    return rule


def compared_by_row(name: str, found: Any, sources: Sequence[Sequence[int]], rule: Any) -> Iterator[Check]:
    """As ``compared``, for rules that depend on the encoder's text."""
    worst, changed = 0.0, 0
    for step, (logits, scores) in enumerate(zip(found.logits, found.scores, strict=True)):
        for row, source in enumerate(sources):
            text = found.sequences[row, : step + 1].tolist()
            own, mine = logits[row].tolist(), scores[row].tolist()
            wanted = rule(source, text, own)
            if not ended(text, found):
                worst, changed = max(worst, distance(mine, wanted)), changed + (own != wanted)
    yield at_most(f"scores off, {name}", worst, SAME)
    yield at_least(f"rows of scores that it changes, {name}", changed, 1)
