"""What callbacks of the Trainer see and decide, and which checkpoints it keeps, with their contents.

https://huggingface.co/docs/transformers/main_classes/callback. An epoch has five steps.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.trainers import stock_trainer
from cases.behaviour.trainers.events import checkpoints
from cases.behaviour.trainers.stock_trainer import Reference
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cases.apply.context import Context

GROUP = "Trainer: callbacks"
ROWS = 10
NORM = 0.5  # smaller than the gradients' norms
DECIDED = {  # what a callback sets after a step; the third is within the first epoch, the ninth within the third
    2: ("should_log",),
    3: ("should_epoch_stop",),
    4: ("should_evaluate",),
    5: ("should_save",),
    9: ("should_log", "should_training_stop"),
}
EVENTS = (
    *("on_train_begin", "on_train_end", "on_epoch_begin", "on_epoch_end"),
    *("on_step_begin", "on_substep_end", "on_pre_optimizer_step", "on_optimizer_step", "on_step_end"),
    *("on_prediction_step", "on_evaluate", "on_predict", "on_log", "on_save"),
)
BETAS, EPS, DECAY = (0.8, 0.95), 1e-3, 0.3


@call(GROUP, phase=Phase.OPTIMIZER)
def trainer_control_flags(ctx: Context) -> Iterator[Check]:
    """A flag of the control that a callback sets logs, evaluates, saves, or ends an epoch or the training, once.

    "TrainerControl [...] is the only one that can be changed by the callback".
    """
    from transformers import TrainerCallback

    seen: dict[str, list[int]] = {
        "on_log": [],
        "on_evaluate": [],
        "on_save": [],
        "on_epoch_end": [],
        "on_train_end": [],
    }

    class Deciding(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, _args: Any, state: Any, control: Any, **_: Any) -> Any:
            for flag in DECIDED.get(state.global_step, ()):
                setattr(control, flag, True)
            return control

    def keep(name: str) -> Callable[..., None]:
        def event(_self: Any, _args: Any, state: Any, _control: Any, logs: Any = None, **_: Any) -> None:
            if logs is None or "loss" in logs:
                seen[name].append(state.global_step)

        return event

    observer = type("FlagObserver", (TrainerCallback,), {name: keep(name) for name in seen})
    trainer = stock_trainer.trainer(ctx, ROWS, evaluated=1, num_train_epochs=4, logging_strategy="no")
    record = stock_trainer.observed(trainer)
    trainer.add_callback(Deciding())
    trainer.add_callback(observer())
    trainer.train()
    wanted = {"on_log": [2, 9], "on_evaluate": [4], "on_save": [5], "on_epoch_end": [3, 8, 9], "on_train_end": [9]}
    for name, steps in wanted.items():
        yield equal(f"steps: {name}", str(seen[name]), str(steps))
    yield equal("optimiser steps", len(record.steps), 9)
    yield equal("rows of the whole epoch", str(sorted(record.order[6:16])), str([*range(ROWS)]))
    yield equal("checkpoints kept", checkpoints(ctx), "[5]")


@call(GROUP, phase=Phase.OPTIMIZER)
def trainer_events_of_a_step(ctx: Context) -> Iterator[Check]:
    """A step's events come in the documented order; on_pre_optimizer_step sees clipped gradients and old weights.

    on_optimizer_step is "after the optimizer step but before gradients are zeroed out".
    """
    from transformers import TrainerCallback

    order: list[str] = []
    norms: dict[str, list[float]] = {"on_pre_optimizer_step": [], "on_optimizer_step": [], "on_step_end": []}
    sums: dict[str, list[float]] = {name: [] for name in norms}

    def keep(name: str) -> Callable[..., None]:
        def event(_self: Any, _args: Any, _state: Any, _control: Any, model: Any = None, **_: Any) -> None:
            order.append(name.removeprefix("on_"))
            if name in norms:
                gradients = [p.grad.double() for p in model.parameters() if p.grad is not None]
                norms[name].append(float(sum(each.square().sum() for each in gradients)) ** 0.5)
                sums[name].append(float(sum(p.detach().double().sum() for p in model.parameters())))

        return event

    every = ("on_step_begin", "on_substep_end", *norms, "on_epoch_begin", "on_epoch_end")
    observer = type("StepEvents", (TrainerCallback,), {name: keep(name) for name in every})
    trainer = stock_trainer.trainer(
        ctx, ROWS, gradient_accumulation_steps=2, num_train_epochs=1, max_grad_norm=NORM, learning_rate=1.0
    )
    trainer.add_callback(observer())
    trainer.train()
    step = ["step_begin", "substep_end", "pre_optimizer_step", "optimizer_step", "step_end"]
    last = [each for each in step if each != "substep_end"]  # of one batch
    yield equal("events", " ".join(order), " ".join(["epoch_begin", *step, *step, *last, "epoch_end"]))
    for name, wanted in (("on_pre_optimizer_step", NORM), ("on_optimizer_step", NORM), ("on_step_end", 0.0)):
        yield at_most(f"norm of gradients off, {name}", max(abs(each - wanted) for each in norms[name]), 1e-4)
    moved = [
        after != before for before, after in zip(sums["on_pre_optimizer_step"], sums["on_optimizer_step"], strict=True)
    ]
    yield equal("steps that moved weights between the two", sum(moved), 3)
    yield equal("steps that moved weights after", int(sums["on_optimizer_step"] != sums["on_step_end"]), 0)


@call(GROUP, phase=Phase.OPTIMIZER)
def trainer_event_arguments(ctx: Context) -> Iterator[Check]:
    """Each event gets the arguments, the state and the control in this order, and what it is about by name.

    "on_log" gets the entry that log_history gets, "on_evaluate" and "on_predict" the metrics.
    """
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

    kinds = (TrainingArguments, TrainerState, TrainerControl)
    seen: dict[str, list[Any]] = {name: [] for name in EVENTS if hasattr(TrainerCallback, name)}
    other: list[str] = []

    def keep(name: str) -> Callable[..., None]:
        def event(_self: Any, *given: Any, **more: Any) -> None:
            if [*map(isinstance, given, kinds)] != [True] * len(kinds) or more["model"] is None:
                other.append(name)
            seen[name].append(dict(more.get("logs") or more.get("metrics") or {}))

        return event

    observer = type("ArgumentObserver", (TrainerCallback,), {name: keep(name) for name in seen})
    trainer = stock_trainer.trainer(
        ctx,
        ROWS,
        evaluated=2,
        gradient_accumulation_steps=2,
        num_train_epochs=1,
        logging_steps=1,
        save_strategy="epoch",
        **stock_trainer.evaluation("epoch"),
    )
    trainer.add_callback(observer())
    trainer.train()
    predicted = trainer.predict(stock_trainer.rows(2)).metrics
    yield equal("events with other arguments", "+".join(sorted({*other})) or "none", "none")
    yield equal("events that never came", "+".join(name for name, each in seen.items() if not each) or "none", "none")
    history = trainer.state.log_history
    pairs = zip(seen["on_log"], history, strict=False)
    unlike = sum(any(entry.get(key) != value for key, value in logs.items()) for logs, entry in pairs)
    yield equal("logs unlike their entry of the history", unlike, 0)
    yield equal("entries that on_log did not get", len(history) - len(seen["on_log"]), 0)
    yield equal("losses that on_log got", *(sum("loss" in each for each in logs) for logs in (seen["on_log"], history)))
    (evaluated,) = (entry["eval_loss"] for entry in history if "eval_loss" in entry)
    yield equal("eval_loss of on_evaluate", seen["on_evaluate"][0].get("eval_loss"), evaluated)
    yield equal("test_loss of on_predict", seen["on_predict"][0].get("test_loss"), predicted["test_loss"])


def rated(ctx: Context, scores: Sequence[float], folder: str = "output", **more: Any) -> Any:
    """A trainer whose evaluations after each step get these scores, the smaller the better."""
    usual: dict[str, Any] = {
        "num_train_epochs": 2,
        "eval_steps": 1,
        "evaluated": 1,
        "save_strategy": "steps",
        "save_steps": 1,
        "metric_for_best_model": "score",
        "greater_is_better": False,
        "output_dir": str(ctx.kept / folder),
        **stock_trainer.evaluation("steps"),
    }
    trainer = stock_trainer.trainer(ctx, ROWS, **{**usual, **more})
    left = iter(scores)
    trainer.compute_metrics = lambda _: {"score": next(left)}
    return trainer


@call(GROUP, phase=Phase.SAVE)
def trainer_kept_checkpoints(ctx: Context) -> Iterator[Check]:
    """save_total_limit keeps the last checkpoints and, with load_best_model_at_end, the best one among as many.

    https://huggingface.co/docs/transformers/main_classes/trainer#transformers.TrainingArguments.save_total_limit; with
    save_strategy="best", each checkpoint is better than all before.
    """
    early, late = (5.0, 3.0, 4.0, 4.5, 4.2), (5.0, 4.8, 4.6, 3.0, 4.0)
    best: dict[str, Any] = {"load_best_model_at_end": True}
    settings: dict[str, tuple[tuple[float, ...], dict[str, Any], list[int]]] = {
        "2 and the best": (early, {"save_total_limit": 2, **best}, [2, 5]),
        "3 and the best": (early, {"save_total_limit": 3, **best}, [2, 4, 5]),
        "3 and a late best": (late, {"save_total_limit": 3, **best}, [3, 4, 5]),
    }
    by_epoch = {"num_train_epochs": 3, "save_strategy": "epoch", **stock_trainer.evaluation("epoch")}
    settings["2 epochs and the best"] = ((5.0, 3.0, 4.0), {"save_total_limit": 2, **best, **by_epoch}, [10, 15])
    if "best" in strategies():
        settings["strategy best"] = ((5.0, 4.0, 4.5, 4.2, 3.0), {"save_strategy": "best"}, [1, 2, 5])
    for number, (name, (scores, more, kept)) in enumerate(settings.items()):
        folder = f"output-{number}"
        trainer = rated(ctx, scores, folder, **{"num_train_epochs": 1, "save_only_model": True, **more})
        trainer.train()
        found = sorted(int(each.name.rpartition("-")[2]) for each in (ctx.kept / folder).glob("checkpoint-*"))
        yield equal(f"checkpoints kept, limit {name}", str(found), str(kept))
        if not hasattr(trainer.state, "best_global_step"):  # before transformers 4.50
            continue
        steps_each = trainer.state.max_steps // len(scores)
        best_step = (scores.index(min(scores)) + 1) * steps_each
        yield equal(f"best step, limit {name}", str(trainer.state.best_global_step), str(best_step))


@call(GROUP, phase=Phase.SAVE)
def trainer_keeps_best_of_a_long_path(ctx: Context) -> Iterator[Check]:
    """The best checkpoint stays, however output_dir spells its folder, as load_best_model_at_end loads it."""
    more: dict[str, Any] = {"num_train_epochs": 1, "save_total_limit": 2, "load_best_model_at_end": True}
    trainer = rated(ctx, (5.0, 3.0, 4.0, 4.5, 4.2), **more, output_dir=f"{ctx.kept}/./output")
    trainer.train()
    found = sorted(int(each.name.rpartition("-")[2]) for each in (ctx.kept / "output").glob("checkpoint-*"))
    yield equal("checkpoints kept", str(found), "[2, 5]")


def strategies() -> set[str]:
    """The strategies of saving that this version has."""
    from transformers import trainer_utils

    return {each.value for each in getattr(trainer_utils, "SaveStrategy", trainer_utils.IntervalStrategy)}


@call(GROUP, phase=Phase.RESUME, requires=("callback_states",))
def trainer_callback_states(ctx: Context) -> Iterator[Check]:
    """With restore_callback_states_from_checkpoint, early stopping goes on as a checkpoint left it; without, anew.

    A patience of 3; the checkpoint follows one evaluation that was no better.
    """
    from transformers import EarlyStoppingCallback

    scores = (5.0, 4.0, 4.5, 4.6, 4.7, 4.8, 4.9, 5.0, 5.1, 5.2)
    stop = 3
    last = {}
    for name, restored, begin in (("whole", False, 0), ("restored", True, stop), ("anew", False, stop)):
        trainer = rated(
            ctx, scores[begin:], load_best_model_at_end=True, restore_callback_states_from_checkpoint=restored
        )
        trainer.add_callback(EarlyStoppingCallback(3))
        trainer.train(resume_from_checkpoint=str(ctx.kept / "output" / f"checkpoint-{stop}") if begin else None)
        last[name] = trainer.state.global_step
        if restored:
            counts = [
                each.early_stopping_patience
                for each in trainer.callback_handler.callbacks
                if hasattr(each, "early_stopping_patience")
            ]
            yield equal("patience of each such callback", str(counts), "[3]")
    yield equal("last steps", str(last), str({"whole": 5, "restored": 5, "anew": 6}))


@call(GROUP, phase=Phase.SAVE)
def trainer_checkpoint_contents(ctx: Context) -> Iterator[Check]:
    """A checkpoint stores the settings, the position, the next rate and the moments of the step that it follows."""
    import torch

    trainer = stock_trainer.trainer(
        ctx,
        ROWS,
        optim="adamw_torch",
        learning_rate=0.01,
        lr_scheduler_type="linear",
        adam_beta1=BETAS[0],
        adam_beta2=BETAS[1],
        adam_epsilon=EPS,
        weight_decay=DECAY,
        save_strategy="steps",
        save_steps=1,
        logging_steps=1,
        num_train_epochs=1,
    )
    record = stock_trainer.observed(trainer)
    trainer.train()
    folder = ctx.kept / "output" / "checkpoint-1"
    state = json.loads((folder / "trainer_state.json").read_text())
    wanted = {
        "global_step": 1,
        "epoch": 0.2,
        "max_steps": 5,
        "num_train_epochs": 1,
        "train_batch_size": 2,
        "save_steps": 1,
    }
    for name, value in wanted.items():
        yield equal(f"state: {name}", float(state[name]), float(value))
    yield equal("losses in the history", len([entry for entry in state["log_history"] if "loss" in entry]), 1)
    saved = torch.load(folder / "optimizer.pt", weights_only=True)
    groups = [[group[name] for name in ("lr", "betas", "eps", "weight_decay")] for group in saved["param_groups"]]
    yield equal(
        "groups",
        str([[each[0], tuple(each[1]), *each[2:]] for each in groups]),
        str([[0.008, BETAS, EPS, d] for d in (DECAY, 0.0)]),
    )
    schedule = torch.load(folder / "scheduler.pt", weights_only=True)
    yield equal("next rates of the schedule", str(schedule["_last_lr"]), str([0.008, 0.008]))
    reference = Reference(ctx)
    stock_trainer.mean_over_tokens(reference, record.steps[0]).backward()
    exact = [float(tensor.grad.square().sum()) for tensor in reference.trained.values()]
    for moment, power, factor in (("exp_avg", 2, (1 - BETAS[0]) ** 2), ("exp_avg_sq", 1, 1 - BETAS[1])):
        found = sorted(float((each[moment].double() ** power).sum()) for each in saved["state"].values())
        yield at_most(
            f"sums of {moment}, off", stock_trainer.worst(found, sorted(factor * each for each in exact)), 1e-4
        )
    yield equal("steps of the optimiser", str({float(each["step"]) for each in saved["state"].values()}), "{1.0}")
    stored = (
        torch.load(folder / "training_args.bin", weights_only=False)
        if (folder / "training_args.bin").exists()
        else None
    )
    values = stored and [
        stored.learning_rate,
        stored.adam_beta1,
        stored.weight_decay,
        stored.per_device_train_batch_size,
    ]
    yield equal("training arguments", str(values), str([0.01, BETAS[0], DECAY, 2]))
