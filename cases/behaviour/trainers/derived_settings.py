"""What the Trainer derives if a user leaves it open: the best metric's direction, shifted labels, shares of windows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.adapters import lora_reference
from cases.behaviour.adapters.lora_reference import FIRST
from cases.behaviour.trainers import stock_trainer
from cases.model.data import IGNORED
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Trainer: derived settings"
DECIMALS = 4  # of the losses that some versions log
# greater_is_better by default: "`True` if metric_for_best_model is set to a value that doesn't end in "loss"".
DIRECTIONS: Mapping[str, bool] = {
    "loss": False,
    "eval_loss": False,
    "eval_other_loss": False,
    "accuracy": True,
    "eval_accuracy": True,
    "eval_loss_margin": True,
}


@call(GROUP, phase=Phase.ADAPT)
def trainer_derived_arguments(ctx: Context) -> Iterator[Check]:
    """TrainingArguments completes the best metric, its direction, and when evaluations happen, as documented."""
    often = {"save_strategy": "steps", "save_steps": 4, **stock_trainer.evaluation("steps")}
    for metric, greater in DIRECTIONS.items():
        made = stock_trainer.arguments(ctx, metric_for_best_model=metric)
        yield equal(f"greater is better, {metric}", str(made.greater_is_better), str(greater))
        for chosen in (True, False):
            made = stock_trainer.arguments(ctx, metric_for_best_model=metric, greater_is_better=chosen)
            yield equal(f"greater is better, {metric} as {chosen}", str(made.greater_is_better), str(chosen))
    settings: Mapping[str, tuple[dict[str, Any], Any]] = {
        "load_best_model_at_end": ({"load_best_model_at_end": True, "eval_steps": 2, **often}, ("loss", False)),
        "plateau": ({"lr_scheduler_type": "reduce_lr_on_plateau", "eval_steps": 2, **often}, ("loss", False)),
        "neither": ({}, (None, None)),
    }
    for name, (more, wanted) in settings.items():
        made = stock_trainer.arguments(ctx, **more)
        yield equal(f"metric of {name}", str((made.metric_for_best_model, made.greater_is_better)), str(wanted))
    for strategy, wanted in (("no", False), ("steps", True), ("epoch", True)):
        made = stock_trainer.arguments(ctx, logging_steps=3, **stock_trainer.evaluation(strategy))
        yield equal(f"evaluates, {strategy}", made.do_eval, bound=wanted)
        if strategy == "steps":
            yield equal("steps between evaluations", made.eval_steps, 3)
    for steps, total, wanted in ((3, 10, 3), (0, 10, 0), (12, 10, 12)):
        yield equal(
            f"warmup of {steps} in {total}",
            stock_trainer.arguments(ctx, warmup_steps=steps).get_warmup_steps(total),
            wanted,
        )


@call(GROUP, phase=Phase.LOAD)
def trainer_best_loss(ctx: Context) -> Iterator[Check]:
    """load_best_model_at_end restores the step with the lowest loss, for each name of the loss and without a name."""
    from transformers import TrainerCallback

    for name in ("eval_loss", "loss", None):
        taken: list[dict[str, Any]] = []
        trainer = stock_trainer.trainer(
            ctx,
            6,
            num_train_epochs=1,
            learning_rate=2.0,  # so large that a later step makes the loss rise
            save_strategy="steps",
            save_steps=1,
            eval_steps=1,
            load_best_model_at_end=True,
            output_dir=str(ctx.kept / f"best by {name}"),
            evaluated=3,
            **({"metric_for_best_model": name} if name else {}),
            **stock_trainer.evaluation("steps"),
        )

        class WeightKeeper(TrainerCallback):  # type: ignore[misc]
            def on_step_end(self, *_: Any, model: Any = None, kept: Any = taken, **__: Any) -> None:
                kept.append({name: p.detach().clone() for name, p in model.named_parameters()})

        trainer.add_callback(WeightKeeper())
        trainer.train()
        losses = [entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry]
        best = losses.index(min(losses))
        found = dict(trainer.model.named_parameters())
        differ = [each for each, wanted in taken[best].items() if not found[each].equal(wanted)]
        yield equal(f"evaluations by {name}", len(losses), 3)
        yield at_most(f"best loss / last loss by {name}", min(losses) / losses[-1], 0.99)
        yield equal(f"best step by {name}", str(trainer.state.best_model_checkpoint).rpartition("-")[2], str(best + 1))
        yield equal(f"weights that differ from the best step by {name}", len(differ), 0)
        yield equal(f"best metric by {name}", trainer.state.best_metric, min(losses))


SMOOTHING, ROWS = 0.2, 4


def wrapped(ctx: Context, **more: Any) -> Any:
    from peft import get_peft_model

    config = FIRST.config()
    for name, value in more.items():
        setattr(config, name, value)
    return lora_reference.fill(get_peft_model(lora_reference.loaded(ctx), config, adapter_name="first"))


def native(ctx: Context) -> Any:
    model = lora_reference.loaded(ctx)
    model.add_adapter(FIRST.config(), "first")
    return lora_reference.fill(model)


MODELS: Mapping[str, Callable[[Context], Any]] = {
    "causal LM of PEFT": wrapped,
    "PEFT without a task": lambda ctx: wrapped(ctx, task_type=None),
    "adapter of transformers": native,
}


@call(GROUP, phase=Phase.FORWARD)
def trainer_smoothed_adapters(ctx: Context) -> Iterator[Check]:
    """Label smoothing shifts the labels of a causal model with an adapter, in training and in evaluation.

    The wanted distribution is uniform with probability label_smoothing_factor (https://arxiv.org/abs/1512.00567,
    section 7), of the next token.
    """
    batch = stock_trainer.padded(stock_trainer.rows(ROWS))
    base = lora_reference.read(ctx)
    chances = base.logits(base.of(FIRST), ids=batch["input_ids"], real=batch["attention_mask"].bool())
    learned = batch["labels"][:, 1:] != IGNORED
    chances = chances[:, :-1].log_softmax(-1)[learned]
    exact = -chances.gather(-1, batch["labels"][:, 1:][learned][:, None]).mean()
    for smoothing in (SMOOTHING, 0.0):
        wanted = float((1 - smoothing) * exact - smoothing * chances.mean())
        for name, made in MODELS.items():
            trainer = stock_trainer.trainer(
                ctx,
                ROWS,
                of=made(ctx).eval(),
                evaluated=ROWS,
                per_device_eval_batch_size=ROWS,
                label_smoothing_factor=smoothing,
            )
            given = {key: value.to(ctx.place.device) for key, value in batch.items()}
            loss = float(trainer.compute_loss(trainer.model, dict(given)))
            yield at_most(f"loss off, {name}, {smoothing}", abs(loss / wanted - 1), 1e-5)
            summed = float(trainer.compute_loss(trainer.model, dict(given), num_items_in_batch=2 * learned.sum()))
            yield at_most(f"loss of half a step off, {name}, {smoothing}", abs(2 * summed / wanted - 1), 1e-5)
            evaluated = trainer.evaluate()["eval_loss"]
            yield at_most(f"evaluated loss off, {name}, {smoothing}", abs(evaluated / wanted - 1), 1e-5)


COUNT, WIDTH, RATE = 11, 3, 0.125


def examples() -> list[dict[str, Any]]:
    import torch

    generator = torch.Generator().manual_seed(5)
    return [
        {
            "number": torch.tensor(number),
            "inputs": torch.randn(WIDTH, generator=generator),
            "labels": torch.randn((), generator=generator),
        }
        for number in range(COUNT)
    ]


def regression() -> Any:
    """A model whose loss is a mean over its batch, as of a classifier or a reward; it takes no number of items."""
    import torch

    class Regression(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(WIDTH))
            self.batches: list[list[int]] = []

        def forward(self, number: Any, inputs: Any, labels: Any) -> dict[str, Any]:
            self.batches.append(number.tolist())
            return {"loss": (inputs @ self.weight - labels).square().mean()}

    return Regression()


def descended(windows: Sequence[Sequence[Sequence[int]]]) -> tuple[Any, list[float]]:
    """The weights after a step for each window, float64, and the loss of each: the mean of its batches' means."""
    import torch

    rows = examples()
    weight, losses = torch.zeros(WIDTH, dtype=torch.float64), []
    for window in windows:
        gradient, loss = torch.zeros_like(weight), 0.0
        for batch in window:
            inputs = torch.stack([rows[number]["inputs"] for number in batch]).double()
            error = inputs @ weight - torch.stack([rows[number]["labels"] for number in batch]).double()
            gradient += 2 * error @ inputs / len(batch) / len(window)
            loss += float(error.square().mean()) / len(window)
        weight = weight - RATE * gradient
        losses.append(loss)
    return weight, losses


@call(GROUP, phase=Phase.OPTIMIZER)
def trainer_windows_of_means(ctx: Context) -> Iterator[Check]:
    """A step of a model without token counts is the mean of its batches' losses, also in a shorter last window.

    gradient_accumulation_steps divides a whole window; the last window of an epoch has what is left.
    """
    from transformers import Trainer

    for accumulation, size in ((1, 2), (2, 2), (4, 2), (5, 2), (4, 1), (8, 2)):
        model = regression()
        arguments = stock_trainer.arguments(
            ctx,
            learning_rate=RATE,
            optim="sgd",
            max_grad_norm=0.0,
            lr_scheduler_type="constant",
            per_device_train_batch_size=size,
            gradient_accumulation_steps=accumulation,
            logging_steps=1,
        )
        trainer = Trainer(model=model, args=arguments, train_dataset=examples())
        trainer.train()
        each = -(-COUNT // size)  # batches of an epoch
        epochs = [model.batches[at : at + each] for at in range(0, len(model.batches), each)]
        windows = [epoch[at : at + accumulation] for epoch in epochs for at in range(0, each, accumulation)]
        weight, losses = descended(windows)
        name = f"{accumulation} batches of {size}"
        yield equal(f"steps, {name}", trainer.state.global_step, len(windows))
        found = model.weight.detach().cpu().double()
        yield at_most(f"weights off, {name}", float((found - weight).norm() / weight.norm()), 1e-5)
        logged = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        if all(loss == round(loss, DECIMALS) for loss in logged):
            losses = [round(loss, DECIMALS) for loss in losses]
        yield at_most(f"losses off, {name}", stock_trainer.worst(logged, losses), 1e-3)
