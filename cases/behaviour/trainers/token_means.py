"""The mean over tokens that the Trainer trains on: whole rows, padding on the left, empty batches, other losses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.trainers import accumulating, stock_trainer
from cases.behaviour.trainers.accumulating import ROWS, SMOOTHING, mean_of_ranks, repeated, smoothed, trained_like
from cases.behaviour.trainers.stock_trainer import LENGTHS, Reference
from cases.model.data import IGNORED
from cases.reference import models
from cases.reference.network import Batch
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cases.apply.context import Context

    Loss = Callable[[Reference, list[list[int]]], Any]

GROUP = "Trainer: steps"
NORM = 0.5  # smaller than the gradients' norms
BROAD = 0.02  # relative, of weights after a few steps in bfloat16
SQUARED = 0.1  # the weight of the squared logarithm of the normaliser


def whole_rows(features: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A batch that learns every token: labels are the ids, also of the first one, which no token predicts."""
    batch = stock_trainer.padded(features)
    batch["labels"] = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, IGNORED)
    return batch


def every_token(reference: Reference, number: int, smoothing: float = 0.0) -> Any:
    """The sum of the cross entropy of a row's tokens but the first."""
    ids = stock_trainer.row(number)["input_ids"]
    chances = models.logits(reference.network, Batch(ids=ids[None]))[0, :-1].log_softmax(-1)
    exact = -chances.gather(-1, ids[1:, None]).sum()
    return (1 - smoothing) * exact - smoothing * chances.mean(-1).sum()


def mean_of_whole_rows(smoothing: float = 0.0) -> Loss:
    """The mean over all predicted tokens of a step."""

    def loss(reference: Reference, batches: list[list[int]]) -> Any:
        numbers = [number for batch in batches for number in batch]
        total = sum(every_token(reference, number, smoothing) for number in numbers)
        return total / sum(LENGTHS[number % len(LENGTHS)] - 1 for number in numbers)

    return loss


def of_ranks(loss: Loss) -> Loss:
    """The mean of two ranks' losses; each rank has half of the batches."""

    def mean(reference: Reference, batches: list[list[int]]) -> Any:
        half = len(batches) // 2
        return (loss(reference, batches[:half]) + loss(reference, batches[half:])) / 2

    return mean


def compared(ctx: Context, loss: Loss, collator: Any = whole_rows, **more: Any) -> Iterator[Check]:
    trainer = stock_trainer.trainer(ctx, ROWS, gradient_accumulation_steps=2, **more)
    trainer.data_collator = collator
    _, reference, _ = repeated(ctx, trainer, loss)
    yield trained_like(trainer, reference)


@call(GROUP, phase=Phase.OPTIMIZER)
def trainer_whole_rows(ctx: Context) -> Iterator[Check]:
    """The Trainer averages over predicted tokens if the first label of each row is not masked.

    transformers 4.46 to 5.9 count the first label too.
    """
    yield from compared(ctx, mean_of_whole_rows())


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2, requires=("tokens_across_devices",))
def trainer_whole_rows_of_all_ranks(ctx: Context) -> Iterator[Check]:
    """With average_tokens_across_devices, two ranks average over the predicted tokens of both, of whole rows."""
    yield from compared(ctx, mean_of_whole_rows(), average_tokens_across_devices=True)


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2, requires=("tokens_across_devices",))
def trainer_whole_rows_of_each_rank(ctx: Context) -> Iterator[Check]:
    """Without average_tokens_across_devices, each rank averages over the predicted tokens of its whole rows."""
    yield from compared(ctx, of_ranks(mean_of_whole_rows()), average_tokens_across_devices=False)


@call(GROUP, phase=Phase.OPTIMIZER)
def trainer_whole_rows_smoothed(ctx: Context) -> Iterator[Check]:
    """With label_smoothing_factor, the Trainer averages over the predicted tokens of whole rows of a step."""
    yield from compared(ctx, mean_of_whole_rows(SMOOTHING), label_smoothing_factor=SMOOTHING)


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2, requires=("tokens_across_devices",))
def trainer_label_smoothing_of_all_ranks(ctx: Context) -> Iterator[Check]:
    """With label_smoothing_factor, two ranks average over the learned tokens of both."""
    more: dict[str, Any] = {"label_smoothing_factor": SMOOTHING, "average_tokens_across_devices": True}
    yield from compared(ctx, smoothed, stock_trainer.padded, **more)


def padded_left(features: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A batch that is padded on the left."""
    import torch

    right = stock_trainer.padded(features)
    shifts = [int((mask == 0).sum()) for mask in right["attention_mask"]]
    return {
        name: torch.stack([row.roll(shift) for row, shift in zip(tensor, shifts, strict=True)])
        for name, tensor in right.items()
    }


@call(GROUP, phase=Phase.OPTIMIZER)
def trainer_left_padding(ctx: Context) -> Iterator[Check]:
    """The Trainer trains the same on rows that are padded on the left; their first label is masked."""
    yield from compared(ctx, stock_trainer.mean_over_tokens, padded_left)


@call(GROUP, phase=Phase.OPTIMIZER)
def trainer_batch_without_labels(ctx: Context) -> Iterator[Check]:
    """A batch without a learned token adds nothing to the step that it is part of.

    Rows 0 and 1 are not learned; versions that average over batches make the loss of such a batch NaN.
    """

    def collate(features: Sequence[dict[str, Any]]) -> dict[str, Any]:
        batch = stock_trainer.padded(features)
        for row, number in enumerate(stock_trainer.numbers(batch["input_ids"])):
            if number < 2:  # noqa: PLR2004 - the first two rows
                batch["labels"][row] = IGNORED
        return batch

    def loss(reference: Reference, batches: list[list[int]]) -> Any:
        return reference.mean([number for batch in batches for number in batch if number > 1])

    trainer = in_order(stock_trainer.trainer(ctx, 8, gradient_accumulation_steps=2, num_train_epochs=1))
    trainer.data_collator = collate
    record, reference, _ = repeated(ctx, trainer, loss)
    yield equal("rows of the batches of each step", str(record.steps), "[[[0, 1], [2, 3]], [[4, 5], [6, 7]]]")
    yield trained_like(trainer, reference)


def in_order(trainer: Any) -> Any:
    """A trainer that reads its rows in order, by the loader that a script gives it."""
    from torch.utils.data import DataLoader

    def loader() -> Any:
        made = DataLoader(trainer.train_dataset, batch_size=2, collate_fn=trainer.data_collator)
        return trainer.accelerator.prepare(made)

    trainer.get_train_dataloader = loader
    return trainer


@call(GROUP, phase=Phase.OPTIMIZER)
def trainer_loss_function(ctx: Context) -> Iterator[Check]:
    """The Trainer's compute_loss_func gets the outputs, the labels and the number of learned tokens of the step.

    Here it is the cross entropy and the squared logarithm of the normaliser, each over this number.
    """

    def loss_of(outputs: Any, labels: Any, num_items_in_batch: Any = None) -> Any:
        kept = labels[:, 1:] != IGNORED
        logits = outputs["logits"][:, :-1][kept]
        return terms(logits, labels[:, 1:][kept]) / num_items_in_batch

    def loss(reference: Reference, batches: list[list[int]]) -> Any:
        numbers = [number for batch in batches for number in batch]
        total = 0.0
        for number in numbers:
            row = stock_trainer.row(number)
            wanted = row["labels"][1:]
            logits = models.logits(reference.network, Batch(ids=row["input_ids"][None]))[0, :-1]
            total = total + terms(logits[wanted != IGNORED], wanted[wanted != IGNORED])
        return total / sum(stock_trainer.learned(number) for number in numbers)

    def terms(logits: Any, wanted: Any) -> Any:
        normaliser = logits.logsumexp(-1)
        return (normaliser - logits.gather(-1, wanted[:, None])[:, 0] + SQUARED * normaliser.square()).sum()

    trainer = stock_trainer.trainer(ctx, ROWS, gradient_accumulation_steps=2)
    trainer.compute_loss_func = loss_of
    _, reference, _ = repeated(ctx, trainer, loss)
    yield trained_like(trainer, reference)


@call(GROUP, phase=Phase.OPTIMIZER)
def trainer_clips_in_bfloat16(ctx: Context) -> Iterator[Check]:
    """With bf16=True, max_grad_norm clips the norm of float32 gradients of float32 weights."""
    trainer = stock_trainer.trainer(ctx, 8, max_grad_norm=NORM, bf16=True)
    record, reference, expected = repeated(ctx, trainer, stock_trainer.mean_over_tokens, NORM)
    logged = [entry["grad_norm"] for entry in trainer.state.log_history if "grad_norm" in entry]
    dtypes = {str(parameter.dtype) for parameter in trainer.model.parameters()}
    yield at_most("norm after clipping, off", stock_trainer.worst(record.norms, [NORM] * 8), stock_trainer.SAME)
    yield at_most("logged norm, off", stock_trainer.worst(logged, expected.norms), BROAD)
    yield equal("dtypes of parameters", str(dtypes), "{'torch.float32'}")
    yield at_most("weights off", stock_trainer.weights_off(trainer.model, reference), BROAD)


@call(GROUP, phase=Phase.BACKWARD)
def trainer_checkpointed(ctx: Context) -> Iterator[Check]:
    """gradient_checkpointing=True runs each layer twice in a step, and trains the same."""
    trainer = stock_trainer.trainer(ctx, 8, gradient_checkpointing=True)
    layers = [module for name, module in trainer.model.named_modules() if name.rpartition(".")[2].isdigit()]
    passes: list[int] = []
    for layer in layers:
        layer.self_attn.register_forward_pre_hook(lambda *_, **__: passes.append(1))
    _, reference, _ = repeated(ctx, trainer, stock_trainer.mean_over_tokens)
    yield equal("forward passes of layers", len(passes), 8 * len(layers) * 2)
    yield trained_like(trainer, reference)


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2)
def trainer_uneven_ranks(ctx: Context) -> Iterator[Check]:
    """An epoch whose last step has fewer batches on two ranks still takes the mean over tokens, or over ranks."""
    trainer = stock_trainer.trainer(ctx, ROWS, gradient_accumulation_steps=3, num_train_epochs=3)
    is_global = getattr(trainer.args, "average_tokens_across_devices", False)
    record, reference, _ = repeated(ctx, trainer, stock_trainer.mean_over_tokens if is_global else mean_of_ranks)
    yield equal("rows of the batches of each step", accumulating.sizes(record.steps), "2+2+2 2+2+2 2+2+2")
    yield trained_like(trainer, reference)
