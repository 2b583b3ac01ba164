"""Greedy generation, judged token by token by the reference network, which sees each prompt alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.generation import decoding, generating
from cases.behaviour.generation.generating import NEW
from cases.model import tiny
from cases.reference import tolerance
from cases.space.options import Options
from cases.space.verdict import Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Generation"
LONG, POSITIONS = 1100, 2048
PENALTY, LEAST = 3.0, 6


def padded(ctx: Context, model: str, **arguments: Any) -> Iterator[Check]:
    """Check a padded batch with and without a cache."""
    chosen = generating.options(model)
    judge, batch = generating.reference(ctx, chosen), generating.prompts()
    loaded = generating.loaded(ctx, chosen, **arguments)
    for use_cache in (True, False):
        found = generating.generated(loaded, batch, use_cache=use_cache)
        yield from generating.greedy_checks(judge, batch, generating.new_tokens(found, batch))


@call(GROUP, phase=Phase.INFER)
def generate_padded(ctx: Context) -> Iterator[Check]:
    """A batch of prompts padded on the left generates the tokens of each prompt alone, with and without a cache."""
    yield from padded(ctx, "llama")


@call(GROUP, phase=Phase.INFER)
def generate_padded_gpt2(ctx: Context) -> Iterator[Check]:
    """Learned positions count from a padded row's first real token."""
    yield from padded(ctx, "gpt2")


@call(GROUP, phase=Phase.INFER, requires=("model_gemma",))
def generate_padded_gemma(ctx: Context) -> Iterator[Check]:
    """A sliding window in every other layer covers a padded row's real tokens, with and without a cache."""
    # Eager, as its authors advise: some versions drop the soft cap otherwise.
    yield from padded(ctx, "gemma", attn_implementation="eager")


@call(GROUP, phase=Phase.INFER, requires=("model_mistral",))
def generate_padded_mistral(ctx: Context) -> Iterator[Check]:
    """A sliding window in every layer covers a padded row's real tokens, with and without a cache."""
    yield from padded(ctx, "mistral")


@call(GROUP, phase=Phase.INFER, requires=("model_qwen",))
def generate_padded_qwen(ctx: Context) -> Iterator[Check]:
    """A padded batch of a Qwen 2 model generates the tokens of each prompt alone."""
    yield from padded(ctx, "qwen")


@call(GROUP, phase=Phase.INFER)
def generate_to_different_ends(ctx: Context) -> Iterator[Check]:
    """Rows of a batch end at different steps, each at one of several end tokens, and padding follows."""
    chosen = generating.options()
    judge, batch = generating.reference(ctx, chosen), generating.prompts()
    free = [judge.greedy(row, NEW) for row in batch]
    ends = [generating.first_real(free[0][1:]), generating.first_real(free[1][4:])]
    model = generating.loaded(ctx, chosen)
    for use_cache in (True, False):
        found = generating.generated(model, batch, use_cache=use_cache, eos_token_id=ends)
        rows = generating.new_tokens(found, batch)
        lengths = {len(generating.up_to_end(row, ends)) for row in rows}
        yield at_least("different lengths", len(lengths), 2)
        yield from generating.greedy_checks(judge, batch, rows, ends=ends)


@call(GROUP, phase=Phase.INFER)
def generate_min_new_tokens(ctx: Context) -> Iterator[Check]:
    """min_new_tokens forbids the end token until as many tokens are there, counted without prompt and padding."""
    chosen = generating.options()
    judge, batch = generating.reference(ctx, chosen), generating.prompts()
    ends = [judge.greedy(batch[1], 1)[0]]  # the longest prompt would end at once

    def process(text: Sequence[int], scores: list[float]) -> list[float]:
        new = len(text) - next(len(row) for row in batch if list(text[: len(row)]) == row)
        return decoding.without(scores, ends) if new < LEAST else scores

    found = generating.generated(generating.loaded(ctx, chosen), batch, eos_token_id=ends, min_new_tokens=LEAST)
    yield from generating.greedy_checks(judge, batch, generating.new_tokens(found, batch), process, ends)


@call(GROUP, phase=Phase.INFER)
def generate_repetition_penalty(ctx: Context) -> Iterator[Check]:
    """repetition_penalty divides positive and multiplies negative logits of tokens that occurred."""
    yield from penalised(ctx, tiny.prompt().tolist())


@call(GROUP, phase=Phase.INFER)
def generate_repetition_penalty_padded(ctx: Context) -> Iterator[Check]:
    """repetition_penalty does not count the padding of a shorter prompt as tokens that occurred."""
    yield from penalised(ctx, generating.prompts())


def penalised(ctx: Context, batch: list[list[int]]) -> Iterator[Check]:
    chosen = generating.options()
    judge = generating.reference(ctx, chosen)
    found = generating.generated(generating.loaded(ctx, chosen), batch, repetition_penalty=PENALTY)
    rows = generating.new_tokens(found, batch)
    yield from generating.greedy_checks(
        judge, batch, rows, lambda text, scores: decoding.repetition_penalty(text, scores, PENALTY)
    )
    plain = sum(row != judge.greedy(prompt, NEW) for prompt, row in zip(batch, rows, strict=True))
    yield at_least("rows that the penalty changes", plain, 1)


def without_repeats(ctx: Context, size: int) -> Iterator[Check]:
    """Generate with prompts that each show the sequence of this size that would follow it."""
    chosen = generating.options()
    judge, batch = generating.reference(ctx, chosen), []
    for row in generating.prompts():
        (following,) = judge.greedy(row, 1)
        batch.append([*row[1 - size :], following, *row])
    free = [judge.greedy(row, NEW) for row in batch]
    found = generating.generated(generating.loaded(ctx, chosen), batch, no_repeat_ngram_size=size)
    rows = generating.new_tokens(found, batch)
    yield from generating.greedy_checks(
        judge, batch, rows, lambda text, scores: decoding.no_repeat_ngram(text, scores, size)
    )
    yield at_least("rows that the rule changes", sum(map(list.__ne__, rows, free)), 1)


@call(GROUP, phase=Phase.INFER)
def generate_no_repeat_ngram(ctx: Context) -> Iterator[Check]:
    """no_repeat_ngram_size forbids a pair of tokens to occur twice, in the prompt or after it."""
    yield from without_repeats(ctx, 2)


@call(GROUP, phase=Phase.INFER)
def generate_no_repeat_triples(ctx: Context) -> Iterator[Check]:
    """no_repeat_ngram_size=3 forbids three tokens to occur twice in a row, and no other token."""
    yield from without_repeats(ctx, 3)


@call(GROUP, phase=Phase.INFER)
def generate_long_prompt(ctx: Context) -> Iterator[Check]:
    """A prompt of 1,100 tokens, and a short one padded to its length, generate the tokens of each alone."""
    import torch

    chosen = generating.options()
    judge = generating.reference(ctx, chosen)
    generator = torch.Generator().manual_seed(7)
    long = torch.randint(3, tiny.VOCABULARY, (LONG,), generator=generator).tolist()
    batch = [long, long[:40]]
    model = generating.loaded(ctx, chosen, max_position_embeddings=POSITIONS)
    found = generating.generated(model, batch, use_cache=True)
    yield from generating.greedy_checks(judge, batch, generating.new_tokens(found, batch))


@call(GROUP, phase=Phase.INFER)
def generate_adapted_and_merged(ctx: Context) -> Iterator[Check]:
    """A LoRA model generates the tokens of W + s B A, also after merge_and_unload."""
    chosen = generating.options(method="lora")
    judge, batch = generating.reference(ctx, chosen), generating.prompts()
    bare = generating.reference(ctx, generating.options())
    model = generating.loaded(ctx, chosen)
    for name in ("adapted", "merged"):
        model = model if name == "adapted" else model.merge_and_unload()
        found = generating.generated(model, batch, use_cache=True)
        rows = generating.new_tokens(found, batch)
        yield from generating.greedy_checks(judge, batch, rows)
        changed = sum(row != bare.greedy(prompt, NEW) for prompt, row in zip(batch, rows, strict=True))
        yield at_least("rows that the adapter changes", changed, 1)


@call(GROUP, phase=Phase.INFER)
def generate_scores(ctx: Context) -> Iterator[Check]:
    """The returned logits of each step equal those of the reference, for padded prompts with a cache."""
    import torch

    chosen = generating.options()
    judge, batch = generating.reference(ctx, chosen), generating.prompts()
    found = generating.generated(
        generating.loaded(ctx, chosen), batch, use_cache=True, return_dict_in_generate=True, output_logits=True
    )
    rows = generating.new_tokens(found.sequences, batch)
    yield equal("steps with logits", len(found.logits), len(rows[0]))
    returned = torch.stack(found.logits, dim=1).cpu()
    errors = []
    for number, (prompt, row) in enumerate(zip(batch, rows, strict=True)):
        kept = generating.up_to_end(row, (tiny.END,))
        expected = judge.logits([*prompt, *kept])[len(prompt) - 1 : -1]
        errors.append(tolerance.relative(returned[number, : len(kept)], expected))
    yield at_most("logits off", max(errors), tolerance.bound("logits", Options()))
