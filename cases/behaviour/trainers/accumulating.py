"""The Trainer's steps over batches of different sizes: accumulation, loss normalisation, clipping, smoothing, noise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.trainers import optimisers, stock_trainer
from cases.behaviour.trainers.stock_trainer import LENGTHS, Reference
from cases.space.verdict import Check, Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cases.apply.context import Context

GROUP = "Trainer: steps"
RATE, ROWS, MANY = 0.1, 11, 66
NORM = 0.5  # smaller than the gradients' norms
SMOOTHING = 0.2
ALPHA = 5.0


def sizes(steps: stock_trainer.Steps) -> str:
    """The number of rows of each batch of each step, e.g. ``2+2 2+1``."""
    return " ".join("+".join(str(len(batch)) for batch in step) for step in steps)


def repeated(
    ctx: Context, trainer: Any, loss: Callable[..., Any], max_norm: float | None = None
) -> tuple[stock_trainer.Record, Reference, stock_trainer.Expected]:
    """Train by gradient descent, then repeat the steps by the reference."""
    record = stock_trainer.observed(trainer)
    trainer.train()
    reference, steps = Reference(ctx), stock_trainer.together(ctx, record.steps)
    rates = [RATE] * len(steps)
    expected = stock_trainer.repeated(reference, steps, optimisers.sgd(0.0), rates, loss, max_norm)
    return record, reference, expected


def trained_like(trainer: Any, reference: Reference) -> Check:
    return at_most("weights off", stock_trainer.weights_off(trainer.model, reference), stock_trainer.SAME)


@call(GROUP, phase=Phase.OPTIMIZER)
def trainer_uneven_accumulation(ctx: Context) -> Iterator[Check]:
    """The last batches of an epoch make a step of their own, and every step is the mean over its learned tokens.

    https://huggingface.co/blog/gradient_accumulation.
    """
    trainer = stock_trainer.trainer(ctx, ROWS, gradient_accumulation_steps=4)
    record, reference, _ = repeated(ctx, trainer, stock_trainer.mean_over_tokens)
    yield equal("rows of the batches of each step", sizes(record.steps), "2+2+2+2 2+1 2+2+2+2 2+1")
    yield trained_like(trainer, reference)


@call(GROUP, phase=Phase.OPTIMIZER)
def trainer_drop_last(ctx: Context) -> Iterator[Check]:
    """dataloader_drop_last drops the incomplete batch, not the incomplete step."""
    trainer = stock_trainer.trainer(ctx, ROWS, gradient_accumulation_steps=4, dataloader_drop_last=True)
    record, reference, _ = repeated(ctx, trainer, stock_trainer.mean_over_tokens)
    yield equal("rows of the batches of each step", sizes(record.steps), "2+2+2+2 2 2+2+2+2 2")
    yield trained_like(trainer, reference)


def mean_of_ranks(reference: Reference, batches: list[list[int]]) -> Any:
    """The mean of two ranks' means over tokens; each rank has half of the batches."""
    half = len(batches) // 2
    ranks = (batches[:half], batches[half:])
    return sum(stock_trainer.mean_over_tokens(reference, each) for each in ranks) / len(ranks)


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2)
def trainer_tokens_on_two_ranks(ctx: Context) -> Iterator[Check]:
    """Two ranks average over the tokens of both if average_tokens_across_devices is on, else over their own."""
    trainer = stock_trainer.trainer(ctx, ROWS, gradient_accumulation_steps=2)
    is_global = getattr(trainer.args, "average_tokens_across_devices", False)
    record, reference, _ = repeated(ctx, trainer, stock_trainer.mean_over_tokens if is_global else mean_of_ranks)
    yield equal("rows of the batches of each step", sizes(record.steps), "2+2 2 2+2 2")
    yield trained_like(trainer, reference)


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2, requires=("tokens_across_devices",))
def trainer_tokens_of_all_ranks(ctx: Context) -> Iterator[Check]:
    """average_tokens_across_devices=True averages over the tokens of all batches of all ranks."""
    trainer = stock_trainer.trainer(ctx, ROWS, gradient_accumulation_steps=2, average_tokens_across_devices=True)
    _, reference, _ = repeated(ctx, trainer, stock_trainer.mean_over_tokens)
    yield trained_like(trainer, reference)


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2, requires=("tokens_across_devices",))
def trainer_tokens_of_each_rank(ctx: Context) -> Iterator[Check]:
    """average_tokens_across_devices=False averages over the tokens of each rank."""
    trainer = stock_trainer.trainer(ctx, ROWS, gradient_accumulation_steps=2, average_tokens_across_devices=False)
    _, reference, _ = repeated(ctx, trainer, mean_of_ranks)
    yield trained_like(trainer, reference)


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2)
def trainer_clips(ctx: Context) -> Iterator[Check]:
    """max_grad_norm clips the norm over all parameters of a step's whole gradient, and logs the norm before."""
    trainer = stock_trainer.trainer(ctx, 8, max_grad_norm=NORM)
    is_global = getattr(trainer.args, "average_tokens_across_devices", False)
    loss = stock_trainer.mean_over_tokens if is_global else mean_of_ranks
    record, reference, expected = repeated(ctx, trainer, loss, NORM)
    logged = [entry["grad_norm"] for entry in trainer.state.log_history if "grad_norm" in entry]
    yield at_least("smallest norm / largest allowed", min(expected.norms) / NORM, 1.5)
    yield at_most("norm after clipping, off", stock_trainer.worst(record.norms, [NORM] * 4), stock_trainer.SAME)
    yield at_most("logged norm, off", stock_trainer.worst(logged, expected.norms), 10 * stock_trainer.SAME)
    yield trained_like(trainer, reference)


def smoothed(reference: Reference, batches: list[list[int]]) -> Any:
    return reference.mean([number for batch in batches for number in batch], SMOOTHING)


@call(GROUP, phase=Phase.FORWARD)
def trainer_label_smoothing(ctx: Context) -> Iterator[Check]:
    """label_smoothing_factor smooths over the vocabulary, on learned tokens only."""
    trainer = stock_trainer.trainer(ctx, 8, label_smoothing_factor=SMOOTHING)
    _, reference, _ = repeated(ctx, trainer, smoothed)
    yield trained_like(trainer, reference)


@call(GROUP, phase=Phase.FORWARD)
def trainer_label_smoothing_accumulated(ctx: Context) -> Iterator[Check]:
    """label_smoothing_factor with accumulation averages over the learned tokens of all batches of a step."""
    trainer = stock_trainer.trainer(ctx, 8, label_smoothing_factor=SMOOTHING, gradient_accumulation_steps=2)
    _, reference, _ = repeated(ctx, trainer, smoothed)
    yield trained_like(trainer, reference)


@call(GROUP, phase=Phase.FORWARD)
def trainer_neftune(ctx: Context) -> Iterator[Check]:
    """neftune_noise_alpha adds uniform noise within alpha / sqrt(length * width) to embeddings, in training only.

    https://arxiv.org/abs/2310.05914, algorithm 1.
    """
    from transformers import TrainerCallback

    trainer = stock_trainer.trainer(ctx, 8, neftune_noise_alpha=ALPHA, num_train_epochs=1)
    noise: dict[bool, list[Any]] = {True: [], False: []}

    def measure(module: Any, given: Any, found: Any) -> None:
        off = (found - module.weight[given[0]]).detach()
        noise[module.training].append(off * (off.shape[1] * off.shape[2]) ** 0.5 / ALPHA)

    class Measuring(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            trainer.model.get_input_embeddings().register_forward_hook(measure)

    trainer.add_callback(Measuring())
    trainer.train()
    trainer.evaluate(stock_trainer.rows(2))
    trainer.model.train()(stock_trainer.row(0)["input_ids"][None])
    *trained, after = noise[True]
    numbers = [each.flatten() for each in trained]
    every = numbers[0].new_tensor([float(value) for each in numbers for value in each])
    yield equal("batches", len(numbers), 4)
    yield at_most("largest noise / alpha * sqrt(length * width)", float(every.abs().max()), 1 + 1e-3)
    yield at_least("largest noise / alpha * sqrt(length * width) at least", float(every.abs().max()), 0.99)
    yield at_most("noise off uniform", abs(float(every.square().mean()) * 3 - 1), 0.05)
    yield at_most("mean noise", abs(float(every.mean())), 0.05)
    yield at_most("noise in evaluation", max(float(each.abs().max()) for each in noise[False]), 0.0)
    yield at_most("noise after training", float(after.abs().max()), 0.0)


@call(GROUP, phase=Phase.FORWARD)
def trainer_group_by_length(ctx: Context) -> Iterator[Check]:
    """Grouping by length visits each row once in an epoch, and shuffles."""
    grouped = (
        {"train_sampling_strategy": "group_by_length"}
        if stock_trainer.known("train_sampling_strategy")
        else {"group_by_length": True}
    )
    trainer = stock_trainer.trainer(ctx, MANY, **grouped)
    record = stock_trainer.observed(trainer)
    trainer.train()
    first, second = record.order[:MANY], record.order[MANY:]
    lengths = [[LENGTHS[number % ROWS] for number in batch] for step in record.steps for batch in step]
    apart = sum(max(each) - min(each) for each in lengths) / len(lengths)
    yield equal("rows of the first epoch", str(sorted(first)), str(list(range(MANY))))
    yield equal("rows of the second epoch", str(sorted(second)), str(list(range(MANY))))
    yield equal("epochs with the same order", int(first == second), 0)
    yield at_most("mean difference of the lengths in a batch", apart, 2.0)  # of two random rows: 3.9
