"""When the Trainer logs, evaluates, saves and stops, against its documentation.

https://huggingface.co/docs/transformers/main_classes/trainer#transformers.TrainingArguments. An epoch has five steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.trainers import stock_trainer
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cases.apply.context import Context

GROUP = "Trainer: logs"
ROWS = 10
LAST = 12  # a step within the third epoch
OFTEN: dict[str, Any] = {"save_strategy": "steps", "save_steps": 3, "logging_steps": 4, "num_train_epochs": 2}


def observed(trainer: Any) -> dict[str, list[int]]:
    """The steps after which a trainer logs a loss, evaluates and saves, filled while it trains."""
    from transformers import TrainerCallback

    seen: dict[str, list[int]] = {"log": [], "evaluate": [], "save": []}

    class EventObserver(TrainerCallback):  # type: ignore[misc]
        def on_log(self, _args: Any, state: Any, _control: Any, logs: Any = None, **_: Any) -> None:
            if "loss" in logs:
                seen["log"].append(state.global_step)

        def on_evaluate(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
            seen["evaluate"].append(state.global_step)

        def on_save(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
            seen["save"].append(state.global_step)

    trainer.add_callback(EventObserver())
    return seen


def trained(ctx: Context, **more: Any) -> tuple[Any, dict[str, list[int]]]:
    trainer = stock_trainer.trainer(ctx, ROWS, evaluated=2, **more)
    seen = observed(trainer)
    trainer.train()
    return trainer, seen


def happened(seen: dict[str, list[int]], *, last: int, **expected: Sequence[int]) -> Iterator[Check]:
    """Compare what happened before the last step; versions differ in what they repeat or add after it."""
    for event, steps in expected.items():
        before = [step for step in seen[event] if step < last]
        yield equal(f"steps: {event}", str(before), str(list(steps)))


def checkpoints(ctx: Context) -> str:
    """The steps whose checkpoints are kept."""
    found = (ctx.kept / "output").glob("checkpoint-*")
    return str(sorted(int(each.name.rpartition("-")[2]) for each in found))


@call(GROUP, phase=Phase.SAVE)
def trainer_event_steps(ctx: Context) -> Iterator[Check]:
    """logging_steps, eval_steps and save_steps count steps through all epochs; the last step is saved too."""
    _, seen = trained(ctx, **OFTEN, eval_steps=5, save_total_limit=2, **stock_trainer.evaluation("steps"))
    yield from happened(seen, last=10, log=(4, 8), evaluate=(5,), save=(3, 6, 9))
    yield equal("checkpoints kept", checkpoints(ctx), "[9, 10]")


@call(GROUP, phase=Phase.SAVE)
def trainer_event_epochs(ctx: Context) -> Iterator[Check]:
    """The strategy "epoch" logs, evaluates and saves after each epoch, also after the last, incomplete one."""
    chosen = {"save_strategy": "epoch", "logging_strategy": "epoch", **stock_trainer.evaluation("epoch")}
    _, seen = trained(ctx, max_steps=LAST, **chosen)
    yield from happened(seen, last=LAST, log=(5, 10), evaluate=(5, 10), save=(5, 10))
    yield equal("events after the last step", len([name for name, steps in seen.items() if steps[-1] == LAST]), 3)


@call(GROUP, phase=Phase.SAVE)
def trainer_event_ratios(ctx: Context) -> Iterator[Check]:
    """A logging_steps, eval_steps or save_steps below 1 is a share of all steps, rounded up."""
    ratios = {"logging_steps": 0.25, "eval_steps": 0.4, "save_steps": 0.5, "save_strategy": "steps"}
    _, seen = trained(ctx, num_train_epochs=2, **ratios, **stock_trainer.evaluation("steps"))
    yield from happened(seen, last=10, log=(3, 6, 9), evaluate=(4, 8), save=(5,))


@call(GROUP, phase=Phase.FORWARD)
def trainer_first_events(ctx: Context) -> Iterator[Check]:
    """logging_first_step logs after step 1 too, eval_on_start evaluates before it, and eval_delay waits.

    Versions have counted the evaluation of ``eval_on_start`` as step 0.
    """
    is_known = stock_trainer.known("eval_on_start")
    early = {"eval_on_start": True} if is_known else {}
    steps = {"logging_steps": 4, "eval_steps": 2, "num_train_epochs": 1, **stock_trainer.evaluation("steps")}
    _, seen = trained(ctx, logging_first_step=True, **early, **steps)
    yield from happened(seen, last=5, log=(1, 4), evaluate=(0, 2, 4) if is_known else (2, 4))
    _, seen = trained(ctx, eval_delay=3, **steps)
    yield from happened(seen, last=5, evaluate=(4,))


@call(GROUP, phase=Phase.OPTIMIZER)
def trainer_max_steps(ctx: Context) -> Iterator[Check]:
    """max_steps overrides num_train_epochs: it ends within an epoch, or begins further ones."""
    for steps in (3, 12):
        trainer = stock_trainer.trainer(ctx, ROWS, max_steps=steps, num_train_epochs=1)
        record = stock_trainer.observed(trainer)
        trainer.train()
        yield equal("optimiser steps", len(record.steps), steps)
        yield at_most("logged epoch, off", abs(trainer.state.epoch - steps / 5), 0.01)
        whole = [sorted(record.order[begin : begin + ROWS]) for begin in range(0, 2 * steps - ROWS + 1, ROWS)]
        yield equal("rows of whole epochs", str(whole), str([list(range(ROWS))] * len(whole)))


@call(GROUP, phase=Phase.OPTIMIZER)
def trainer_part_of_an_epoch(ctx: Context) -> Iterator[Check]:
    """num_train_epochs=1.5 takes one and a half epochs, "performing the decimal part percents of the last epoch"."""
    trainer = stock_trainer.trainer(ctx, 8, num_train_epochs=1.5)
    record = stock_trainer.observed(trainer)
    trainer.train()
    yield equal("optimiser steps", len(record.steps), 6)
    yield equal("rows of whole epochs", str(sorted(record.order[:8])), str(list(range(8))))
    yield equal("different rows of the last half", len(set(record.order[8:])), 4)


def stopped(ctx: Context, scores: Sequence[float], threshold: float, *, greater_is_better: bool) -> tuple[int, str]:
    """The step after which early stopping ends that waits for two evaluations, and the best step."""
    from transformers import EarlyStoppingCallback

    trainer = stock_trainer.trainer(
        ctx,
        ROWS,
        num_train_epochs=2,
        eval_steps=1,
        evaluated=1,
        load_best_model_at_end=True,
        save_strategy="steps",
        save_steps=1,
        metric_for_best_model="score",
        greater_is_better=greater_is_better,
        **stock_trainer.evaluation("steps"),
    )
    left = iter(scores)
    trainer.compute_metrics = lambda _: {"score": next(left)}
    trainer.add_callback(EarlyStoppingCallback(2, threshold))
    trainer.train()
    return trainer.state.global_step, str(trainer.state.best_model_checkpoint).rpartition("-")[2]


@call(GROUP, phase=Phase.OPTIMIZER)
def trainer_early_stopping(ctx: Context) -> Iterator[Check]:
    """EarlyStoppingCallback stops after two evaluations in a row that are not better than the best so far."""
    rising = (0.5, 0.4, 0.7, 0.6, 0.8, 0.7, 0.75, 0.9)
    yield equal("last step and best step", str(stopped(ctx, rising, 0.0, greater_is_better=True)), "(7, '5')")
    falling = (0.5, 0.6, 0.3, 0.4, 0.35, 0.1)
    yield equal("last step and best step", str(stopped(ctx, falling, 0.0, greater_is_better=False)), "(5, '3')")


@call(GROUP, phase=Phase.OPTIMIZER)
def trainer_early_stopping_threshold(ctx: Context) -> Iterator[Check]:
    """early_stopping_threshold is how much an evaluation must be better to count; the best one is still the best."""
    rising = (0.5, 0.55, 0.75, 0.8, 0.84, 0.9)
    yield equal("last step and best step", str(stopped(ctx, rising, 0.1, greater_is_better=True)), "(5, '5')")


@call(GROUP, phase=Phase.RESUME)
def trainer_ignore_data_skip(ctx: Context) -> Iterator[Check]:
    """With ignore_data_skip, a resumed training takes as many steps, from the beginning of an epoch's rows."""
    more: dict[str, Any] = {"num_train_epochs": 2, "save_strategy": "steps", "save_steps": 3}
    stock_trainer.trainer(ctx, ROWS, **more).train()
    trainer = stock_trainer.trainer(ctx, ROWS, ignore_data_skip=True, **more)
    record = stock_trainer.observed(trainer)
    trainer.train(resume_from_checkpoint=str(ctx.kept / "output" / "checkpoint-3"))
    yield equal("last step", trainer.state.global_step, 10)
    first = record.order[:ROWS]
    yield equal("rows of the first epoch", str(sorted(first)), str(list(range(ROWS))))


@call(GROUP, phase=Phase.SAVE)
def trainer_checkpoint_files(ctx: Context) -> Iterator[Check]:
    """A checkpoint has states of optimiser, schedule and random numbers; with save_only_model, it has none."""
    for alone in (False, True):
        more: dict[str, Any] = {
            "save_strategy": "steps",
            "save_steps": 3 + alone,
            "max_steps": 3 + alone,
            "save_only_model": alone,
        }
        stock_trainer.trainer(ctx, ROWS, **more).train()
        found = {each.name for each in (ctx.kept / "output" / f"checkpoint-{3 + alone}").iterdir()}
        states = {"optimizer.pt", "scheduler.pt", "rng_state.pth"}
        yield equal("files of states", len(states & found), 0 if alone else len(states))
        yield equal("files of weights and of the trainer", len({"model.safetensors", "trainer_state.json"} & found), 2)
