"""The Trainer on encoder-decoders, whose decoder predicts every label, the first one too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.trainers import optimisers, stock_trainer
from cases.behaviour.trainers.accumulating import RATE, SMOOTHING
from cases.behaviour.trainers.token_means import whole_rows
from cases.model import architectures
from cases.reference import models
from cases.reference.network import Batch
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cases.apply.context import Context
    from cases.behaviour.trainers.stock_trainer import Reference

GROUP = "Trainer: steps"
ROWS = 8
SAME = 1e-4  # relative: T5 has twice as many parts in a row as the other models


def mean_of_labels(smoothing: float) -> Any:
    """The mean over all labels of a step; the wanted distribution is uniform with this probability."""

    def loss(reference: Reference, batches: list[list[int]]) -> Any:
        import torch

        total: Any = 0.0
        count = 0
        for number in (number for batch in batches for number in batch):
            ids = stock_trainer.row(number)["input_ids"][None]
            batch = Batch(ids=ids, real=torch.ones_like(ids).bool(), decoder_ids=architectures.shifted(ids))
            chances = models.logits(reference.network, batch)[0].log_softmax(-1)
            exact = -chances.gather(-1, ids[0][:, None]).sum()
            total = total + (1 - smoothing) * exact - smoothing * chances.mean(-1).sum()
            count += ids.shape[1]
        return total / count

    return loss


def with_decoder_inputs(features: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A batch with the inputs of the decoder, which a model gets from a collator if the Trainer keeps its labels."""
    batch = whole_rows(features)
    return {**batch, "decoder_input_ids": architectures.shifted(batch["labels"].clamp_min(0))}


def compared(ctx: Context, smoothing: float, accumulation: int) -> Iterator[Check]:
    more: dict[str, Any] = {"label_smoothing_factor": smoothing, "gradient_accumulation_steps": accumulation}
    trainer = stock_trainer.trainer(ctx, ROWS, of=stock_trainer.model(ctx, "t5"), num_train_epochs=1, **more)
    trainer.data_collator = with_decoder_inputs if smoothing else whole_rows
    record = stock_trainer.observed(trainer)
    trainer.train()
    reference = stock_trainer.Reference(ctx, "t5")
    rates = [RATE] * len(record.steps)
    stock_trainer.repeated(reference, record.steps, optimisers.sgd(0.0), rates, mean_of_labels(smoothing))
    yield equal("optimiser steps", len(record.steps), ROWS // 2 // accumulation)
    yield at_most("weights off", stock_trainer.weights_off(trainer.model, reference), SAME)


@call(GROUP, phase=Phase.OPTIMIZER, requires=("model_t5",))
def trainer_whole_labels_t5(ctx: Context) -> Iterator[Check]:
    """The Trainer trains T5 on all labels, the first one too."""
    yield from compared(ctx, 0.0, 1)


@call(GROUP, phase=Phase.OPTIMIZER, requires=("model_t5",))
def trainer_smoothed_labels_t5(ctx: Context) -> Iterator[Check]:
    """With label_smoothing_factor, the Trainer smooths all labels of T5, each where the decoder predicts it."""
    yield from compared(ctx, SMOOTHING, 1)


@call(GROUP, phase=Phase.OPTIMIZER, requires=("model_t5",))
def trainer_smoothed_labels_t5_accumulated(ctx: Context) -> Iterator[Check]:
    """With label_smoothing_factor and accumulation, the Trainer averages over all labels of a step of T5."""
    yield from compared(ctx, SMOOTHING, 2)


@call(GROUP, phase=Phase.FORWARD, requires=("model_t5",))
def trainer_smoothed_labels_adapted_t5(ctx: Context) -> Iterator[Check]:
    """With label_smoothing_factor, T5 with an adapter gets the decoder's inputs, and starts at the loss of its base."""
    from peft import LoraConfig, get_peft_model

    adapter = LoraConfig(task_type="SEQ_2_SEQ_LM", r=4, target_modules=["q", "v"])  # its B is zero
    model = get_peft_model(stock_trainer.model(ctx, "t5"), adapter)
    trainer = stock_trainer.trainer(ctx, ROWS, of=model, max_steps=1, label_smoothing_factor=SMOOTHING)
    trainer.data_collator = with_decoder_inputs
    record = stock_trainer.observed(trainer)
    trainer.train()
    wanted = float(mean_of_labels(SMOOTHING)(stock_trainer.Reference(ctx, "t5"), record.steps[0]))
    found = trainer.state.log_history[0]["loss"]
    yield at_most("loss off", abs(found / wanted - 1), SAME)
