"""Generation without a mask, with static caches in other modes, and processors and criteria called directly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call, ingredients
from cases.model import tiny
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "Generation"
NEW = 5
ROUNDED = 0.1  # of logits in bfloat16


def prompts() -> list[list[int]]:
    return [[5, 9, 14, 7, 30, 8], [11, 12], [40, 6, 21, 9]]


def padded(rows: list[list[int]]) -> Any:
    import torch

    width = max(map(len, rows))
    return torch.tensor([[tiny.PADDING] * (width - len(row)) + row for row in rows])


def settings(**more: Any) -> dict[str, Any]:
    return {
        "max_new_tokens": NEW,
        "do_sample": False,
        "use_cache": True,
        "pad_token_id": tiny.PADDING,
        "eos_token_id": tiny.END,
        **more,
    }


@call(GROUP, phase=Phase.INFER)
def generate_without_a_mask(ctx: Context) -> Iterator[Check]:
    """Without attention_mask, generate takes it from the padding of token ids, unless padding is an end token too."""
    import torch

    model = ingredients.base(ctx).eval()
    ids = padded(prompts())
    mask = (ids != tiny.PADDING).long()
    kinds: dict[str, dict[str, Any]] = {"greedy": {}, "beams": {"num_beams": 2}, "no cache": {"use_cache": False}}
    for name, more in kinds.items():
        wanted = model.generate(ids, attention_mask=mask, **settings(**more))
        found = model.generate(ids, **settings(**more))
        yield equal(f"tokens, {name}", str(found.tolist()), str(wanted.tolist()))
        by_name = model.generate(input_ids=ids, **settings(**more))
        yield equal(f"tokens by name, {name}", str(by_name.tolist()), str(wanted.tolist()))
    for row in prompts():
        alone = model.generate(torch.tensor([row]), **settings())
        whole = model.generate(
            torch.tensor([row]), attention_mask=torch.ones(1, len(row), dtype=torch.long), **settings()
        )
        yield equal(f"tokens of a prompt of {len(row)}", str(alone.tolist()), str(whole.tolist()))
    first = torch.tensor([[tiny.END, *row] for row in ([5, 9], [7, 8])])
    found = model.generate(first, **settings(pad_token_id=tiny.END))
    wanted = model.generate(first, attention_mask=torch.ones_like(first), **settings(pad_token_id=tiny.END))
    yield equal("tokens, padding by the end token", str(found.tolist()), str(wanted.tolist()))


def cached_as(kind: str | None) -> dict[str, Any]:
    return {} if kind is None else {"cache_implementation": kind}


@call(GROUP, phase=Phase.INFER)
def static_caches_in_modes(ctx: Context) -> Iterator[Check]:
    """A static cache holds prompts given as embeddings and has the model's dtype; candidates need a dynamic one."""
    import torch
    from transformers import GenerationConfig

    model = ingredients.base(ctx).eval()
    ids = padded(prompts())
    mask = (ids != tiny.PADDING).long()
    wanted = model.generate(ids, attention_mask=mask, **settings())[:, ids.shape[1] :]
    for kind in (None, "static"):
        embedded = model.get_input_embeddings()(ids).detach()
        found = model.generate(inputs_embeds=embedded, attention_mask=mask, **settings(**cached_as(kind)))
        yield equal(f"tokens from embeddings, {kind}", str(found.tolist()), str(wanted.tolist()))
        both = model.generate(ids, inputs_embeds=embedded, attention_mask=mask, **settings(**cached_as(kind)))
        yield equal(f"tokens from both, {kind}", str(both[:, ids.shape[1] :].tolist()), str(wanted.tolist()))
    one, assistant = torch.tensor([prompts()[0]]), ingredients.base(ctx).eval()
    alone = model.generate(one, attention_mask=torch.ones_like(one), **settings())
    for name, more in {
        "an assistant": {"assistant_model": assistant},
        "lookup": {"prompt_lookup_num_tokens": 2},
    }.items():
        found = model.generate(one, attention_mask=torch.ones_like(one), **settings(**more))
        yield equal(f"tokens with {name}", str(found.tolist()), str(alone.tolist()))
    found = model.generate(one, **settings())
    yield equal("tokens without a mask", str(found.tolist()), str(alone.tolist()))
    found = model.generate(inputs_embeds=model.get_input_embeddings()(one).detach(), **settings())
    yield equal("tokens from embeddings without a mask", str(found.tolist()), str(alone[:, one.shape[1] :].tolist()))
    half = ingredients.base(ctx).eval().to(torch.bfloat16)
    given = {"output_logits": True, "return_dict_in_generate": True, "attention_mask": mask, "min_new_tokens": NEW}
    exact = half.generate(ids, **settings(**given)).logits[0].float()
    chunks = {"prefill_chunk_size": 2} if hasattr(GenerationConfig(), "prefill_chunk_size") else {}
    for kind in (None, "static"):
        found = half.generate(ids, **settings(**given, **cached_as(kind), **chunks)).logits[0].float()
        off = float((found - exact).abs().max() / exact.abs().max())
        yield at_most(f"first logits in bfloat16 off, {kind}", off, ROUNDED)


@call(GROUP, phase=Phase.INFER)
def penalties_by_processors(_ctx: Context) -> Iterator[Check]:
    """RepetitionPenaltyLogitsProcessor divides positive scores of earlier tokens, multiplies negative ones, each once.

    NoRepeatNGram and MinLength processors, called directly, forbid what their names say and leave all other scores.
    """
    import torch
    from transformers import (
        MinLengthLogitsProcessor,
        MinNewTokensLengthLogitsProcessor,
        NoRepeatNGramLogitsProcessor,
        RepetitionPenaltyLogitsProcessor,
        TemperatureLogitsWarper,
        TopKLogitsWarper,
    )

    scores = torch.tensor([[1.0, -2.0, 3.0, -4.0, 0.5], [0.25, 2.0, -1.0, 1.5, -3.0]])
    ids = torch.tensor([[1, 2, 2, 4], [0, 3, 0, 3]])
    for penalty in (2.0, 0.5, 1.0):
        wanted = scores.tolist()
        for row, seen in enumerate(ids.tolist()):
            for token in set(seen):
                value = wanted[row][token]
                wanted[row][token] = value * penalty if value < 0 else value / penalty
        found = RepetitionPenaltyLogitsProcessor(penalty)(ids, scores.clone())
        yield equal(f"scores, penalty {penalty}", str(found.tolist()), str(wanted))
    lowest = float("-inf")
    found = NoRepeatNGramLogitsProcessor(2)(torch.tensor([[1, 2, 3, 1], [0, 1, 2, 4]]), scores.clone())
    wanted = scores.clone()
    wanted[0, 2] = lowest
    yield equal("scores, no pair again", str(found.tolist()), str(wanted.tolist()))
    for length, forbidden in ((4, False), (5, True)):
        wanted = scores.clone()
        if forbidden:
            wanted[:, [1, 3]] = lowest
        found = MinLengthLogitsProcessor(length, [1, 3])(ids, scores.clone())
        yield equal(f"scores, length {length}", str(found.tolist()), str(wanted.tolist()))
        found = MinNewTokensLengthLogitsProcessor(2, length - 2, [1, 3])(ids, scores.clone())
        yield equal(f"scores, new tokens to length {length}", str(found.tolist()), str(wanted.tolist()))
    found = TemperatureLogitsWarper(0.5)(ids, scores.clone())
    yield equal("scores, temperature", str(found.tolist()), str((scores / 0.5).tolist()))
    for number in (1, 2, 9):
        kept = [sorted(row, reverse=True)[: min(number, 5)] for row in scores.tolist()]
        wanted = [
            [each if each in of_row else lowest for each in row]
            for row, of_row in zip(scores.tolist(), kept, strict=True)
        ]
        found = TopKLogitsWarper(number)(ids, scores.clone())
        yield equal(f"scores, the best {number}", str(found.tolist()), str(wanted))


@call(GROUP, phase=Phase.INFER, requires=("penalties_beyond_the_head",))
def penalties_beyond_the_head(_ctx: Context) -> Iterator[Check]:
    """Tokens of a prompt beyond the head's vocabulary, as of images, leave the scores of all others to the penalty."""
    import torch
    from transformers import RepetitionPenaltyLogitsProcessor

    scores = torch.tensor([[1.0, -2.0, 3.0]])
    found = RepetitionPenaltyLogitsProcessor(2.0)(torch.tensor([[0, 7, 3, 1]]), scores.clone())
    yield equal("scores", str(found.tolist()), "[[0.5, -4.0, 3.0]]")


def spelled(decoder: str) -> Any:
    """A tokeniser of words and single bytes, whose decoder joins bytes as Llama's does, or is only that part."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = [
        *ingredients.SPECIAL,
        "abc",
        "def",
        *(f"<0x{each:02X}>" for each in range(256)),
        "hello",
        "sto",
        "p",
        "stop",
    ]
    made = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="<unk>"))  # noqa: S106 - no secret
    made.pre_tokenizer = pre_tokenizers.Split("abc", "isolated")
    alone = decoders.ByteFallback()
    made.decoder = alone if decoder == "alone" else decoders.Sequence([alone, decoders.Fuse()])
    names = dict(zip(("pad_token", "bos_token", "eos_token", "unk_token"), ingredients.SPECIAL, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=made, **names)


@call(GROUP, phase=Phase.INFER, requires=("stop_strings_of_bytes",))
def stop_at_strings_of_bytes(_ctx: Context) -> Iterator[Check]:
    """A stop string whose letters are several tokens of bytes stops a row after its last byte, and no row before it."""
    import torch
    from transformers.generation.stopping_criteria import StopStringCriteria

    for kind in ("sequence", "alone"):
        tokenizer = spelled(kind)
        ids = tokenizer.get_vocab()
        stop = [ids[f"<0x{each:02X}>"] for each in "é!".encode()]
        rows = {
            "ends": [ids["hello"], *stop],
            "within": [ids["hello"], *stop[:-1], ids["hello"]],
            "before": [ids["hello"], ids["hello"], *stop[:-1]],
            "after": [*stop, ids["hello"]],
        }
        width = max(map(len, rows.values()))
        criterion = StopStringCriteria(tokenizer, ["é!"])
        for name, row in rows.items():
            given = torch.tensor([[ids["hello"]] * (width - len(row)) + row])
            yield equal(f"stops, {kind}, {name}", bool(criterion(given, None)), name == "ends")
