"""The optimisers that the Trainer creates: their update by its formula, and the parameters that decay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.trainers import stock_trainer
from cases.model import architectures
from cases.reference import twin
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cases.apply.context import Context

    Update = Callable[[dict[str, Any], float], None]

GROUP = "Trainer: optimisers"
RATE, DECAY = 0.01, 0.3
BETAS, EPS = (0.8, 0.95), 1e-3
ADAM: dict[str, Any] = {"adam_beta1": BETAS[0], "adam_beta2": BETAS[1], "adam_epsilon": EPS, "weight_decay": DECAY}


def decays(name: str) -> bool:
    """Return whether a parameter decays: all but "bias and LayerNorm weights" (documentation of ``weight_decay``).

    https://huggingface.co/docs/transformers/main_classes/trainer#transformers.TrainingArguments.weight_decay. T5's
    ``relative_attention_bias`` is added to scores, so it is a bias.
    """
    return not any("norm" in part or part.startswith("ln_") or part.endswith("bias") for part in name.split("."))


def split(update: Callable[[float], Update]) -> Update:
    """An update that decays only the parameters that should."""
    decayed, other = update(DECAY), update(0.0)

    def both(trained: dict[str, Any], rate: float) -> None:
        decayed({name: tensor for name, tensor in trained.items() if decays(name)}, rate)
        other({name: tensor for name, tensor in trained.items() if not decays(name)}, rate)

    return both


def adamw() -> Update:
    """AdamW, with decoupled decay and corrected bias (https://arxiv.org/abs/1711.05101, algorithm 2)."""
    return split(lambda decay: twin.adamw(BETAS, EPS, decay))


def sgd(decay: float) -> Update:
    """Gradient descent as torch documents it: the decay is part of the gradient."""

    def update(trained: dict[str, Any], rate: float) -> None:
        for tensor in trained.values():
            tensor.sub_(rate * (tensor.grad + decay * tensor))
            tensor.grad = None

    return update


def adafactor(decay: float) -> Update:
    """Adafactor without momentum and with a given step size (https://arxiv.org/abs/1804.04235, algorithms 4 and 5)."""
    second: dict[str, tuple[Any, Any]] = {}
    steps = 0

    def update(trained: dict[str, Any], rate: float) -> None:
        nonlocal steps
        steps += 1
        share = 1 - steps**-0.8
        for name, tensor in trained.items():
            square = tensor.grad**2 + 1e-30
            by_row, by_column = (square.mean(-1), square.mean(-2)) if tensor.dim() > 1 else (square, square)
            old = second.get(name, (0.0, 0.0))
            by_row, by_column = (share * old[at] + (1 - share) * new for at, new in enumerate((by_row, by_column)))
            second[name] = by_row, by_column
            size = by_row[:, None] * by_column / by_row.mean() if tensor.dim() > 1 else by_row
            change = tensor.grad / size.sqrt()
            clipped = change / max(1.0, float(change.square().mean().sqrt()))
            tensor.mul_(1 - rate * decay).sub_(rate * clipped)
            tensor.grad = None

    return update


def as_written_out(ctx: Context, update: Update, name: str = "llama", **more: Any) -> Iterator[Check]:
    """Train a few steps on the same rows as the reference, and compare all weights."""
    trainer = stock_trainer.trainer(
        ctx, 8, of=stock_trainer.model(ctx, name), **{"learning_rate": RATE, "num_train_epochs": 1, **more}
    )
    record = stock_trainer.observed(trainer)
    trainer.train()
    reference = stock_trainer.Reference(ctx, name)
    stock_trainer.repeated(reference, record.steps, update, [RATE] * len(record.steps))
    yield equal("optimiser steps", len(record.steps), 4)
    yield at_most("weights off", stock_trainer.weights_off(trainer.model, reference), stock_trainer.SAME)


@call(GROUP, phase=Phase.OPTIMIZER)
def trainer_adamw_llama(ctx: Context) -> Iterator[Check]:
    """The Trainer's AdamW moves the weights as the paper says: decoupled decay, none on norms, corrected moments."""
    yield from as_written_out(ctx, adamw(), optim="adamw_torch", **ADAM)


@call(GROUP, phase=Phase.OPTIMIZER)
def trainer_adamw_gpt2(ctx: Context) -> Iterator[Check]:
    """The Trainer's AdamW leaves GPT-2's biases and norms out of weight decay."""
    yield from as_written_out(ctx, adamw(), "gpt2", optim="adamw_torch", **ADAM)


@call(GROUP, phase=Phase.OPTIMIZER, requires=("fused_adamw",))
def trainer_adamw_fused(ctx: Context) -> Iterator[Check]:
    """optim="adamw_torch_fused" computes the same AdamW."""
    yield from as_written_out(ctx, adamw(), "gpt2", optim="adamw_torch_fused", **ADAM)


@call(GROUP, phase=Phase.OPTIMIZER)
def trainer_sgd_decay(ctx: Context) -> Iterator[Check]:
    """optim="sgd" is plain gradient descent, with weight_decay but without momentum."""
    yield from as_written_out(ctx, split(sgd), "gpt2", optim="sgd", weight_decay=DECAY)


@call(GROUP, phase=Phase.OPTIMIZER)
def trainer_adafactor(ctx: Context) -> Iterator[Check]:
    """optim="adafactor" follows the paper's update at the given learning rate.

    On llama: GPT-2's biases of keys have no gradient but rounding, which Adafactor would scale to an ordinary step.
    """
    yield from as_written_out(ctx, split(adafactor), optim="adafactor", weight_decay=DECAY)


@call(GROUP, phase=Phase.OPTIMIZER)
def trainer_decayed_parameters(ctx: Context) -> Iterator[Check]:
    """The Trainer decays every weight but biases and norms, in each architecture."""
    import transformers

    for name in architectures.SPECS:
        if not hasattr(transformers, architectures.SPECS[name].named[1]):
            continue
        trainer = stock_trainer.trainer(ctx, 1, of=stock_trainer.model(ctx, name), weight_decay=DECAY)
        decay = {
            id(p): group["weight_decay"] for group in trainer.create_optimizer().param_groups for p in group["params"]
        }
        wrong = [n for n, p in trainer.model.named_parameters() if decay.get(id(p)) != (DECAY if decays(n) else 0.0)]
        yield equal(f"parameters of {name} with another decay", ", ".join(wrong) or "none", "none")
