"""A Trainer that only evaluates or predicts: its folder, its files, and what it leaves alone.

https://huggingface.co/docs/transformers/main_classes/trainer
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.trainers import eval_settings, stock_trainer
from cases.model import tiny
from cases.model.data import IGNORED
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Trainer: evaluation"


@call(GROUP, phase=Phase.INFER)
def trainer_evaluates_alone(ctx: Context) -> Iterator[Check]:
    """A Trainer without a training has its output directory, and writes metrics and state of an evaluation there.

    save_metrics writes eval_results.json and adds to all_results.json, and save_state writes trainer_state.json. Its
    process is the main one of its machine and of all, in the Trainer and in the state that callbacks read.
    """
    folder = ctx.kept / "evaluated" / "here"
    made = stock_trainer.trainer(ctx, 2, evaluated=5, output_dir=str(folder))
    yield equal("the folder of a new trainer", folder.is_dir(), bound=True)
    for name in ("is_local_process_zero", "is_world_process_zero"):
        yield equal(f"{name} of a Trainer", getattr(made, name)(), bound=True)
        yield equal(f"{name} of its state", getattr(made.state, name), bound=True)
    before = {name: p.detach().clone() for name, p in made.model.named_parameters()}
    found = made.evaluate()
    made.save_metrics("eval", found)
    made.save_metrics("test", {"test_loss": 2.0})
    made.save_state()
    stored = {name: json.loads((folder / name).read_text()) for name in ("eval_results.json", "all_results.json")}
    yield equal("eval_results.json", str(sorted(stored["eval_results.json"])), str(sorted(found)))
    yield at_most("loss that is stored, off", abs(stored["eval_results.json"]["eval_loss"] - found["eval_loss"]), 1e-6)
    both = {**found, "test_loss": 2.0}
    yield equal("all_results.json", str(sorted(stored["all_results.json"])), str(sorted(both)))
    state = json.loads((folder / "trainer_state.json").read_text())
    logged = [entry["eval_loss"] for entry in state["log_history"] if "eval_loss" in entry]
    yield equal("losses in trainer_state.json", len(logged), 1)
    moved = [name for name, p in made.model.named_parameters() if bool((p != before[name]).any())]
    yield equal("weights that moved", len(moved), 0)


@call(GROUP, phase=Phase.SAVE)
def trainer_saves_alone(ctx: Context) -> Iterator[Check]:
    """save_model writes the weights and the arguments, to output_dir or elsewhere, also without a training."""
    import torch

    folder = ctx.kept / "saved"
    made = stock_trainer.trainer(ctx, 2, output_dir=str(folder), save_strategy="no")
    for name, where in (("output_dir", None), ("elsewhere", str(ctx.kept / "elsewhere"))):
        made.save_model(where)
        path = folder if where is None else ctx.kept / "elsewhere"
        files = {each.name for each in path.iterdir()}
        missing = sorted({"config.json", "model.safetensors", "training_args.bin"} - files)
        yield equal(f"files missing, {name}", ", ".join(missing) or "none", "none")
        arguments: Any = torch.load(path / "training_args.bin", weights_only=False)
        yield equal(f"arguments that are stored, {name}", arguments.output_dir, str(folder))


def rows_given(inputs: Any) -> list[list[int]]:
    """The tokens of each row that compute_metrics got, without padding: of a batch, or of its main input."""
    import numpy as np

    ids = inputs if hasattr(inputs, "shape") else inputs["input_ids"]
    return [[each for each in row if each not in (IGNORED, tiny.PADDING)] for row in np.asarray(ids).tolist()]


@call(GROUP, phase=Phase.INFER, requires=("include_for_metrics", "batch_eval_metrics"))
def trainer_metric_parts_of_batches(ctx: Context) -> Iterator[Check]:
    """With batch_eval_metrics, include_for_metrics gives compute_metrics each batch's inputs and losses, if named.

    Logits and labels are those of the batch, whatever is named; the losses are the batch's loss for each of its rows.
    """
    import numpy as np

    losses, logits, batches = eval_settings.batch_losses(ctx), eval_settings.alone(ctx), eval_settings.batches()
    for named in ([], ["inputs"], ["loss"], ["inputs", "loss"]):
        seen: list[Any] = []
        made = eval_settings.trainer(ctx, include_for_metrics=named, batch_eval_metrics=True)
        made.compute_metrics = lambda found, compute_result, seen=seen: seen.append(found) or {"last": compute_result}
        metrics = made.evaluate(stock_trainer.rows(eval_settings.ROWS))
        title = "+".join(named) or "nothing"
        yield equal(f"batches, {title}", len(seen), len(batches))
        yield equal(f"metrics are the last batch's, {title}", metrics["eval_last"], bound=True)
        for parts, numbers, loss in zip(seen, batches, losses, strict=False):
            place = f"rows from {numbers[0]}, {title}"
            yield equal(f"inputs given, {place}", parts.inputs is not None, "inputs" in named)
            yield equal(f"losses given, {place}", parts.losses is not None, "loss" in named)
            if parts.inputs is not None:
                wanted = [stock_trainer.row(n)["input_ids"].tolist() for n in numbers]
                yield equal(f"inputs, {place}", rows_given(parts.inputs) == wanted, bound=True)
            if parts.losses is not None:
                each = np.asarray(parts.losses).reshape(-1).tolist()
                yield at_most(f"losses off, {place}", stock_trainer.worst(each, [loss] * len(numbers)), 1e-5)
            rows = zip(np.asarray(parts.predictions), (logits[n] for n in numbers), strict=True)
            off = max(float(np.abs(row[: len(wanted)] - wanted).max()) for row, wanted in rows)
            yield at_most(f"logits off, {place}", off, 1e-4)
            same = [eval_settings.same(row, n) for row, n in zip(np.asarray(parts.label_ids), numbers, strict=True)]
            yield equal(f"labels that differ, {place}", same.count(False), 0)
