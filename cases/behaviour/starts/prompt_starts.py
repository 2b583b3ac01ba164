"""Prompt and prefix tuning as PEFT starts them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call, ingredients
from cases.api import models as tiny_models
from cases.behaviour.starts import adapted_layers
from cases.model import architectures, tiny
from cases.reference import tolerance, twin
from cases.space.options import Options
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Start values of other adapters"
VIRTUAL = 7


def prompted(ctx: Context, text: str) -> Any:
    from peft import PromptTuningConfig, get_peft_model

    folder = ctx.kept / "tokenizer"
    ingredients.tokenizer().save_pretrained(folder)
    config = PromptTuningConfig(
        task_type="CAUSAL_LM",
        num_virtual_tokens=VIRTUAL,
        prompt_tuning_init="TEXT",
        prompt_tuning_init_text=text,
        tokenizer_name_or_path=str(folder),
    )
    return get_peft_model(tiny_models.loaded(ctx, dtype="fp32"), config)


def text_checks(ctx: Context, text: str) -> Iterator[Check]:
    """Check that the prompt starts as the text's embeddings, and acts like the text before the input."""
    import torch

    words = [len(ingredients.SPECIAL) + ingredients.WORDS.index(word) for word in text.split()]
    words = (words * VIRTUAL)[:VIRTUAL]
    model = prompted(ctx, text)
    folder = architectures.plain_checkpoint(ctx.cache)
    network = twin.network(Options(), folder)
    expected = network.tensors["model.embed_tokens.weight"][words]
    found = model.prompt_encoder["default"].embedding.weight.detach().double().cpu()
    yield equal("numbers of the prompt that differ from the text's", int((found != expected).sum()), 0)
    ids = torch.cat([torch.tensor(words).expand(len(tiny.batch(0)), -1), tiny.batch(0)], dim=1)
    logits = twin.logits(network, {}, ids, Options())
    within = tolerance.bound("logits", Options())
    yield at_most("logits off those with the text", tolerance.relative(tiny_models.logits(model), logits), within)
    yield from adapted_layers.trained(model, ("prompt_encoder",), VIRTUAL * tiny.HIDDEN)


@call(GROUP, phase=Phase.ADAPT)
def prompt_text_start(ctx: Context) -> Iterator[Check]:
    """Prompt tuning that starts from a text acts like the text before the input; a short text is repeated.

    https://arxiv.org/abs/2104.08691, section 3.2: prompts start as embeddings of the vocabulary.
    """
    yield from text_checks(ctx, " ".join(ingredients.WORDS[5:8]))


@call(GROUP, phase=Phase.ADAPT)
def prompt_long_text_start(ctx: Context) -> Iterator[Check]:
    """Prompt tuning that starts from a text longer than the prompt takes its first tokens."""
    yield from text_checks(ctx, " ".join(ingredients.WORDS[20 : 20 + VIRTUAL + 4]))


@call(GROUP, phase=Phase.ADAPT)
def prompt_random_start(ctx: Context) -> Iterator[Check]:
    """Prompt tuning trains one embedding per virtual token, and the base stays frozen."""
    from peft import PromptTuningConfig, get_peft_model

    config = PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=VIRTUAL)
    model = get_peft_model(tiny_models.loaded(ctx, dtype="fp32"), config)
    yield from adapted_layers.trained(model, ("prompt_encoder",), VIRTUAL * tiny.HIDDEN)


@call(GROUP, phase=Phase.ADAPT)
def prefix_start(ctx: Context) -> Iterator[Check]:
    """Prefix tuning trains a key and a value per layer, group of heads and virtual token, and nothing else.

    https://arxiv.org/abs/2101.00190, section 4.2. The tiny model has two groups of keys and values for four heads.
    """
    from peft import PrefixTuningConfig, get_peft_model

    config = PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=VIRTUAL)
    model = get_peft_model(tiny_models.loaded(ctx, dtype="fp32"), config)
    numbers = VIRTUAL * tiny.LAYERS * 2 * (tiny.HIDDEN // 2)
    yield from adapted_layers.trained(model, ("prompt_encoder",), numbers)
