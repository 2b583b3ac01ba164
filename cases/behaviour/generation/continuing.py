"""Generation that continues from a cache, from embeddings, or with candidates of an assistant, by the reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.generation import generated_logits, generating
from cases.behaviour.generation.generated_logits import WITH_LOGITS
from cases.behaviour.generation.generating import NEW
from cases.behaviour.models import building
from cases.behaviour.models.building import Variant
from cases.model import tiny
from cases.reference import tolerance
from cases.space.verdict import Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cases.apply.context import Context
    from cases.reference.network import Network
    from cases.space.verdict import Check

GROUP = "Generation"
SECOND = (4, 1)  # tokens of the next turns of a chat
LENGTH = 12  # of the prompt


def continued(
    ctx: Context,
    model: str,
    implementation: str = "sdpa",
    *,
    batch: Sequence[Sequence[int]] = (),
    start: Any = None,
    name: str = "",
) -> Iterator[Check]:
    """Generate three times with one cache; each turn adds tokens of the user, all rows of a batch at once.

    Without a ``start``, the first turn makes the cache.
    """
    import torch

    folder, batch = Variant(model).written(ctx, f"continued{name}"), batch or generating.prompts()
    network, loaded = building.network(folder), building.loaded(ctx, folder, attn_implementation=implementation)
    longest = max(map(len, batch))
    ids = torch.tensor([[tiny.PADDING] * (longest - len(row)) + [*row] for row in batch], device=loaded.device)
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in batch], device=loaded.device)
    cache: dict[str, Any] = {} if start is None else {"past_key_values": start}
    for turn, size in enumerate((0, *SECOND)):
        user = tiny.batch(turn + 1)[: len(batch), :size].to(ids.device)
        ids, mask = torch.cat([ids, user], dim=1), torch.cat([mask, torch.ones_like(user)], dim=1)
        with torch.no_grad():
            found = loaded.generate(
                input_ids=ids,
                attention_mask=mask,
                max_new_tokens=NEW // 2,
                do_sample=False,
                use_cache=True,
                eos_token_id=tiny.END,
                pad_token_id=tiny.PADDING,
                **{**WITH_LOGITS, "min_new_tokens": NEW // 2},
                **cache,
            )
        texts = [row[real.bool()].tolist() for row, real in zip(ids, mask, strict=True)]
        ids, cache = found.sequences, {"past_key_values": found.past_key_values}
        mask = torch.cat([mask, torch.ones_like(ids[:, mask.shape[1] :])], dim=1)
        returned = torch.stack(found.logits, dim=1).cpu()
        rows = ids[:, -NEW // 2 :].tolist()
        wanted = [generated_logits.expected(network, text, row) for text, row in zip(texts, rows, strict=True)]
        yield at_most(
            f"logits off in turn {turn}{name}",
            tolerance.relative(returned, torch.stack(wanted)),
            building.bound("logits"),
        )


@call(GROUP, phase=Phase.INFER)
def continued_llama(ctx: Context) -> Iterator[Check]:
    """Turns of a chat that reuse past_key_values get the logits of the whole text, in a padded batch.

    https://huggingface.co/docs/transformers/kv_cache#iterative-generation
    """
    yield from continued(ctx, "llama")


@call(GROUP, phase=Phase.INFER, requires=("model_qwen3",))
def continued_qwen3(ctx: Context) -> Iterator[Check]:
    """As continued_llama, with Qwen 3."""
    yield from continued(ctx, "qwen3")


@call(GROUP, phase=Phase.INFER, requires=("model_mistral", "sdpa_mistral"))
def continued_mistral(ctx: Context) -> Iterator[Check]:
    """As continued_llama, with a sliding window that the first turn exceeds."""
    yield from continued(ctx, "mistral")


@call(GROUP, phase=Phase.INFER, requires=("model_mixtral",))
def continued_mixtral(ctx: Context) -> Iterator[Check]:
    """As continued_llama, with Mixtral."""
    yield from continued(ctx, "mixtral")


@call(GROUP, phase=Phase.INFER, requires=("model_gemma", "layered_caches"))
def continued_gemma2(ctx: Context) -> Iterator[Check]:
    """As continued_llama, with a sliding window in every other layer."""
    yield from continued(ctx, "gemma", "eager")


@call(GROUP, phase=Phase.INFER)
def continued_gpt2(ctx: Context) -> Iterator[Check]:
    """As continued_llama, with learned positions."""
    yield from continued(ctx, "gpt2", "eager")


@call(GROUP, phase=Phase.INFER)
def continued_without_padding(ctx: Context) -> Iterator[Check]:
    """As continued_llama, with rows of one length, and a cache of the first turn or an empty one of the script."""
    from transformers import DynamicCache

    batch = tiny.batch(0)[:, :LENGTH].tolist()
    for name, rows in (("one row", batch[:1]), ("several rows", batch)):
        yield from continued(ctx, "llama", batch=rows, name=f", {name}")
        yield from continued(ctx, "llama", batch=rows, start=DynamicCache(), name=f", {name}, own cache")


def candidates(ctx: Context, model: str, implementation: str = "sdpa") -> Iterator[Check]:
    """Generate one row with candidates of the text itself and of two assistants, of which one is the model itself.

    Rejected candidates leave the cache, so errors there change later tokens.
    """
    folder = Variant(model).written(ctx, "main")
    network, loaded = building.network(folder), building.loaded(ctx, folder, attn_implementation=implementation)
    other = Variant(model, tied=True).written(ctx, "assistant")
    assistants = {
        "the same model": building.loaded(ctx, folder, attn_implementation=implementation),
        "another model": building.loaded(ctx, other, attn_implementation=implementation),
    }
    widths: list[int] = []
    loaded.get_input_embeddings().register_forward_hook(lambda _, args, __: widths.append(args[0].shape[1]))
    row = tiny.batch(0)[0, :LENGTH].tolist()
    answer = generating.new_tokens(generating.generated(loaded, [row], min_new_tokens=NEW), [row])[0]
    repeated = [*row[:4], *answer[:3], *row[4:], *answer[:2]]
    ways = {
        "the text": (repeated, {"prompt_lookup_num_tokens": 3}),
        **{name: (row, {"assistant_model": each}) for name, each in assistants.items()},
    }
    for name, (prompt, arguments) in ways.items():
        widths.clear()
        found = generating.generated(loaded, [prompt], min_new_tokens=NEW, use_cache=True, **arguments)
        tokens = generating.new_tokens(found, [prompt])[0]
        yield equal(f"new tokens with {name}", len(tokens), NEW)
        yield at_most(f"regret with {name}", regret(network, prompt, tokens), 2 * building.bound("logits"))
        seen = (widths[0] > len(prompt)) + sum(width > 1 for width in widths[1:])
        yield at_least(f"passes over candidates with {name}", seen, 1)


def regret(network: Network, prompt: Sequence[int], tokens: Sequence[int]) -> float:
    return generated_logits.regret(generated_logits.expected(network, prompt, tokens), tokens)


@call(GROUP, phase=Phase.INFER)
def candidates_llama(ctx: Context) -> Iterator[Check]:
    """Candidates of prompt lookup and of an assistant leave the tokens of greedy generation as they are.

    https://huggingface.co/docs/transformers/generation_strategies, https://arxiv.org/abs/2211.17192
    """
    yield from candidates(ctx, "llama")


@call(GROUP, phase=Phase.INFER, requires=("model_qwen3",))
def candidates_qwen3(ctx: Context) -> Iterator[Check]:
    """As candidates_llama, with Qwen 3."""
    yield from candidates(ctx, "qwen3")


@call(GROUP, phase=Phase.INFER, requires=("model_mistral", "layered_caches"))
def candidates_mistral(ctx: Context) -> Iterator[Check]:
    """As candidates_llama, with a sliding window from whose cache rejected tokens are removed."""
    yield from candidates(ctx, "mistral")


@call(GROUP, phase=Phase.INFER, requires=("model_gemma", "layered_caches"))
def candidates_gemma2(ctx: Context) -> Iterator[Check]:
    """As candidates_llama, with a sliding window in every other layer."""
    yield from candidates(ctx, "gemma", "eager")


@call(GROUP, phase=Phase.INFER)
def candidates_gpt2(ctx: Context) -> Iterator[Check]:
    """As candidates_llama, with learned positions.

    transformers 4.47 limits the place of a candidate in the text instead of the number of new tokens, so that it
    generates more tokens than max_new_tokens.
    """
    yield from candidates(ctx, "gpt2", "eager")


@call(GROUP, phase=Phase.INFER)
def generate_from_embeddings(ctx: Context) -> Iterator[Check]:
    """Generation from inputs_embeds of a padded batch has the logits of generation from their tokens."""
    import torch

    for model in ("llama", "qwen", "mistral", "mixtral"):
        folder, batch = Variant(model).written(ctx, "embedded"), generating.prompts()
        network, loaded = building.network(folder), building.loaded(ctx, folder)
        longest = max(map(len, batch))
        ids = torch.tensor([[tiny.PADDING] * (longest - len(row)) + row for row in batch], device=loaded.device)
        mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in batch], device=loaded.device)
        with torch.no_grad():
            found = loaded.generate(
                inputs_embeds=loaded.get_input_embeddings()(ids),
                attention_mask=mask,
                max_new_tokens=NEW,
                do_sample=False,
                use_cache=True,
                eos_token_id=tiny.END,
                pad_token_id=tiny.PADDING,
                **WITH_LOGITS,
            )
        yield from generated_logits.checks(model, network, batch, found)
