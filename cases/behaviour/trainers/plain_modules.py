"""The Trainer around a plain module of one weight, so that each number of a run can be computed by hand.

https://huggingface.co/docs/transformers/main_classes/trainer
"""

from __future__ import annotations

import json
import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.apply import front_ends
from cases.behaviour.trainers import stock_trainer
from cases.behaviour.trainers.events import checkpoints
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "Trainer: plain modules"
ROWS, SIZE, RATE = 13, 2, 0.1
EACH = 7  # batches of an epoch
WHOLE = 16  # rows of two whole steps of four batches
LENGTHS = (3, 5, 2, 4, 6, 3, 2, 9)  # the longest row comes last


def module() -> Any:
    """``weight * inputs``, with the mean squared error of labels if there are any; it keeps what it was given."""
    import torch

    class StraightLine(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(1))
            self.given: list[dict[str, Any]] = []

        def forward(self, inputs: Any, labels: Any = None, extra: Any = None) -> dict[str, Any]:
            self.given.append({"inputs": inputs, "labels": labels, "extra": extra})
            logits = inputs * self.weight
            return (
                {"logits": logits} if labels is None else {"loss": (logits - labels).square().mean(), "logits": logits}
            )

    return StraightLine()


def rows(count: int = ROWS) -> list[dict[str, Any]]:
    return [{"inputs": float(number) / 8, "labels": float(number % 3)} for number in range(count)]


def trainer(ctx: Context, data: Any, *, of: Any = None, model: Any = None, evaluated: Any = None, **more: Any) -> Any:
    from transformers import Trainer

    os.environ.update(front_ends.launched(ctx.place))
    own = {name: more.pop(name) for name in ("processing_class", "data_collator", "compute_metrics") if name in more}
    usual = {"learning_rate": RATE, "optim": "sgd", "per_device_train_batch_size": SIZE, "max_grad_norm": 0.0}
    arguments = stock_trainer.arguments(ctx, **{**usual, "per_device_eval_batch_size": SIZE, **more})
    kind = of or Trainer
    return kind(model=model or module(), args=arguments, train_dataset=data, eval_dataset=evaluated, **own)


def counted(events: dict[str, list[int]]) -> Any:
    """A callback that keeps the step of each event."""
    from transformers import TrainerCallback

    def keep(name: str) -> Any:
        def event(_self: Any, _args: Any, state: Any, _control: Any, **_: Any) -> None:
            events[name].append(state.global_step)

        return event

    return type("Counting", (TrainerCallback,), {name: keep(name) for name in events})()


@call(GROUP, phase=Phase.OPTIMIZER)
def plain_events_and_files(ctx: Context) -> Iterator[Check]:
    """Callbacks see each step begin and end once, a checkpoint limit keeps the last ones, and the state counts all.

    An epoch of 13 rows has 7 batches; one of 16 rows, with accumulation over 4, has two steps.
    """
    names = ("on_step_begin", "on_substep_end", "on_step_end", "on_epoch_begin", "on_epoch_end", "on_save")
    for accumulation, steps, count in ((1, 7, ROWS), (4, 2, WHOLE)):
        events: dict[str, list[int]] = {name: [] for name in names}
        folder = ctx.kept / f"by {accumulation}"
        made = trainer(
            ctx,
            rows(count),
            gradient_accumulation_steps=accumulation,
            save_strategy="steps",
            save_steps=1,
            save_total_limit=2,
            output_dir=str(folder),
        )
        made.add_callback(counted(events))
        found = made.train()
        total = 2 * steps
        wanted = {
            "on_step_begin": [*range(total)],
            "on_step_end": [*range(1, total + 1)],
            "on_epoch_begin": [0, steps],
            "on_epoch_end": [steps, total],
            "on_save": [*range(1, total + 1)],
        }
        for name, at in wanted.items():
            yield equal(f"steps, {name}, {accumulation}", str(events[name]), str(at))
        yield equal(
            f"batches within steps, {accumulation}", len(events["on_substep_end"]), 2 * -(-count // SIZE) - total
        )
        kept = sorted(int(each.name.rpartition("-")[2]) for each in folder.glob("checkpoint-*"))
        yield equal(f"checkpoints, {accumulation}", str(kept), str([total - 1, total]))
        state = json.loads((folder / f"checkpoint-{total}" / "trainer_state.json").read_text())
        held = (
            state["global_step"],
            state["max_steps"],
            state["epoch"],
            state["num_train_epochs"],
            state["train_batch_size"],
        )
        yield equal(f"state, {accumulation}", str(held), str((total, total, 2.0, 2, SIZE)))
        yield equal(f"steps returned, {accumulation}", found.global_step, total)
        rows_seen = sorted(float(each) for given in made.model.given[: -(-count // SIZE)] for each in given["inputs"])
        yield equal(f"rows of an epoch, {accumulation}", str(rows_seen), str([row["inputs"] for row in rows(count)]))
    yield equal("checkpoints of no training", checkpoints(ctx), "[]")


@call(GROUP, phase=Phase.OPTIMIZER)
def plain_logs(ctx: Context) -> Iterator[Check]:
    """A log of an epoch states what a log of its last step states, but for the loss, which is the mean since the last.

    The rate is that of the step or, in earlier versions, of the next one; speeds count rows of all steps.
    """
    logs = {}
    for strategy in ("steps", "epoch"):
        more = {
            "logging_strategy": strategy,
            "lr_scheduler_type": "linear",
            "max_grad_norm": 1e3,
            "warmup_steps": 3,
            "output_dir": str(ctx.kept / strategy),
        }
        made = trainer(ctx, rows(), logging_steps=1, **more)
        made.train()
        logs[strategy] = {entry["step"]: entry for entry in made.state.log_history if "loss" in entry}
    yield equal("steps logged", str(list(logs["steps"])), str([*range(1, 15)]))
    yield equal("steps logged by epoch", str(list(logs["epoch"])), "[7, 14]")
    for step, entry in logs["epoch"].items():
        other = logs["steps"].get(step, {})
        for name in ("learning_rate", "epoch", "grad_norm"):
            yield equal(f"{name} of step {step}", round(entry[name], 8), round(other.get(name, -1.0), 8))
        begin = step - EACH + 1
        mean = sum(logs["steps"][each]["loss"] for each in range(begin, step + 1)) / EACH
        yield at_most(f"loss of epoch off, step {step}", abs(entry["loss"] - mean), 2e-4)
    rates = [RATE * min(step / 3, (14 - step) / 11) for step in range(15)]
    for step in (1, 5, 14):
        near = min(abs(logs["steps"][step]["learning_rate"] - rate) for rate in rates[step - 1 : step + 1])
        yield at_most(f"learning rate off, step {step}", near, 1e-7)
    ends: list[tuple[dict[str, Any], int]] = [
        ({"max_steps": 5}, 5),
        ({"max_steps": 20}, 20),
        ({"max_steps": 4, "gradient_accumulation_steps": 2}, 4),
    ]
    for more, count in ends:
        found = trainer(ctx, rows(), output_dir=str(ctx.kept / f"speed {count}"), **more).train()
        size = SIZE * more.get("gradient_accumulation_steps", 1)
        per_step = found.metrics["train_samples_per_second"] / found.metrics["train_steps_per_second"]
        yield at_most(f"rows of a step off, {count}", abs(per_step / size - 1), 1e-2)
        duration = found.metrics["train_runtime"] * found.metrics["train_steps_per_second"] / count
        yield at_most(f"time times speed off, {count}", abs(duration - 1), 0.05)
        yield equal(f"steps, {count}", found.global_step, count)


def stream(data: list[dict[str, Any]]) -> Any:
    import torch

    class UncountedRows(torch.utils.data.IterableDataset):  # type: ignore[misc]
        def __iter__(self) -> Any:
            return iter(data)

    return UncountedRows()


def noted(made: Any, calls: list[tuple[str, str]]) -> Any:
    """A callback that keeps the events of evaluations with the name of the loss, or with what is wrong in them."""
    from transformers import TrainerCallback, TrainerControl

    def event(name: str) -> Any:
        def keep(_self: Any, args: Any, state: Any, control: Any, **more: Any) -> None:
            own = args is made.args and state is made.state and isinstance(control, TrainerControl)
            own = own and more["model"] is made.model
            loss = next((key for key in more["metrics"] if key.endswith("_loss")), "no loss")
            calls.append((name, loss if own else "arguments of another kind"))

        return keep

    return type("Noting", (TrainerCallback,), {name: event(name) for name in ("on_evaluate", "on_predict")})()


@call(GROUP, phase=Phase.INFER)
def plain_evaluations(ctx: Context) -> Iterator[Check]:
    """Evaluation and prediction count each row once, of data sets and of streams, and of models without labels.

    A model whose forward has return_loss=True gives the loss of batches without labels. metric_key_prefix names all.
    Callbacks get the arguments, the state, the control and the metrics of both.
    """
    import numpy as np
    import torch

    data = rows(7)
    errors = [(row["inputs"] - row["labels"]) ** 2 for row in data]
    for name, given in {"rows": data, "a stream": stream(data)}.items():
        made = trainer(
            ctx, rows(), evaluated=given, compute_metrics=lambda found: {"sum": float(found.predictions.sum())}
        )
        calls: list[tuple[str, str]] = []
        made.add_callback(noted(made, calls))
        found = made.evaluate(metric_key_prefix="judged")
        yield at_most(f"loss off, {name}", abs(found["judged_loss"] - np.mean(errors)), 1e-6)
        yield at_most(f"metric off, {name}", abs(found["judged_sum"] - sum(row["inputs"] for row in data)), 1e-6)
        per_step = found["judged_samples_per_second"] / found["judged_steps_per_second"]
        yield at_most(f"rows of a batch off, {name}", abs(per_step / (7 / 4) - 1), 1e-2)
        others = [key for key in found if not key.startswith("judged_") and key != "epoch"]
        yield equal(f"names without the prefix, {name}", str(others), "[]")
        predicted = made.predict(given)
        heard = [("on_evaluate", "judged_loss"), ("on_predict", "test_loss")]
        yield equal(f"events with what they got, {name}", str(calls), str(heard))
        per_step = predicted.metrics["test_samples_per_second"] / predicted.metrics["test_steps_per_second"]
        yield at_most(f"rows of a predicted batch off, {name}", abs(per_step / (7 / 4) - 1), 1e-2)
        yield equal(f"predictions, {name}", str(predicted.predictions.tolist()), str([row["inputs"] for row in data]))
        yield equal(f"labels, {name}", str(predicted.label_ids.tolist()), str([row["labels"] for row in data]))
        unlabelled = [{"inputs": row["inputs"]} for row in data]
        plain = made.predict(unlabelled if name == "rows" else stream(unlabelled))
        yield equal(f"labels of none, {name}", str(plain.label_ids), "None")
        yield equal(f"loss of none, {name}", "test_loss" in plain.metrics, bound=False)

    class Alone(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(1))

        def forward(self, inputs: Any, return_loss: bool = True) -> dict[str, Any]:  # noqa: FBT001, FBT002 - CLIP's own
            logits = inputs * self.weight
            return {"loss": logits.mean(), "logits": logits} if return_loss else {"logits": logits}

    unlabelled = [{"inputs": row["inputs"]} for row in data]
    made = trainer(ctx, unlabelled, model=Alone(), evaluated=unlabelled)
    found = made.evaluate()
    yield at_most(
        "loss off, return_loss", abs(found.get("eval_loss", 9.0) - np.mean([row["inputs"] for row in data])), 1e-6
    )
    only = made.predict(unlabelled)
    yield equal("predictions, return_loss", str(only.predictions.tolist()), str([row["inputs"] for row in data]))


def kept_columns(features: list[dict[str, Any]]) -> dict[str, Any]:
    import torch

    return {key: torch.tensor([row[key] for row in features]) for key in features[0]}


@call(GROUP, phase=Phase.FORWARD)
def plain_columns(ctx: Context) -> Iterator[Check]:
    """remove_unused_columns keeps what forward takes, "label", "label_ids", and the columns that label_names lists."""
    from datasets import Dataset
    from transformers import Trainer

    seen: list[set[str]] = []

    class Own(Trainer):  # type: ignore[misc]
        def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:  # noqa: FBT001, FBT002 - the Trainer's own
            seen.append(set(inputs))
            logits = model(inputs["inputs"])["logits"]
            loss = (logits - inputs["target"]).square().mean() if "target" in inputs else logits.mean()
            return (loss, {"logits": logits}) if return_outputs else loss

    names = ("inputs", "target", "label", "label_ids", "extra", "other")
    data = Dataset.from_dict({name: [0.5, 1.0, 1.5, 2.0] for name in names})
    for named, kept in ((["target"], {"target"}), (["target", "other"], {"target", "other"}), (None, set())):
        for removed in (True, False):
            seen.clear()
            more: dict[str, Any] = {"label_names": named, "remove_unused_columns": removed, "max_steps": 1}
            made = trainer(ctx, data, of=Own, evaluated=data, data_collator=kept_columns, **more)
            made.train()
            wanted = set(names) if not removed else {"inputs", "extra", "label", "label_ids"} | kept
            title = f"label_names={named}, removed={removed}"
            yield equal(f"columns, {title}", str(sorted(seen[0])), str(sorted(wanted)))
            if named == ["target"]:
                found = made.predict(data)
                yield equal(f"labels, {title}", str(found.label_ids.tolist()), "[0.5, 1.0, 1.5, 2.0]")


def padded(key: str) -> Any:
    """A collator that pads one column by zeros."""

    def collate(features: list[dict[str, Any]]) -> dict[str, Any]:
        import torch

        every = [torch.tensor(row[key]) for row in features]
        return {
            "inputs": torch.nn.utils.rnn.pad_sequence(every, batch_first=True),
            "labels": torch.zeros(len(every), 1),
        }

    return collate


@call(GROUP, phase=Phase.FORWARD)
def plain_lengths(ctx: Context) -> Iterator[Check]:
    """Grouping by length begins an epoch, and an evaluation, with the longest row, and sorts each batch by length.

    The lengths are those of the first input that the processing class names, or of "input_ids".
    """
    grouped: dict[str, Any] = {"group_by_length": True}
    if not stock_trainer.known("group_by_length"):
        grouped = {"train_sampling_strategy": "group_by_length"}
    for key in ("input_ids", "input_values"):
        data = [{key: [float(place + 1)] * length} for place, length in enumerate(LENGTHS)]
        names = SimpleNamespace(model_input_names=[key])
        own = {"processing_class": names} if key != "input_ids" else {}
        more = {"remove_unused_columns": False, "num_train_epochs": 1, "data_collator": padded(key), **grouped, **own}
        made = trainer(ctx, data, evaluated=data, **more)
        made.train()
        for kind in ("training", "evaluation"):
            if kind == "evaluation":
                made.model.given.clear()
                made.evaluate()
            found = [[int((row > 0).sum()) for row in given["inputs"]] for given in made.model.given]
            title = f"{kind}, {key}"
            yield equal(f"longest row of the first batch, {title}", found[0][0], max(LENGTHS))
            ordered = [batch == sorted(batch, reverse=True) for batch in found[1:]]
            yield equal(f"batches sorted, {title}", sum(not each for each in ordered) <= 1, bound=True)
            every = sorted(length for batch in found for length in batch)
            yield equal(f"lengths, {title}", str(every), str(sorted(LENGTHS)))


@call(GROUP, phase=Phase.SAVE)
def plain_metric_files(ctx: Context) -> Iterator[Check]:
    """save_metrics writes sorted and indented files of a split and of all, as people read and compare them."""
    folder = ctx.kept / "metrics"
    made = trainer(ctx, rows(), output_dir=str(folder))
    first, second = {"train_loss": 0.5, "epoch": 2.0, "a_count": 3}, {"test_loss": 1.5, "epoch": 2.0}
    made.save_metrics("train", first)
    made.save_metrics("test", second)
    made.save_metrics("alone", {"x": 1}, combined=False)
    wanted = {"train": first, "test": second, "alone": {"x": 1}, "all": {**first, **second}}
    for name, metrics in wanted.items():
        text = (folder / f"{name}_results.json").read_text()
        yield equal(f"file of {name}", text, json.dumps(metrics, indent=4, sort_keys=True))
    made.save_state()
    state = json.loads((folder / "trainer_state.json").read_text())
    yield equal("history of no training", str(state["log_history"]), "[]")
