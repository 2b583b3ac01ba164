"""TRL's trainers in user scripts: names, keywords, and silent changes to the data."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from cases.api import call, ingredients
from cases.model import architectures, tiny
from cases.space.options import GLOBAL_BATCH
from cases.space.verdict import Check, Phase, at_least, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "TRL"
PROMPT = 10  # words
LONG = 1500  # tokens: more than the 1024 that trl's trainers cut at if they are not told otherwise


def supervised(ctx: Context, data: Any, config: Any) -> Any:
    from trl import SFTTrainer

    return SFTTrainer(
        model=ingredients.base(ctx), args=config, train_dataset=data, **ingredients.tokenizer_argument(SFTTrainer)
    )


def sft_config(ctx: Context, **more: Any) -> Any:
    from trl import SFTConfig

    return ingredients.arguments(
        ctx, SFTConfig, remove_unused_columns=True, bf16=False, gradient_checkpointing=False, **more
    )


def first_batch(trainer: Any) -> Any:
    return next(iter(trainer.get_train_dataloader()))


@call(GROUP, phase=Phase.WRAP)
def sft_trains(ctx: Context) -> Iterator[Check]:
    """SFTTrainer trains on rows of text."""
    text = [ingredients.sentence(tiny.LENGTH, row) for row in range(8)]
    trainer = supervised(ctx, ingredients.dataset(text=text), sft_config(ctx, dataset_text_field="text"))
    trainer.train()
    yield equal("steps taken", trainer.state.global_step, 2)


@call(GROUP, phase=Phase.FORWARD)
def sft_max_seq_length(ctx: Context) -> Iterator[Check]:
    """A wrapper that sets max_seq_length on the config gets rows of that length, not rows truncated to 1024 tokens."""
    config = sft_config(ctx, per_device_train_batch_size=1, dataset_text_field="text")
    config.max_seq_length = 2 * LONG
    batch = first_batch(supervised(ctx, ingredients.dataset(text=[ingredients.sentence(LONG)] * 2), config))
    yield at_least("tokens of the longest row", batch["input_ids"].shape[1], LONG)


@call(GROUP, phase=Phase.FORWARD)
def sft_prompt_and_completion(ctx: Context) -> Iterator[Check]:
    """The loss of a dataset with prompt and completion covers the completion only, as TRL documents.

    https://huggingface.co/docs/trl/sft_trainer#train-on-completion-only. Versions without completion_only_loss cover
    both.
    """
    from trl import SFTConfig

    documented = 0 if "completion_only_loss" in inspect.signature(SFTConfig).parameters else PROMPT
    columns = {"prompt": [ingredients.sentence(PROMPT)] * 2, "completion": [" " + ingredients.sentence(6, PROMPT)] * 2}
    batch = first_batch(supervised(ctx, ingredients.dataset(**columns), sft_config(ctx, per_device_train_batch_size=1)))
    in_loss = int((batch["labels"][0, :PROMPT] != ingredients.IGNORED).sum())
    yield equal("prompt tokens in the loss", in_loss, documented)


@call(GROUP, phase=Phase.FORWARD)
def dpo_trains(ctx: Context) -> Iterator[Check]:
    """DPOTrainer trains two steps on preference pairs."""
    from trl import DPOConfig, DPOTrainer

    pairs = {
        "prompt": [ingredients.sentence(6)] * 8,
        "chosen": [ingredients.sentence(4)] * 8,
        "rejected": [ingredients.sentence(4, 9)] * 8,
    }
    config = ingredients.arguments(ctx, DPOConfig, bf16=False, gradient_checkpointing=False)
    trainer = DPOTrainer(
        model=ingredients.base(ctx),
        ref_model=ingredients.base(ctx),
        args=config,
        train_dataset=ingredients.dataset(**pairs),
        **ingredients.tokenizer_argument(DPOTrainer),
    )
    trainer.train()
    yield equal("steps taken", trainer.state.global_step, 2)


@call(GROUP, phase=Phase.IMPORT)
def trl_value_head(ctx: Context) -> Iterator[Check]:
    """``from trl import AutoModelForCausalLMWithValueHead`` and a forward: one value for each token."""
    from trl import AutoModelForCausalLMWithValueHead

    model = AutoModelForCausalLMWithValueHead.from_pretrained(str(architectures.plain_checkpoint(ctx.cache)))
    values = model(input_ids=tiny.batch(0))[-1]
    yield equal("shape of the values", str(tuple(values.shape)), str((GLOBAL_BATCH, tiny.LENGTH)))
