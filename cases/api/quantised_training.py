"""Quantised models in the trainers of transformers and trl."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from cases.api import call, models
from cases.apply import compat
from cases.model import tiny
from cases.space.options import GLOBAL_BATCH
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

TRAINERS = "Trainers and quantised models"
FOUR, EIGHT = ("4bit", "4bit_loading"), ("8bit", "8bit_loading")


def rows() -> list[dict[str, Any]]:
    return [{"input_ids": row, "labels": row} for row in tiny.batch(0).tolist()]


def arguments(ctx: Context, kind: Any, **other: Any) -> Any:
    """The given arguments that this version accepts."""
    known = inspect.signature(kind.__init__).parameters
    usual: dict[str, Any] = {
        "output_dir": str(ctx.kept / "out"),
        "max_steps": 2,
        "per_device_train_batch_size": GLOBAL_BATCH,
        "report_to": [],
        "use_cpu": ctx.place.kind == "cpu",
        "disable_tqdm": True,
        **other,
    }
    return kind(**{name: value for name, value in usual.items() if name in known})


def trainer(ctx: Context, model: Any, **other: Any) -> Any:
    from transformers import Trainer, TrainingArguments

    return Trainer(
        model=model, args=arguments(ctx, TrainingArguments, **other), train_dataset=rows(), eval_dataset=rows()
    )


@call(TRAINERS, phase=Phase.WRAP, requires=FOUR)
def trainer_without_adapter(ctx: Context) -> Iterator[Check]:
    """The trainer accepts a 4-bit model without adapters whose head is trainable."""
    model = models.loaded(ctx, "nf4")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.startswith("lm_head"))
    yield equal("steps", trainer(ctx, model).train().global_step, 2)


@call(TRAINERS, phase=Phase.WRAP, requires=FOUR)
def trainer_with_adapter(ctx: Context) -> Iterator[Check]:
    """The trainer accepts a 4-bit model with adapters."""
    yield equal("steps", trainer(ctx, models.adapted(models.loaded(ctx, "nf4"))).train().global_step, 2)


@call(TRAINERS, phase=Phase.RESUME, requires=EIGHT)
def best_model_int8(ctx: Context) -> Iterator[Check]:
    """The trainer loads the best adapter of an 8-bit model at the end."""
    yield from best(ctx, "int8", "bf16")


@call(TRAINERS, phase=Phase.RESUME)
def best_model(ctx: Context) -> Iterator[Check]:
    """The trainer loads the best adapter at the end."""
    yield from best(ctx, "none", "fp32")


def best(ctx: Context, quant: str, dtype: str) -> Iterator[Check]:
    found = trainer(
        ctx,
        models.adapted(models.loaded(ctx, quant, dtype)),
        load_best_model_at_end=True,
        save_strategy="steps",
        eval_strategy="steps",
        evaluation_strategy="steps",
        save_steps=1,
        eval_steps=1,
    )
    yield equal("steps", found.train().global_step, 2)
    yield equal("best model found", bool(found.state.best_model_checkpoint), True)  # noqa: FBT003 - the value measured


def fine_tuner(ctx: Context, model: Any, *, adapter: bool, bf16: bool) -> Any:
    """SFTTrainer on tokenised rows."""
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    from cases.api.saving import tokeniser

    known = inspect.signature(SFTTrainer.__init__).parameters
    config = arguments(ctx, SFTConfig, bf16=bf16, max_length=tiny.LENGTH, max_seq_length=tiny.LENGTH)
    named = {"processing_class" if "processing_class" in known else "tokenizer": tokeniser(tiny.VOCABULARY)}
    data = Dataset.from_list([{"input_ids": row} for row in tiny.batch(0).tolist()])
    return SFTTrainer(
        model=model, args=config, train_dataset=data, peft_config=models.config() if adapter else None, **named
    )


@call(TRAINERS, phase=Phase.INFER, requires=FOUR)
def generate_after_sft(ctx: Context) -> Iterator[Check]:
    """A QLoRA model generates inside its trainer without autocast."""
    from cases.apply.build import generate

    found = fine_tuner(ctx, models.loaded(ctx, "nf4"), adapter=True, bf16=True)
    found.train()
    tokens = generate(found.model, ctx)
    yield equal("new tokens", tokens.shape[1], tiny.NEW_TOKENS)


@call(TRAINERS, phase=Phase.WRAP, requires=FOUR)
def adapters_after_sft_nf4(ctx: Context) -> Iterator[Check]:
    """TRL keeps the float32 adapters of a 4-bit model when it trains without bf16."""
    yield from adapters_left(ctx, "nf4")


@call(TRAINERS, phase=Phase.WRAP)
def adapters_after_sft(ctx: Context) -> Iterator[Check]:
    """TRL keeps the float32 adapters of a bfloat16 model when it trains without bf16."""
    yield from adapters_left(ctx, "none")


def adapters_left(ctx: Context, quant: str) -> Iterator[Check]:
    found = fine_tuner(ctx, models.loaded(ctx, quant), adapter=True, bf16=False)
    dtypes = {compat.dtype_name(p.dtype) for name, p in found.model.named_parameters() if tiny.is_adapter(name)}
    yield equal("dtype of the adapter", "+".join(sorted(dtypes)), "fp32")


@call(TRAINERS, phase=Phase.FORWARD)
def entropy_in_bf16(ctx: Context) -> Iterator[Check]:
    """GRPO computes its mask of high-entropy tokens correctly in bfloat16."""
    import torch
    from trl.trainer import grpo_trainer

    del ctx
    mask, entropies = torch.ones(2, 8), torch.arange(16, dtype=torch.bfloat16).view(2, 8)
    alone = getattr(grpo_trainer, "get_high_entropy_mask", None)
    if alone is not None:
        found = alone(entropies, mask, 0.5)
    else:
        found = grpo_trainer.GRPOTrainer.get_high_entropy_mask(only_process(), entropies, mask, 0.5)
    yield at_most("tokens above the median, off", abs(int(found.sum()) - 8), 1)


def only_process() -> Any:
    """The part of a trainer that the method needs: gathering from the other processes, of which there are none."""
    from types import SimpleNamespace

    one = SimpleNamespace(gather=lambda tensor: tensor, process_index=0, pad_across_processes=lambda t, **_: t)
    return SimpleNamespace(accelerator=one)
