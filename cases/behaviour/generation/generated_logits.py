"""The logits of every generated token, for padded prompts, by the reference, which sees each prompt alone.

Tokens hide errors that do not change the best one; logits do not. No row ends, so that all decode as many tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.generation import generating
from cases.behaviour.generation.generating import NEW
from cases.behaviour.models import building
from cases.behaviour.models.building import Variant
from cases.model import tiny
from cases.reference import models, tolerance
from cases.reference.network import Batch
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cases.apply.context import Context
    from cases.reference.network import Network
    from cases.space.verdict import Check

GROUP = "Generation"
BOTH = ("eager", "sdpa")
LENGTH = 11
WITH_LOGITS = {"return_dict_in_generate": True, "output_logits": True, "min_new_tokens": NEW}
CACHES: Mapping[str, Mapping[str, Any]] = {"cache": {"use_cache": True}, "no cache": {"use_cache": False}}
STATIC: Mapping[str, Mapping[str, Any]] = {
    "static": {"cache_implementation": "static", "disable_compile": True, "use_cache": True},
    "static, in parts": {
        "cache_implementation": "static",
        "disable_compile": True,
        "use_cache": True,
        "prefill_chunk_size": 5,
    },
    "in parts": {"use_cache": True, "prefill_chunk_size": 5},
}


def expected(network: Network, prompt: Sequence[int], tokens: Sequence[int]) -> Any:
    """The logits that each token was chosen by: float64, (tokens, vocabulary)."""
    import torch

    if network.config["is_encoder_decoder"]:
        answer = torch.tensor([[0, *tokens[:-1]]])  # behind the start token
        return models.logits(network, Batch(ids=torch.tensor([list(prompt)]), decoder_ids=answer))[0].detach()
    whole = models.logits(network, Batch(ids=torch.tensor([[*prompt, *tokens]])))[0].detach()
    return whole[len(prompt) - 1 : -1]


def checks(name: str, network: Network, batch: Sequence[Sequence[int]], found: Any) -> Iterator[Check]:
    """Compare the logits and the choice of every token of a greedy generation."""
    import torch

    returned = torch.stack(found.logits, dim=1).cpu()
    rows = found.sequences[:, -returned.shape[1] :].tolist()
    yield equal(f"new tokens, {name}", returned.shape[1], NEW)
    wanted = [expected(network, prompt, row) for prompt, row in zip(batch, rows, strict=True)]
    errors = [tolerance.relative(mine, theirs) for mine, theirs in zip(returned, wanted, strict=True)]
    yield at_most(f"logits off, {name}", tolerance.worst(errors), building.bound("logits"))
    regrets = [regret(each, row) for each, row in zip(wanted, rows, strict=True)]
    yield at_most(f"regret of the tokens, {name}", tolerance.worst(regrets), 2 * building.bound("logits"))


def regret(logits: Any, tokens: Sequence[int]) -> float:
    """By how much a token is at most below the best one that does not end the row, in standard deviations."""
    allowed = logits.clone()
    allowed[:, tiny.END] = -float("inf")
    chosen = logits[range(len(tokens)), list(tokens)]
    return float(((allowed.max(-1).values - chosen) / logits.std(-1)).max())


def generated(
    ctx: Context, model: str, ways: Mapping[str, Mapping[str, Any]] = CACHES, implementations: Sequence[str] = BOTH
) -> Iterator[Check]:
    """Generate after prompts of different lengths in one batch, in each way."""
    folder, batch = Variant(model).written(ctx, "generated"), generating.prompts()
    network = building.network(folder)
    for implementation in implementations:
        loaded = building.loaded(ctx, folder, attn_implementation=implementation)
        for kind, prompts in (("padded", batch), ("of one length", equal_prompts())):
            for name, arguments in ways.items():
                found = generating.generated(loaded, prompts, **WITH_LOGITS, **arguments)
                yield from checks(f"{implementation}, {kind}, {name}", network, prompts, found)


def equal_prompts() -> list[list[int]]:
    """Prompts of one length beyond the sliding window, without padding."""
    found: list[list[int]] = tiny.batch(1)[:, :LENGTH].tolist()
    return found


@call(GROUP, phase=Phase.INFER)
def generated_llama(ctx: Context) -> Iterator[Check]:
    """Llama generates after padded prompts by the logits of each prompt alone, with and without a cache."""
    yield from generated(ctx, "llama")


@call(GROUP, phase=Phase.INFER, requires=("model_qwen",))
def generated_qwen2(ctx: Context) -> Iterator[Check]:
    """Qwen 2 generates after padded prompts by the logits of each prompt alone, with and without a cache."""
    yield from generated(ctx, "qwen")


@call(GROUP, phase=Phase.INFER, requires=("model_qwen3",))
def generated_qwen3(ctx: Context) -> Iterator[Check]:
    """Qwen 3 generates after padded prompts by the logits of each prompt alone, with and without a cache."""
    yield from generated(ctx, "qwen3")


@call(GROUP, phase=Phase.INFER, requires=("model_mistral", "sdpa_mistral"))
def generated_mistral(ctx: Context) -> Iterator[Check]:
    """Mistral generates beyond its window by the logits of each prompt alone, with and without a cache."""
    yield from generated(ctx, "mistral")


@call(GROUP, phase=Phase.INFER, requires=("model_mixtral",))
def generated_mixtral(ctx: Context) -> Iterator[Check]:
    """Mixtral generates after padded prompts by the logits of each prompt alone, with and without a cache."""
    yield from generated(ctx, "mixtral")


@call(GROUP, phase=Phase.INFER, requires=("model_gemma",))
def generated_gemma2(ctx: Context) -> Iterator[Check]:
    """Gemma 2 generates beyond its windows by the logits of each prompt alone, with and without a cache.

    In transformers 4.47, the mask of the keys in a window is that of the first tokens of a padded row.
    """
    yield from generated(ctx, "gemma", implementations=("eager",))


@call(GROUP, phase=Phase.INFER, requires=("sdpa_gpt2",))
def generated_gpt2(ctx: Context) -> Iterator[Check]:
    """GPT-2 generates after padded prompts by the logits of each prompt alone, with and without a cache."""
    yield from generated(ctx, "gpt2")


@call(GROUP, phase=Phase.INFER)
def generated_t5(ctx: Context) -> Iterator[Check]:
    """T5 generates answers to padded texts by the logits of each text alone, with and without a cache."""
    yield from generated(ctx, "t5", implementations=("eager",))


@call(GROUP, phase=Phase.INFER, requires=("sdpa_t5",))
def generated_t5_sdpa(ctx: Context) -> Iterator[Check]:
    """As generated_t5, with SDPA attention."""
    yield from generated(ctx, "t5", implementations=("sdpa",))


@call(GROUP, phase=Phase.INFER, requires=("layered_caches",))
def generated_other_caches(ctx: Context) -> Iterator[Check]:
    """Static caches and prompts processed in parts leave the logits of padded prompts as they are.

    https://huggingface.co/docs/transformers/kv_cache
    """
    yield from generated(ctx, "llama", STATIC)


@call(GROUP, phase=Phase.INFER, requires=("layered_caches", "model_mistral"))
def generated_other_caches_mistral(ctx: Context) -> Iterator[Check]:
    """As generated_other_caches, with a sliding window in every layer."""
    yield from generated(ctx, "mistral", STATIC)


@call(GROUP, phase=Phase.INFER, requires=("layered_caches", "model_gemma"))
def generated_other_caches_gemma2(ctx: Context) -> Iterator[Check]:
    """As generated_other_caches, with a sliding window in every other layer."""
    yield from generated(ctx, "gemma", STATIC, ("eager",))


@call(GROUP, phase=Phase.INFER, requires=("layered_caches",))
def generated_other_caches_t5(ctx: Context) -> Iterator[Check]:
    """Static caches of T5's decoder and of what it reads of the encoder leave the logits as they are."""
    yield from generated(ctx, "t5", {"static": STATIC["static"]}, ("eager",))
