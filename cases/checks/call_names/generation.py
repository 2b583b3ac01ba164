"""The names of the checks of ``cases.behaviour.generation``, by module; see ``cases.checks.names``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

CHECKS: Mapping[str, tuple[str, ...]] = {
    "cases.behaviour.generation.beam_searches": (
        "sequences that another search would not return",
        "scores off those of the sequences",
        "transition scores off those of the sequences",
        "scores off the search by its definition",
    ),
    "cases.behaviour.generation.cached_passes": ("logits off, {name}",),
    "cases.behaviour.generation.caches_by_configuration": (
        "layers that store nothing",
        "layers, {kind}, {title}",
        "windows, {kind}, {title}",
    ),
    "cases.behaviour.generation.continuing": (
        "logits off in turn {turn}{name}",
        "new tokens with {name}",
        "regret with {name}",
        "passes over candidates with {name}",
    ),
    "cases.behaviour.generation.ending_rules": (
        "rows that end sooner with early_stopping=True",
        "score off the best, early_stopping=False, row {row}",
        "steps beyond those of never, row {row}",
        "steps beyond those of False, row {row}",
        "score above the best, early_stopping=True, row {row}",
    ),
    "cases.behaviour.generation.generated_logits": (
        "new tokens, {name}",
        "logits off, {name}",
        "regret of the tokens, {name}",
    ),
    "cases.behaviour.generation.generating": (
        "tokens behind the end that are not padding",
        "rows that stop without an end",
        "columns of new tokens",
        "regret of the tokens",
    ),
    "cases.behaviour.generation.generation": (
        "different lengths",
        "rows that the penalty changes",
        "rows that the rule changes",
        "rows that the adapter changes",
        "steps with logits",
        "logits off",
    ),
    "cases.behaviour.generation.processed_scores": (
        "scores off, {name}",
        "rows of scores that it changes, {name}",
        "tokens that are not the best, {name}",
        "scores of token {token}",
        "largest difference of other scores",
        "tokens that are not the best",
        "scores off, {name}, use_cache={use_cache}",
        "passes",
        "tokens seen",
    ),
    "cases.behaviour.generation.processors_alone": (
        "{name} names what it refuses, {arguments}",
        "typical tokens, {mass}, at least {least}",
        "tokens of min_p, {share}, at least {least}",
        "tokens of epsilon, {limit}, at least {least}",
        "tokens of eta, {limit}, at least {least}",
        "tokens of top_k, {count}, at least {least}",
        "tokens of top_p, {mass}, at least {least}",
    ),
    "cases.behaviour.generation.prompts_and_caches": (
        "tokens, {name}",
        "tokens by name, {name}",
        "tokens of a prompt of {row}",
        "tokens, padding by the end token",
        "tokens from embeddings, {kind}",
        "tokens from both, {kind}",
        "tokens with {name}",
        "first logits in bfloat16 off, {kind}",
        "scores, penalty {penalty}",
        "scores, no pair again",
        "scores, length {length}",
        "scores, new tokens to length {length}",
        "scores, temperature",
        "scores, the best {number}",
        "scores",
        "stops, {kind}, {name}",
    ),
    "cases.behaviour.generation.returned_parts": (
        "tokens without a text",
        "scores off, {model}",
        "tokens in the cache, {model}",
        "logits off, {model}",
        "the most probable tokens are kept, {size}, {share}, row {row}",
        "steps of {name}, {model}, {title}, {asked}",
        "layers of {name}, {title}, {asked}",
    ),
    "cases.behaviour.generation.stopping": (
        "tokens, {name}",
        "rows that stop, {name}",
        "columns of new tokens, {model_name}, max_new_tokens",
        "lengths",
        "columns of new tokens, no end",
        "generation_config afterwards",
        "the model's generation_config afterwards",
        "rows",
        "prompts that differ",
        "different rows of a seed",
        "a seed draws the same again",
        "another seed draws the same",
    ),
    "cases.behaviour.generation.token_sampling": (
        "distance from the distribution",
        "draws outside the distribution",
        "probable tokens that were never drawn",
    ),
}
