"""A Trainer as it is, on rows of different lengths: what it did in each step, and the same step by the reference.

Nothing of the Trainer is overridden, so it shuffles the rows. A hook records the rows of each batch and the values that
the optimiser used; the reference network then repeats the steps in float64.
"""

from __future__ import annotations

import inspect
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cases.api import ingredients
from cases.apply import build, front_ends
from cases.model import architectures, tiny
from cases.model.data import IGNORED
from cases.reference import models, twin
from cases.reference.network import Batch
from cases.space.options import Options

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cases.apply.context import Context

FIRST = 3  # the token that row 0 begins with; row n begins with FIRST + n
LENGTHS = (16, 5, 11, 8, 13, 6, 9, 15, 7, 12, 10)
PROMPTS = (1, 3, 2, 5, 1, 2, 4, 6, 1, 3, 2)  # tokens of a row that are not learned; the first one never is
SAME = 1e-5  # relative, of weights after a few steps in float32 against float64

Steps = list[list[list[int]]]  # the rows of each batch of each step


def row(number: int) -> dict[str, Any]:
    """A row: its token ids and labels, int64 (length)."""
    import torch

    length = LENGTHS[number % len(LENGTHS)]
    ids = torch.randint(3, tiny.VOCABULARY, (length,), generator=torch.Generator().manual_seed(number))
    ids[0] = FIRST + number
    labels = ids.clone()
    labels[: PROMPTS[number % len(PROMPTS)]] = IGNORED
    return {"input_ids": ids, "labels": labels}


def rows(count: int) -> list[dict[str, Any]]:
    return [row(number) for number in range(count)]


def learned(number: int) -> int:
    """The tokens of a row that are learned."""
    place = number % len(LENGTHS)
    return LENGTHS[place] - PROMPTS[place]


def padded(features: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The batch of some rows, padded on the right."""
    from torch.nn.utils.rnn import pad_sequence

    ids = [each["input_ids"] for each in features]
    return {
        "input_ids": pad_sequence(ids, batch_first=True, padding_value=tiny.PADDING),
        "attention_mask": pad_sequence([each.new_ones(len(each)) for each in ids], batch_first=True),
        "labels": pad_sequence([each["labels"] for each in features], batch_first=True, padding_value=IGNORED),
    }


def numbers(ids: Any) -> list[int]:
    """The numbers of the rows of a batch, by the first token of each that is no padding."""
    return [int(row[row != tiny.PADDING][0]) - FIRST for row in ids]


@dataclass
class Record:
    """The rows of each batch of each step, and each step's learning rates, one per parameter group, and gradient norm.

    ``unfinished`` are the batches since the last step.
    """

    steps: Steps = field(default_factory=list)
    rates: list[list[float]] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    unfinished: list[list[int]] = field(default_factory=list)

    def before_forward(self, module: Any, _inputs: Any, named: dict[str, Any]) -> None:
        if module.training:
            self.unfinished.append(numbers(named["input_ids"]))

    def before_step(self, optimiser: Any, *_: Any) -> None:
        groups = optimiser.param_groups
        gradients = [p.grad.double() for group in groups for p in group["params"] if p.grad is not None]
        self.steps.append(self.unfinished)
        self.rates.append([float(group["lr"]) for group in groups])
        self.norms.append(float(sum(each.square().sum() for each in gradients)) ** 0.5)
        self.unfinished = []

    @property
    def order(self) -> list[int]:
        return [number for step in self.steps for batch in step for number in batch]


def observed(trainer: Any) -> Record:
    """Record what a trainer does, from the beginning of its training."""
    from transformers import TrainerCallback

    record = Record()

    class StepObserver(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, *_: Any, **__: Any) -> None:  # transformers 4.49 gives callbacks no optimizer
            bare(trainer.optimizer).register_step_pre_hook(record.before_step)

    trainer.model.register_forward_pre_hook(record.before_forward, with_kwargs=True)
    trainer.add_callback(StepObserver())
    return record


def bare(optimiser: Any) -> Any:
    """An optimiser without accelerate's wrapper."""
    return bare(optimiser.optimizer) if hasattr(optimiser, "optimizer") else optimiser


def model(ctx: Context, name: str = "llama") -> Any:
    return build.load(options(name), ctx.place, ctx.cache)


def options(name: str) -> Options:
    return Options().but(model=name, method="full")


def arguments(ctx: Context, made: Any = None, **more: Any) -> Any:
    """``TrainingArguments`` for two epochs of batches of two rows, unless ``more`` says otherwise."""
    usual = {"max_steps": -1, "num_train_epochs": 2, "per_device_train_batch_size": 2, "dataloader_pin_memory": False}
    return ingredients.arguments(ctx, made, **{**usual, "disable_tqdm": True, "seed": 7, **more})


def known(name: str) -> bool:
    """Return whether ``TrainingArguments`` has a field."""
    from transformers import TrainingArguments

    return name in inspect.signature(TrainingArguments).parameters


def evaluation(strategy: str) -> dict[str, str]:
    return {"eval_strategy" if known("eval_strategy") else "evaluation_strategy": strategy}


def trainer(ctx: Context, count: int, *, of: Any = None, evaluated: int = 0, **more: Any) -> Any:
    """A Trainer for ``count`` rows that evaluates on the first ``evaluated``; ``more`` are training arguments."""
    from transformers import Trainer

    os.environ.update(front_ends.launched(ctx.place))
    return Trainer(
        model=model(ctx) if of is None else of,
        args=arguments(ctx, **more),
        train_dataset=rows(count),
        eval_dataset=rows(evaluated) or None,
        data_collator=padded,
    )


def gathered(ctx: Context, thing: Any) -> list[Any]:
    """Every rank's value, on every rank. Collective."""
    if ctx.place.world_size == 1:
        return [thing]
    import torch.distributed as dist

    found: list[Any] = [None] * ctx.place.world_size
    dist.all_gather_object(found, thing)
    return found


def together(ctx: Context, steps: Steps) -> Steps:
    """The batches of each step, of all ranks. Collective."""
    return [[batch for step in ranks for batch in step] for ranks in zip(*gathered(ctx, steps), strict=True)]


class Reference:
    """The network of a checkpoint in float64, all of whose tensors are trained."""

    def __init__(self, ctx: Context, name: str = "llama") -> None:
        chosen = options(name)
        self.network = twin.network(chosen, architectures.checkpoint(chosen, ctx.cache))
        self.trained: dict[str, Any] = twin.trained_tensors(self.network, chosen)

    def summed(self, number: int, smoothing: float = 0.0) -> Any:
        """The sum over a row's learned tokens of the cross entropy.

        With label smoothing, the wanted distribution is uniform with this probability
        (https://arxiv.org/abs/1512.00567, section 7).
        """
        example = row(number)
        wanted = example["labels"][1:]
        chances = models.logits(self.network, Batch(ids=example["input_ids"][None]))[0, :-1].log_softmax(-1)
        chances, wanted = chances[wanted != IGNORED], wanted[wanted != IGNORED]
        exact = -chances.gather(-1, wanted[:, None]).sum()
        return (1 - smoothing) * exact - smoothing * chances.mean(-1).sum()

    def mean(self, row_numbers: Sequence[int], smoothing: float = 0.0) -> Any:
        """The mean over the learned tokens of some rows."""
        return sum(self.summed(n, smoothing) for n in row_numbers) / sum(learned(n) for n in row_numbers)


def mean_over_tokens(reference: Reference, batches: list[list[int]]) -> Any:
    """A step's loss: the mean over the learned tokens of all its batches."""
    return reference.mean([number for batch in batches for number in batch])


@dataclass
class Expected:
    """The losses and the gradient norms of each step."""

    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)


def repeated(
    reference: Reference,
    steps: Steps,
    update: Callable[[dict[str, Any], float], None],
    rates: Sequence[float],
    loss: Callable[[Reference, list[list[int]]], Any] = mean_over_tokens,
    max_norm: float | None = None,
) -> Expected:
    """Repeat the steps of a training by the reference, which changes its tensors."""
    import torch

    expected = Expected()
    for batches, rate in zip(steps, rates, strict=True):
        value = loss(reference, batches)
        value.backward()
        gradients = [tensor.grad for tensor in reference.trained.values()]
        norm = float(sum(each.square().sum() for each in gradients)) ** 0.5
        expected.losses.append(float(value))
        expected.norms.append(norm)
        with torch.no_grad():
            if max_norm is not None and norm > max_norm:
                for each in gradients:
                    each.mul_(max_norm / norm)
            update(reference.trained, rate)
    return expected


def weights_off(model: Any, reference: Reference) -> float:
    """The largest relative error of a tensor, ``||found - reference|| / ||reference||``."""
    found = {name: parameter.detach() for name, parameter in model.named_parameters()}
    errors = [
        float((found[name].double() - wanted.detach()).norm() / wanted.detach().norm())
        for name, wanted in reference.trained.items()
        if name in found
    ]
    return max(errors) if len(errors) == len(reference.trained) else float("inf")


def worst(found: Sequence[float], wanted: Sequence[float]) -> float:
    """The largest relative error of a list of numbers; infinite if the lengths differ."""
    if len(found) != len(wanted):
        return float("inf")
    return max(abs(one - other) / max(abs(other), 1e-12) for one, other in zip(found, wanted, strict=True))
