"""Tokenisers that another version saved."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from cases.api import call, ingredients
from cases.model import tiny
from cases.space.verdict import Check, Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "Tokenisers"


def ids_with(config: dict[str, Any], ctx: Context) -> str:
    """The ids of a sentence, by the tokeniser of a folder with this tokenizer_config.json."""
    from transformers import AutoTokenizer

    folder = ingredients.folder(ctx, "tokenizer")
    ingredients.word_tokenizer().save(str(folder / "tokenizer.json"))
    names = dict(zip(("pad_token", "bos_token", "eos_token", "unk_token"), ingredients.SPECIAL, strict=True))
    (folder / "tokenizer_config.json").write_text(json.dumps({**names, **config}))
    return str(AutoTokenizer.from_pretrained(folder)(ingredients.sentence(5))["input_ids"])


def expected() -> str:
    return str(ingredients.word_tokenizer().encode(ingredients.sentence(5)).ids)


@call(GROUP, phase=Phase.RELOAD)
def tokenizer_of_transformers_4(ctx: Context) -> Iterator[Check]:
    """A tokeniser loads with the class name that transformers 4 writes."""
    yield equal("ids", ids_with({"tokenizer_class": "PreTrainedTokenizerFast"}, ctx), expected())


@call(GROUP, phase=Phase.RELOAD)
def tokenizer_of_transformers_5(ctx: Context) -> Iterator[Check]:
    """A tokeniser loads with the class name that transformers 5 writes."""
    yield equal("ids", ids_with({"tokenizer_class": "TokenizersBackend", "backend": "tokenizers"}, ctx), expected())


@call(GROUP, phase=Phase.RELOAD)
def tokenizer_extra_tokens_listed(ctx: Context) -> Iterator[Check]:
    """A tokeniser loads if its extra_special_tokens are a list, as transformers 5 writes them."""
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "extra_special_tokens": ["w4"]}
    yield equal("ids", ids_with(config, ctx), expected())


@call(GROUP, phase=Phase.SAVE)
def tokenizer_round_trip(ctx: Context) -> Iterator[Check]:
    """A tokeniser that this version saves can be reloaded."""
    from transformers import AutoTokenizer

    ingredients.tokenizer().save_pretrained(ctx.kept / "out")
    found = AutoTokenizer.from_pretrained(ctx.kept / "out")
    yield equal("words", len(found), tiny.VOCABULARY)
    yield equal("ids", str(found(ingredients.sentence(5))["input_ids"]), expected())
