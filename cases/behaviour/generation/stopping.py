"""Where generation stops, by which settings, and what it fills rows with that stop before others.

https://huggingface.co/docs/transformers/main_classes/text_generation
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.generation import generating
from cases.behaviour.generation.generating import NEW
from cases.behaviour.models import building
from cases.behaviour.models.building import Variant
from cases.model import tiny
from cases.space.verdict import Phase, at_least, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Generation"
ROWS, PROMPT = 4, tiny.LENGTH // 2
NONE = 127  # a token that ends no row


def loaded(ctx: Context, model: str = "llama", **changes: Any) -> Any:
    """A model whose configuration names no end and no padding token, but for changes."""
    settings = {"eos_token_id": None, "pad_token_id": None, **changes}
    return building.loaded(ctx, Variant(model, settings).written(ctx, f"stopping {len(changes)}"))


def prompts(model: Any) -> Any:
    return tiny.prompt()[:ROWS].to(model.device)


def new_rows(model: Any, **arguments: Any) -> list[list[int]]:
    """The new tokens of a greedy generation; arguments replace the usual ones."""
    import torch

    ids = prompts(model)
    usual = {"attention_mask": torch.ones_like(ids), "max_new_tokens": NEW, "do_sample": False, "use_cache": True}
    given = {name: value for name, value in {**usual, **arguments}.items() if value is not None}
    found = model.generate(ids, **given)
    rows: list[list[int]] = found[:, 1 if model.config.is_encoder_decoder else PROMPT :].tolist()
    return rows


def stopped(rows: Sequence[Sequence[int]], stops: Callable[[int, list[int]], bool], filler: int) -> list[list[int]]:
    """The rows up to the first token at which each stops, filled up to the longest."""
    kept = [
        next((list(row[: size + 1]) for size in range(len(row)) if stops(number, list(row[: size + 1]))), list(row))
        for number, row in enumerate(rows)
    ]
    longest = max(map(len, kept))
    return [row + [filler] * (longest - len(row)) for row in kept]


def same(name: str, found: Sequence[Sequence[int]], wanted: Sequence[Sequence[int]]) -> Iterator[Check]:
    """Compare rows, which must be the same, and of several lengths."""
    yield equal(f"tokens, {name}", str(found), str(wanted))


def tokenizer() -> Any:
    """A tokeniser whose tokens are their numbers with three digits and a dot, joined without spaces."""
    from tokenizers import Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.WordLevel({word(token): token for token in range(tiny.VOCABULARY)}, unk_token=word(0)))
    made.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=made)


def word(token: int) -> str:
    return f"{token:03d}." if token != NONE else "abcdef"  # which transformers looks up, to learn how tokens are joined


@call(GROUP, phase=Phase.INFER)
def stop_at_strings(ctx: Context) -> Iterator[Check]:
    """stop_strings ends a row with the token that completes one of the strings, within a token or across several."""
    model = loaded(ctx, pad_token_id=tiny.PADDING)
    free = new_rows(model, eos_token_id=NONE)
    across, inside = word(free[0][2])[2:] + word(free[0][3])[:2], word(free[1][4])[:3]
    settings = {"one": across, "several": [across, inside], "whole tokens": [word(free[2][1]) + word(free[2][2])]}
    for name, strings in settings.items():
        each = [strings] if isinstance(strings, str) else strings

        def ends(_row: int, tokens: list[int], each: Sequence[str] = each) -> bool:
            return any(one in "".join(map(word, tokens)) for one in each)

        wanted = stopped(free, ends, tiny.PADDING)
        yield at_least(f"rows that stop, {name}", sum(map(list.__ne__, wanted, free)), 1)
        found = new_rows(model, stop_strings=strings, tokenizer=tokenizer(), eos_token_id=NONE)
        yield from same(name, found, wanted)


@call(GROUP, phase=Phase.INFER)
def stop_at_limits(ctx: Context) -> Iterator[Check]:
    """max_length counts the prompt, max_new_tokens does not and has precedence; max_time finishes the present token."""
    for model_name, start in (("llama", PROMPT), ("t5", 1)):  # a decoder counts its start token only
        model = loaded(ctx, model_name, pad_token_id=tiny.PADDING, decoder_start_token_id=0)
        free = new_rows(model, max_new_tokens=5, eos_token_id=NONE)
        yield equal(f"columns of new tokens, {model_name}, max_new_tokens", len(free[0]), 5)
        settings: dict[str, tuple[dict[str, Any], int]] = {
            "max_length": ({"max_new_tokens": None, "max_length": start + 3}, 3),
            "both": ({"max_new_tokens": 2, "max_length": start + 4}, 2),
            "max_time": ({"max_time": 1e-9}, 1),
            "much max_time": ({"max_new_tokens": 5, "max_time": 1e6}, 5),
        }
        for name, (arguments, size) in settings.items():
            found = new_rows(model, eos_token_id=NONE, **arguments)
            yield from same(f"{model_name}, {name}", found, [row[:size] for row in free])


@call(GROUP, phase=Phase.INFER)
def stop_by_own_criteria(ctx: Context) -> Iterator[Check]:
    """Each row stops as soon as one of the criteria in stopping_criteria, or an end token, says so; others go on."""
    import torch
    from transformers import StoppingCriteria, StoppingCriteriaList

    class AfterTokens(StoppingCriteria):  # type: ignore[misc]  # of a package without types
        """Stop each row after a number of new tokens."""

        def __init__(self, sizes: Sequence[int]) -> None:
            self.sizes = sizes

        def __call__(self, input_ids: Any, _scores: Any, **_: Any) -> Any:
            return torch.tensor([input_ids.shape[1] - PROMPT >= size for size in self.sizes], device=input_ids.device)

    model = loaded(ctx, pad_token_id=tiny.PADDING)
    free = new_rows(model, eos_token_id=NONE)
    end = free[3][4]
    first, second = (2, 9, 5, 9), (9, 4, 3, 9)
    wanted = stopped(
        free, lambda row, tokens: len(tokens) >= min(first[row], second[row]) or tokens[-1] == end, tiny.PADDING
    )
    criteria = StoppingCriteriaList([AfterTokens(first), AfterTokens(second)])
    yield from same("own criteria", new_rows(model, stopping_criteria=criteria, eos_token_id=end), wanted)
    yield at_least("lengths", len({len(generating.up_to_end(row, [tiny.PADDING])) for row in wanted}), 3)


@call(GROUP, phase=Phase.INFER)
def stop_without_padding_token(ctx: Context) -> Iterator[Check]:
    """Without a padding token, the end token fills rows; with several ends, the first; without an end, none stops."""
    model = loaded(ctx)
    free = new_rows(model)
    yield equal("columns of new tokens, no end", len(free[0]), NEW)
    first, second = free[0][2], free[1][4]
    for name, ends in (("one end", [first]), ("several ends", [second, first])):
        wanted = stopped(free, lambda _, tokens, ends=ends: tokens[-1] in ends, ends[0])  # type: ignore[misc]
        yield at_least(f"rows that stop, {name}", sum(map(list.__ne__, wanted, free)), 1)
        given = ends[0] if len(ends) == 1 else ends
        yield from same(name, new_rows(model, eos_token_id=given), wanted)
    configured = loaded(ctx, eos_token_id=first, pad_token_id=5)  # of the configuration
    wanted = stopped(free, lambda _, tokens: tokens[-1] == first, 5)
    yield from same("configured", new_rows(configured), wanted)


@call(GROUP, phase=Phase.INFER)
def stop_by_generation_config(ctx: Context) -> Iterator[Check]:
    """Arguments of generate have precedence over generation_config, that over the model's; generate changes neither."""
    from transformers import GenerationConfig

    model = loaded(ctx, pad_token_id=tiny.PADDING)
    free = new_rows(model, eos_token_id=NONE)
    model.generation_config.eos_token_id, model.generation_config.pad_token_id = free[0][2], 6
    model.generation_config.max_new_tokens = 7
    before = model.generation_config.to_dict()
    of_model = stopped([row[:7] for row in free], lambda _, tokens: tokens[-1] == free[0][2], 6)
    yield from same("model", new_rows(model, max_new_tokens=None), of_model)
    own = GenerationConfig(max_new_tokens=6, eos_token_id=free[1][3], pad_token_id=7, do_sample=False)
    kept = own.to_dict()
    ids = prompts(model)
    settings: dict[str, tuple[dict[str, Any], int, int, int]] = {
        "generation_config": ({}, 6, free[1][3], 7),
        "and arguments": ({"max_new_tokens": 5, "pad_token_id": 8}, 5, free[1][3], 8),
    }
    for name, (arguments, size, end, filler) in settings.items():
        found = model.generate(ids, generation_config=own, **arguments)[:, PROMPT:].tolist()
        wanted = stopped([row[:size] for row in free], lambda _, tokens, end=end: tokens[-1] == end, filler)  # type: ignore[misc]
        yield from same(name, found, wanted)
    yield equal("generation_config afterwards", own.to_dict() == kept, bound=True)
    yield equal("the model's generation_config afterwards", model.generation_config.to_dict() == before, bound=True)


@call(GROUP, phase=Phase.INFER)
def return_several_sequences(ctx: Context) -> Iterator[Check]:
    """num_return_sequences returns that many samples behind each prompt, in order; a seed determines them."""
    import torch

    model = loaded(ctx, pad_token_id=tiny.PADDING)
    ids = prompts(model)
    wanted = ids.repeat_interleave(3, dim=0)
    drawn = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        found = model.generate(
            ids, do_sample=True, num_return_sequences=3, max_new_tokens=NEW, eos_token_id=NONE, top_k=0
        )
        yield equal("rows", str(tuple(found.shape)), str((3 * ROWS, PROMPT + NEW)))
        yield equal("prompts that differ", int((found[:, :PROMPT] != wanted).sum()), 0)
        drawn.append([tuple(row) for row in found[:, PROMPT:].tolist()])
    yield equal("different rows of a seed", len(set(drawn[0])), 3 * ROWS)
    yield equal("a seed draws the same again", drawn[0] == drawn[1], bound=True)
    yield equal("another seed draws the same", drawn[0] == drawn[2], bound=False)
