"""Builders for calls: a tokeniser, rows of data, training arguments, a model, an adapter."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from cases.model import architectures, tiny
from cases.space.options import GLOBAL_BATCH

if TYPE_CHECKING:
    from pathlib import Path

    from cases.apply.context import Context

IGNORED = -100  # the label of what is not in the loss
SPECIAL = ("<pad>", "<s>", "</s>", "<unk>")  # at the ids that the tiny model's config names
WORDS = tuple(f"w{number}" for number in range(len(SPECIAL), tiny.VOCABULARY))


def word_tokenizer() -> Any:
    """A tokeniser of the ``tokenizers`` package with one id per word."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    ids = {word: number for number, word in enumerate((*SPECIAL, *WORDS))}
    made = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))  # noqa: S106 - a token of a tokeniser
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return made


def tokenizer() -> Any:
    from transformers import PreTrainedTokenizerFast

    names = dict(zip(("pad_token", "bos_token", "eos_token", "unk_token"), SPECIAL, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=word_tokenizer(), **names)


def sentence(length: int, start: int = 0) -> str:
    return " ".join(WORDS[(start + place) % len(WORDS)] for place in range(length))


def rows(steps: int = tiny.STEPS, *, first_counts: bool = False) -> list[dict[str, Any]]:
    """The rows of the batches of ``tiny``.

    The first label of a row never enters the loss. It is masked unless ``first_counts``: some versions count it.
    """
    ids = [row for step in range(steps) for row in tiny.batch(step)]
    labels = [row.clone() for row in ids]
    if not first_counts:
        for row in labels:
            row[0] = IGNORED
    return [{"input_ids": row, "labels": label} for row, label in zip(ids, labels, strict=True)]


def dataset(**columns: list[Any]) -> Any:
    from datasets import Dataset

    return Dataset.from_dict(columns)


def base(ctx: Context) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(architectures.plain_checkpoint(ctx.cache)).to(ctx.place.device)


def lora(**more: Any) -> Any:
    from peft import LoraConfig

    chosen = {"task_type": "CAUSAL_LM", "r": tiny.RANK, "target_modules": list(tiny.TARGETS), **more}
    return LoraConfig(**chosen)


def fill_adapter(model: Any) -> Any:
    """Fill the adapter's weights: lora_B starts at zero, which would hide lost weights."""
    import torch

    with torch.no_grad():
        for name, parameter in tiny.named(model):
            if ".lora_" in name:
                parameter.copy_(tiny.values(name, tuple(parameter.shape)))
    return model


def logits(model: Any, ctx: Context) -> Any:
    import torch

    with torch.no_grad():
        return model.eval()(input_ids=tiny.batch(0).to(ctx.place.device)).logits.float().cpu()


def largest_difference(one: Any, other: Any) -> float:
    return float((one - other).abs().max())


def folder(ctx: Context, name: str) -> Path:
    made = ctx.kept / name
    made.mkdir(exist_ok=True)
    return made


def arguments(ctx: Context, made: Any = None, **more: Any) -> Any:
    """``TrainingArguments``, or another class of the kind, for two steps of plain gradient descent."""
    from transformers import TrainingArguments

    few: dict[str, Any] = {
        "output_dir": str(ctx.kept / "output"),
        "max_steps": 2,
        "per_device_train_batch_size": GLOBAL_BATCH,
        "learning_rate": 0.1,
        "lr_scheduler_type": "constant",
        "optim": "sgd",
        "max_grad_norm": 0.0,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": ctx.place.kind == "cpu",
        "remove_unused_columns": False,
    }
    return (made or TrainingArguments)(**{**few, **more})


def tokenizer_argument(trainer: Any) -> dict[str, Any]:
    """The tokeniser, under the keyword of this version's trainers."""
    known = inspect.signature(trainer.__init__).parameters
    return {"processing_class" if "processing_class" in known else "tokenizer": tokenizer()}
