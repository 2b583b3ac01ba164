"""What generate returns beside tokens, and what it takes beside them: attentions, states, embeddings and caches."""

from __future__ import annotations

import inspect
from itertools import product
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.generation import stopping
from cases.behaviour.generation.generating import NEW
from cases.behaviour.models import building
from cases.behaviour.models.building import Variant
from cases.model import tiny
from cases.reference import tolerance
from cases.space.verdict import Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Generation"
WAYS: dict[str, dict[str, Any]] = {"greedy": {}, "sampled": {"do_sample": True}, "beams": {"num_beams": 2}}
PROMPT = tiny.LENGTH // 2


@call(GROUP, phase=Phase.INFER)
def returned_parts(ctx: Context) -> Iterator[Check]:
    """With return_dict_in_generate, generate returns the requested parts of each step, and no others.

    Attentions and states of an encoder-decoder are those of its encoder, its decoder, and between them.
    """
    for model in ("llama", "t5"):
        folder = Variant(model).written(ctx, "returned")
        loaded = building.loaded(ctx, folder, attn_implementation="eager")
        ids = tiny.prompt()[:2].to(loaded.device)
        names = ("attentions", "hidden_states")
        steps = [*names] if model == "llama" else [f"decoder_{each}" for each in names] + ["cross_attentions"]
        for (title, way), asked in product(WAYS.items(), (True, False)):
            wanted = {"output_attentions": asked, "output_hidden_states": asked, "output_scores": asked}
            more = {"max_new_tokens": NEW, "min_new_tokens": NEW, "pad_token_id": tiny.PADDING, **way, **wanted}
            found = loaded.generate(ids, return_dict_in_generate=True, **more)
            for name in [*steps, "scores"]:
                part = getattr(found, name)
                count = NEW if asked else 0
                yield equal(f"steps of {name}, {model}, {title}, {asked}", 0 if part is None else len(part), count)
            if model == "t5":
                for name in ("encoder_attentions", "encoder_hidden_states"):
                    part = getattr(found, name)
                    layers = loaded.config.num_layers + name.endswith("states") if asked else 0
                    yield equal(f"layers of {name}, {title}, {asked}", 0 if part is None else len(part), layers)


@call(GROUP, phase=Phase.INFER, requires=("prefilled_embeddings",))
def continued_from_embeddings(ctx: Context) -> Iterator[Check]:
    """A second turn by inputs_embeds of the whole text and the cache of the first computes the new tokens alone.

    Its scores are those of the whole text, and the cache has each token once.
    """
    import torch
    from transformers import DynamicCache

    for model in ("llama", "qwen"):
        loaded = building.loaded(ctx, Variant(model).written(ctx, "turns"))
        ids = tiny.batch(0)[:1].to(loaded.device)
        embeddings = loaded.get_input_embeddings()
        more = {"do_sample": False, "max_new_tokens": NEW, "pad_token_id": tiny.PADDING, "eos_token_id": None}
        more |= {"return_dict_in_generate": True, "output_scores": True}
        with torch.no_grad():
            mask = torch.ones_like(ids)
            wanted = loaded.generate(inputs_embeds=embeddings(ids), attention_mask=mask, **more)
            cache = DynamicCache()
            loaded(input_ids=ids[:, :PROMPT], past_key_values=cache, use_cache=True)
            more["past_key_values"] = cache
            found = loaded.generate(inputs_embeds=embeddings(ids), attention_mask=mask, **more)
        one, other = (torch.stack(each.scores) for each in (found, wanted))
        yield at_most(f"scores off, {model}", tolerance.relative(one, other), building.bound("logits"))
        yield equal(f"tokens in the cache, {model}", found.past_key_values.get_seq_length(), ids.shape[1] + NEW - 1)


@call(GROUP, phase=Phase.INFER)
def static_cache_without_mask(ctx: Context) -> Iterator[Check]:
    """Without attention_mask, a static cache has the logits of the whole text: prompt, parts and single tokens.

    Its empty slots count for nothing.
    """
    import torch
    from transformers import StaticCache

    for model in ("llama", "qwen", "mistral"):
        loaded = building.loaded(ctx, Variant(model, {"sliding_window": None}).written(ctx, "static"))
        ids = tiny.batch(0)[:2].to(loaded.device)
        with torch.no_grad():
            wanted = loaded(input_ids=ids).logits
            cache = made(StaticCache, loaded, len(ids), 3 * tiny.LENGTH)
            parts = []
            for begin, end in ((0, 5), (5, 6), (6, 9), *((at, at + 1) for at in range(9, ids.shape[1]))):
                places = torch.arange(begin, end, device=ids.device)
                given = {"past_key_values": cache, "use_cache": True, "cache_position": places}
                parts.append(loaded(input_ids=ids[:, begin:end], position_ids=places[None], **given).logits)
        off = tolerance.relative(torch.cat(parts, 1), wanted)
        yield at_most(f"logits off, {model}", off, building.bound("logits"))


def made(kind: Any, model: Any, rows: int, longest: int) -> Any:
    """A static cache; early versions want the number of rows too."""
    known = inspect.signature(kind.__init__).parameters
    more = {name: rows for name in ("max_batch_size", "batch_size") if name in known}
    more |= {"device": model.device, "dtype": model.dtype} if "device" in known else {}
    return kind(config=model.config, max_cache_len=longest, **more)


@call(GROUP, phase=Phase.INFER)
def stop_beyond_the_tokenizer(ctx: Context) -> Iterator[Check]:
    """stop_strings stops rows of a model whose vocabulary is padded beyond that of its tokeniser.

    Tokens without a text end no row.
    """
    from tokenizers import Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    model = stopping.loaded(ctx, pad_token_id=tiny.PADDING)
    free = stopping.new_rows(model, eos_token_id=stopping.NONE)
    words = {stopping.word(token): token for token in range(60)}
    words[stopping.word(stopping.NONE)] = 60
    plain = Tokenizer(models.WordLevel(words, unk_token=stopping.word(0)))
    plain.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain)
    ends = {token for row in free for token in row if token < len(words) - 1}
    beyond = sum(token >= len(words) for row in free for token in row)
    yield at_least("tokens without a text", beyond, 1)
    stop = min(ends) if ends else 7
    wanted = stopping.stopped(free, lambda _, tokens: tokens[-1] == stop, tiny.PADDING)
    found = stopping.new_rows(
        model, stop_strings=[stopping.word(stop)], tokenizer=tokenizer, eos_token_id=stopping.NONE
    )
    yield from stopping.same("a padded vocabulary", found, wanted)


@call(GROUP, phase=Phase.INFER, requires=("top_h",))
def top_h_of_large_vocabularies(_ctx: Context) -> Iterator[Check]:
    """top_h takes its entropy from the 100 most probable tokens, whatever the size of the vocabulary.

    https://huggingface.co/docs/transformers/internal/generation_utils#transformers.TopHLogitsWarper
    """
    import torch
    from transformers import TopHLogitsWarper

    for size, share in product((60, 100, 101, 2000), (0.2, 0.5, 0.9)):
        scores = tiny.values(f"scores {size}", (3, size)) * 0.5
        found = TopHLogitsWarper(share)(torch.zeros(3, 1, dtype=torch.long), scores.clone())
        for row in range(3):
            ordered = scores[row].double().sort(descending=True)
            chances = ordered.values[:100].softmax(-1)
            terms = -chances * chances.log()
            kept = max(1, int((terms.cumsum(-1) <= share * terms.sum()).sum()))
            held = found[row][found[row].isfinite()].double().sort(descending=True).values  # scores may be equal
            same = held.shape == (kept,) and bool((held == ordered.values[:kept]).all())
            yield equal(f"the most probable tokens are kept, {size}, {share}, row {row}", same, bound=True)
