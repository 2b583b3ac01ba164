"""``transformers.Trainer`` in user scripts: arguments, overridden methods, resuming."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from cases.api import call, ingredients
from cases.model import tiny
from cases.space.options import GLOBAL_BATCH
from cases.space.verdict import Check, Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "Trainer"
SAME = 1e-5  # the same arithmetic in float32, on weights of about 1


def expected(ctx: Context, steps: int) -> dict[str, Any]:
    """The weights after plain gradient descent with torch alone."""
    import torch

    model = ingredients.base(ctx)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        ids = tiny.batch(step).to(ctx.place.device)
        logits = model(input_ids=ids).logits[:, :-1].flatten(0, 1)
        torch.nn.functional.cross_entropy(logits, ids[:, 1:].flatten()).backward()
        optimiser.step()
        optimiser.zero_grad()
    return model.state_dict()  # type: ignore[no-any-return]


def trained_like(model: Any, weights: dict[str, Any]) -> Check:
    found = model.state_dict()
    return at_most(
        "weight off", max(ingredients.largest_difference(found[name], weights[name]) for name in weights), SAME
    )


def in_order(trainer: type) -> type:
    """A subclass that keeps the order of the rows in all versions."""
    import torch

    class InOrder(trainer):  # type: ignore[misc]
        def _get_train_sampler(self, *_: Any) -> Any:
            return torch.utils.data.SequentialSampler(self.train_dataset)

    return InOrder


@call(GROUP, phase=Phase.OPTIMIZER)
def trainer_steps(ctx: Context) -> Iterator[Check]:
    """Trainer gives the same weights as a plain training loop."""
    from transformers import Trainer

    model = ingredients.base(ctx)
    in_order(Trainer)(model=model, args=ingredients.arguments(ctx), train_dataset=ingredients.rows()).train()
    yield trained_like(model, expected(ctx, 2))


@call(GROUP, phase=Phase.FORWARD)
def trainer_mean_loss(ctx: Context) -> Iterator[Check]:
    """Trainer trains on the mean over the tokens that are predicted, even if the first label of a row is not masked."""
    from transformers import Trainer

    model, data = ingredients.base(ctx), ingredients.rows(first_counts=True)
    in_order(Trainer)(model=model, args=ingredients.arguments(ctx), train_dataset=data).train()
    yield trained_like(model, expected(ctx, 2))


@call(GROUP, phase=Phase.OPTIMIZER)
def trainer_accumulation(ctx: Context) -> Iterator[Check]:
    """Trainer with gradient_accumulation_steps=2 gives the same weights as batches of twice the size."""
    from transformers import Trainer

    model = ingredients.base(ctx)
    half = {"per_device_train_batch_size": GLOBAL_BATCH // 2, "gradient_accumulation_steps": 2}
    in_order(Trainer)(model=model, args=ingredients.arguments(ctx, **half), train_dataset=ingredients.rows()).train()
    yield trained_like(model, expected(ctx, 2))


@call(GROUP, phase=Phase.FORWARD)
def trainer_log_override(ctx: Context) -> Iterator[Check]:
    """An override of Trainer.log with the older signature, log(logs), still works."""
    from transformers import Trainer

    seen: list[float] = []

    class Logging(Trainer):  # type: ignore[misc]
        def log(self, logs: dict[str, float]) -> None:
            seen.extend(logs[name] for name in logs if name == "loss")
            super().log(logs)

    Logging(model=ingredients.base(ctx), args=ingredients.arguments(ctx), train_dataset=ingredients.rows()).train()
    yield equal("losses logged", len(seen), 2)


@call(GROUP, phase=Phase.FORWARD)
def trainer_compute_loss_override(ctx: Context) -> Iterator[Check]:
    """An override of Trainer.compute_loss with the older signature still works."""
    from transformers import Trainer

    class Doubled(Trainer):  # type: ignore[misc]
        def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False) -> Any:  # noqa: FBT001, FBT002
            found = model(**inputs)
            return (2 * found.loss, found) if return_outputs else 2 * found.loss

    model = ingredients.base(ctx)
    in_order(Doubled)(
        model=model, args=ingredients.arguments(ctx, learning_rate=0.05), train_dataset=ingredients.rows()
    ).train()
    yield trained_like(model, expected(ctx, 2))


@call(GROUP, phase=Phase.FORWARD)
def trainer_sampler_override(ctx: Context) -> Iterator[Check]:
    """An override of Trainer._get_train_sampler with the older signature still selects the rows."""
    import torch
    from transformers import Trainer

    class InOrder(Trainer):  # type: ignore[misc]
        def _get_train_sampler(self) -> Any:
            return torch.utils.data.SequentialSampler(self.train_dataset)

    model = ingredients.base(ctx)
    InOrder(model=model, args=ingredients.arguments(ctx), train_dataset=ingredients.rows()).train()
    yield trained_like(model, expected(ctx, 2))


@call(GROUP, phase=Phase.WRAP)
def trainer_dispatch_batches(ctx: Context) -> Iterator[Check]:
    """TrainingArguments accepts dispatch_batches and split_batches, as scripts of 2023 and 2024 pass them."""
    from transformers import Trainer

    model = ingredients.base(ctx)
    given = ingredients.arguments(ctx, dispatch_batches=False, split_batches=False)
    in_order(Trainer)(model=model, args=given, train_dataset=ingredients.rows()).train()
    yield trained_like(model, expected(ctx, 2))


@call(GROUP, phase=Phase.WRAP)
def trainer_tokenizer_keyword(ctx: Context) -> Iterator[Check]:
    """Trainer accepts tokenizer=, the older name of processing_class=, and saves it with the model."""
    from transformers import AutoTokenizer, Trainer

    Trainer(model=ingredients.base(ctx), args=ingredients.arguments(ctx), tokenizer=ingredients.tokenizer()).save_model(
        ctx.kept / "out"
    )
    yield equal("words saved", len(AutoTokenizer.from_pretrained(ctx.kept / "out")), tiny.VOCABULARY)


@call(GROUP, phase=Phase.BACKWARD)
def trainer_checkpointing_adapter(ctx: Context) -> Iterator[Check]:
    """Trainer(args=TrainingArguments(gradient_checkpointing=True)) trains a PEFT model."""
    from peft import get_peft_model
    from transformers import Trainer

    model = get_peft_model(ingredients.base(ctx), ingredients.lora())
    given = ingredients.arguments(ctx, gradient_checkpointing=True)
    Trainer(model=model, args=given, train_dataset=ingredients.rows()).train()
    moved = [bool(weight.any()) for name, weight in model.named_parameters() if "lora_B" in name]
    yield equal("adapters that moved from zero", sum(moved), len(tiny.TARGETS) * tiny.LAYERS)


@call(GROUP, phase=Phase.BACKWARD)
def trainer_checkpointing_adapter_not_reentrant(ctx: Context) -> Iterator[Check]:
    """Trainer trains a PEFT model with gradient checkpointing and use_reentrant=False."""
    from peft import get_peft_model
    from transformers import Trainer

    model = get_peft_model(ingredients.base(ctx), ingredients.lora())
    how = {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": False}}
    Trainer(model=model, args=ingredients.arguments(ctx, **how), train_dataset=ingredients.rows()).train()
    moved = [bool(weight.any()) for name, weight in model.named_parameters() if "lora_B" in name]
    yield equal("adapters that moved from zero", sum(moved), len(tiny.TARGETS) * tiny.LAYERS)


@call(GROUP, phase=Phase.RESUME)
def trainer_resume(ctx: Context) -> Iterator[Check]:
    """trainer.train(resume_from_checkpoint=...) gives the weights of uninterrupted training."""
    from transformers import Trainer

    first = ingredients.arguments(ctx, save_strategy="steps", save_steps=2)
    in_order(Trainer)(model=ingredients.base(ctx), args=first, train_dataset=ingredients.rows()).train()
    model = ingredients.base(ctx)
    trainer = in_order(Trainer)(
        model=model, args=ingredients.arguments(ctx, max_steps=3), train_dataset=ingredients.rows()
    )
    trainer.train(resume_from_checkpoint=str(ctx.kept / "output" / "checkpoint-2"))
    yield equal("steps taken", trainer.state.global_step, 3)
    yield trained_like(model, expected(ctx, 3))


@call(GROUP, phase=Phase.RESUME)
def trainer_best_model(ctx: Context) -> Iterator[Check]:
    """load_best_model_at_end loads the best one, from the .bin files of save_safetensors=False."""
    from transformers import Trainer, TrainingArguments

    given = {"save_strategy": "steps", "save_steps": 1, "eval_steps": 1, "metric_for_best_model": "loss"}
    strategy = "eval_strategy" if hasattr(TrainingArguments, "eval_strategy") else "evaluation_strategy"
    arguments = ingredients.arguments(
        ctx, **given, **{strategy: "steps"}, load_best_model_at_end=True, save_safetensors=False
    )
    trainer = Trainer(
        model=ingredients.base(ctx), args=arguments, train_dataset=ingredients.rows(), eval_dataset=ingredients.rows()
    )
    trainer.train()
    yield at_most("loss off the best", abs(trainer.evaluate()["eval_loss"] - trainer.state.best_metric), SAME)


@call(GROUP, phase=Phase.WRAP)
def trainer_fsdp_words(ctx: Context) -> Iterator[Check]:
    """TrainingArguments(fsdp="full_shard auto_wrap") still selects FSDP1."""
    wrapped = {"transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"]}
    made = ingredients.arguments(ctx, fsdp="full_shard auto_wrap", fsdp_config=wrapped)
    plugin = getattr(made, "fsdp_plugin_args", None) or {}
    yield equal("version of FSDP", int(plugin.get("fsdp_version", os.environ.get("FSDP_VERSION", "1"))), 1)


@call(GROUP, phase=Phase.FORWARD)
def trainer_numpy_metrics(ctx: Context) -> Iterator[Check]:
    """trainer.evaluate passes NumPy arrays to compute_metrics, so torch and NumPy must be compatible."""
    from transformers import Trainer

    shapes: list[tuple[int, ...]] = []

    def measured(found: Any) -> dict[str, float]:
        shapes.append(found.predictions.shape)
        return {"mean": float(found.predictions.mean())}

    trainer = Trainer(
        model=ingredients.base(ctx),
        args=ingredients.arguments(ctx),
        eval_dataset=ingredients.rows(1),
        compute_metrics=measured,
    )
    trainer.evaluate()
    yield equal("shape of the logits", str(shapes), str([(GLOBAL_BATCH, tiny.LENGTH, tiny.VOCABULARY)]))
    yield at_least("evaluations", len(shapes), 1)
