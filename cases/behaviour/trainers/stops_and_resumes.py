"""How each event of a callback stops a training, and which checkpoint a training goes on from.

https://huggingface.co/docs/transformers/main_classes/callback and
https://huggingface.co/docs/transformers/main_classes/trainer#transformers.Trainer.train. An epoch has five steps.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.accelerating.nested_tensors import refusal
from cases.behaviour.trainers import stock_trainer
from cases.model import tiny
from cases.space.verdict import Check, Phase, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cases.apply.context import Context

GROUP = "Trainer: callbacks"
ROWS = 10
STOPS = {  # the event, the steps done when it asks to stop, and the last step
    "on_train_begin": (0, 0),
    "on_epoch_begin": (5, 5),
    "on_step_begin": (3, 3),
    "on_substep_end": (3, 3),
    "on_pre_optimizer_step": (3, 4),
    "on_optimizer_step": (3, 4),
    "on_step_end": (3, 3),
    "on_log": (5, 6),
    "on_prediction_step": (3, 4),
    "on_evaluate": (3, 4),
    "on_save": (3, 7),
    "on_epoch_end": (3, 5),
}
HALF, WHOLE = 12, 14  # steps before and after resuming; "checkpoint-9" comes after "checkpoint-12" in the alphabet


@call(GROUP, phase=Phase.OPTIMIZER)
def trainer_stops_at_events(ctx: Context) -> Iterator[Check]:
    """A control that an event returns with should_training_stop ends the training, at every event.

    "in which case the event that changes it should return the modified version", and "the training will just stop": a
    step whose second batch is not begun is left out. The Trainer logs every 6 steps, evaluates every 4 (and logs that)
    and saves every 7.
    """
    from transformers import TrainerCallback

    def stopping(begin: int) -> Callable[..., Any]:
        def event(_self: Any, _args: Any, state: Any, control: Any, **_: Any) -> Any:
            if state.global_step < begin:
                return None
            changed = copy(control)
            changed.should_training_stop = True
            return changed

        return event

    settings = {"logging_steps": 6, "eval_steps": 4, "save_strategy": "steps", "save_steps": 7, "num_train_epochs": 2}
    settings |= {
        "per_device_train_batch_size": 1,
        "gradient_accumulation_steps": 2,
        **stock_trainer.evaluation("steps"),
    }
    for name, (begin, last) in STOPS.items():
        if not hasattr(TrainerCallback, name):
            continue
        trainer = stock_trainer.trainer(ctx, ROWS, evaluated=1, **settings)
        record = stock_trainer.observed(trainer)
        trainer.add_callback(type("Stopping", (TrainerCallback,), {name: stopping(begin)})())
        trainer.train()
        yield equal(f"steps of a training that {name} stops", len(record.steps), last)


def weights(trainer: Any) -> dict[str, Any]:
    return {name: parameter.detach().clone() for name, parameter in tiny.named(trainer.model)}


@call("Resuming", phase=Phase.RESUME)
def trainer_resumes_as_asked(ctx: Context) -> Iterator[Check]:
    """train(resume_from_checkpoint=True) goes on from the checkpoint of the highest step; False and None begin anew.

    "If a `bool` and equals `True`, load the last checkpoint in *args.output_dir* as saved by a previous instance".
    Without a checkpoint, True is refused.
    """
    saving: dict[str, Any] = {
        "save_strategy": "steps",
        "save_steps": 3,
        "max_steps": HALF,
        "output_dir": str(ctx.kept / "output"),
    }
    stock_trainer.trainer(ctx, ROWS, **saving).train()
    trained: dict[str, Any] = {}
    folder = str(ctx.kept / "output" / f"checkpoint-{HALF}")
    for asked, steps in ((None, WHOLE), (False, WHOLE), (True, WHOLE - HALF), (folder, WHOLE - HALF)):
        trainer = stock_trainer.trainer(ctx, ROWS, **{**saving, "max_steps": WHOLE, "save_strategy": "no"})
        record = stock_trainer.observed(trainer)
        trainer.train(resume_from_checkpoint=asked)
        kind = "a folder" if asked == folder else str(asked)
        yield equal(f"steps, resuming from {kind}", len(record.steps), steps)
        yield equal(f"last step, resuming from {kind}", trainer.state.global_step, WHOLE)
        trained[kind] = weights(trainer)
    anew = trained.pop("None")
    for kind, found in trained.items():
        unlike = sum(not found[name].equal(tensor) for name, tensor in anew.items())
        yield equal(f"weights that differ, resuming from {kind}", unlike, 0)
    empty = ctx.kept / "empty"
    empty.mkdir()
    trainer = stock_trainer.trainer(ctx, 2, output_dir=str(empty))
    refused = refusal(trainer.train, resume_from_checkpoint=True)
    yield equal("refused without a checkpoint", refused, "ValueError")


@call(GROUP, phase=Phase.SAVE)
def trainer_keeps_last_checkpoints(ctx: Context) -> Iterator[Check]:
    """save_total_limit keeps as many checkpoints, the last ones, also if it is 1 and no best one is wanted."""
    for limit in (1, 2, 3):
        folder = ctx.kept / f"limit {limit}"
        settings: dict[str, Any] = {"save_strategy": "steps", "save_steps": 2, "save_total_limit": limit}
        trainer = stock_trainer.trainer(ctx, ROWS, output_dir=str(folder), **settings)
        trainer.train()
        kept = sorted(int(each.name.rpartition("-")[2]) for each in folder.glob("checkpoint-*"))
        yield equal(f"checkpoints, save_total_limit={limit}", str(kept), str([2, 4, 6, 8, 10][-limit:]))
