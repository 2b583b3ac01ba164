"""The settings of the Trainer's evaluation: dtypes, what metrics get, filtered losses, several data sets.

https://huggingface.co/docs/transformers/main_classes/trainer#transformers.TrainingArguments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.trainers import stock_trainer
from cases.behaviour.trainers.stock_trainer import LENGTHS, Reference
from cases.model import tiny
from cases.model.data import IGNORED
from cases.space.verdict import Check, Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "Trainer: evaluation"
ROWS, BATCH = 5, 2  # the last batch has one row
SAME = 1e-5
BROAD = 0.02  # relative, of a loss in 16 bits
DTYPES = {"bf16_full_eval": "bfloat16", "fp16_full_eval": "float16"}


def trainer(ctx: Context, count: int = 1, **more: Any) -> Any:
    return stock_trainer.trainer(ctx, count, per_device_eval_batch_size=BATCH, **more)


def batches(count: int = ROWS) -> list[list[int]]:
    """The rows of each batch of an evaluation."""
    return [[*range(begin, min(begin + BATCH, count))] for begin in range(0, count, BATCH)]


def batch_losses(ctx: Context, count: int = ROWS) -> list[float]:
    """The loss of each batch: the mean over its learned tokens, in float64."""
    import torch

    reference = Reference(ctx)
    with torch.no_grad():
        return [float(reference.mean(batch)) for batch in batches(count)]


def mean_over_rows(losses: list[float], count: int = ROWS) -> float:
    """The mean of the losses of batches, each as often as it has rows."""
    return sum(loss * len(batch) for loss, batch in zip(losses, batches(count), strict=True)) / count


def dtypes_seen(model: Any) -> list[str]:
    """The dtypes of the outputs of a model's first layer and head, filled while it runs."""
    seen: list[str] = []
    for name, module in model.named_modules():
        if name.endswith(("layers.0.mlp", "lm_head")):
            module.register_forward_hook(lambda _module, _inputs, output: seen.append(str(output.dtype)))
    return seen


def distinct(seen: list[str]) -> str:
    return ", ".join(sorted({each.removeprefix("torch.") for each in seen}))


def copied(model: Any) -> dict[str, Any]:
    return {name: parameter.detach().clone() for name, parameter in tiny.named(model)}


def differing(found: dict[str, Any], wanted: dict[str, Any]) -> int:
    """The number of tensors that are not equal bit for bit."""
    return sum(not (name in found and found[name].equal(tensor)) for name, tensor in wanted.items())


@call(GROUP, phase=Phase.INFER)
def trainer_full_eval(ctx: Context) -> Iterator[Check]:
    """bf16_full_eval and fp16_full_eval evaluate as the model does that is cast to 16 bits, and predict does too.

    The start values are exact in both formats, so only the arithmetic within differs from float32.
    """
    import torch

    expected = mean_over_rows(batch_losses(ctx))
    for setting, kind in DTYPES.items():
        made = trainer(ctx, **{setting: True})
        seen = dtypes_seen(made.model)
        found = made.evaluate(stock_trainer.rows(ROWS))["eval_loss"]
        predicted = made.predict(stock_trainer.rows(ROWS)).metrics["test_loss"]
        yield equal(f"dtypes within, {setting}", distinct(seen), kind)
        cast = stock_trainer.model(ctx).to(getattr(torch, kind)).eval()
        with torch.no_grad():
            alone = [
                float(cast(**stock_trainer.padded([stock_trainer.row(n) for n in batch])).loss) for batch in batches()
            ]
        yield at_most(f"loss off that of the cast model, {setting}", abs(found / mean_over_rows(alone) - 1), SAME)
        yield at_most(f"loss off, {setting}", abs(found / expected - 1), BROAD)
        yield equal(f"loss of predict, {setting}", predicted, found)


@call(GROUP, phase=Phase.OPTIMIZER)
def trainer_full_eval_in_training(ctx: Context) -> Iterator[Check]:
    """An evaluation within training leaves the training as it is, whatever full_eval, accumulation or metrics say.

    The weights stay in float32, and all steps are those of a training without evaluation.
    """
    plain = trainer(ctx, 4, num_train_epochs=1)
    plain.train()
    wanted = copied(plain.model)
    settings: dict[str, dict[str, Any]] = {
        **{name: {name: True} for name in DTYPES},
        "eval_accumulation_steps": {"eval_accumulation_steps": 1},
        "prediction_loss_only": {"prediction_loss_only": True},
    }
    for name, more in settings.items():
        made = trainer(
            ctx, 4, num_train_epochs=1, eval_steps=1, evaluated=3, **stock_trainer.evaluation("steps"), **more
        )
        if name == "eval_accumulation_steps":
            made.compute_metrics = lambda _: {"rows": 0.0}
        made.train()
        losses = [entry for entry in made.state.log_history if "eval_loss" in entry]
        yield equal(f"evaluations, {name}", len(losses), 2)
        yield equal(f"weights that differ, {name}", differing(copied(made.model), wanted), 0)


@call(GROUP, phase=Phase.OPTIMIZER)
def trainer_full_eval_before_training(ctx: Context) -> Iterator[Check]:
    """An evaluation with bf16_full_eval before training leaves a float32 model for the training.

    The setting is documented for evaluation alone: "Whether to use full bfloat16 evaluation instead of 32-bit".
    """
    plain = trainer(ctx, 8, num_train_epochs=1)
    plain.train()
    made = trainer(ctx, 8, num_train_epochs=1, bf16_full_eval=True)
    made.evaluate(stock_trainer.rows(ROWS))
    seen = dtypes_seen(made.model)
    made.train()
    yield equal("dtypes within training", distinct(seen), "float32")
    yield equal("dtypes of weights", distinct([str(p.dtype) for p in made.model.parameters()]), "float32")
    yield equal("weights that differ", differing(copied(made.model), copied(plain.model)), 0)


@call(GROUP, phase=Phase.INFER)
def trainer_predicted_alike(ctx: Context) -> Iterator[Check]:
    """Settings that only move or collect predictions change none of them, nor the loss.

    https://huggingface.co/docs/transformers/main_classes/trainer#transformers.Trainer.predict: rows of different
    lengths "will be padded (on the right)" with -100. With eval_do_concat_batches=False, each batch stays apart.
    """
    import numpy as np

    expected = mean_over_rows(batch_losses(ctx))
    logits = alone(ctx)
    settings: dict[str, dict[str, Any]] = {
        "none": {},
        "eval_accumulation_steps=1": {"eval_accumulation_steps": 1},
        "eval_accumulation_steps=2": {"eval_accumulation_steps": 2},
        "eval_accumulation_steps=9": {"eval_accumulation_steps": 9},
        "torch_empty_cache_steps": {"torch_empty_cache_steps": 1},
    }
    if stock_trainer.known("eval_do_concat_batches"):
        settings["eval_do_concat_batches=False"] = {"eval_do_concat_batches": False}
    for name, more in settings.items():
        found = trainer(ctx, **more).predict(stock_trainer.rows(ROWS))
        yield at_most(f"loss off, {name}", abs(found.metrics["test_loss"] / expected - 1), SAME)
        is_whole = name != "eval_do_concat_batches=False"
        parts = [found.predictions] if is_whole else found.predictions
        shapes = (
            [(ROWS, max(LENGTHS[:ROWS]))] if is_whole else [(len(b), max(LENGTHS[n] for n in b)) for b in batches()]
        )
        yield equal(f"shapes, {name}", str([tuple(part.shape[:2]) for part in parts]), str(shapes))
        rows = [row for part in parts for row in np.asarray(part)]
        off = [float(np.abs(row[: len(wanted)] - wanted).max()) for row, wanted in zip(rows, logits, strict=False)]
        yield at_most(f"logits off, {name}", max(off), SAME * max(float(np.abs(each).max()) for each in logits))
        labels = [row for part in ([found.label_ids] if is_whole else found.label_ids) for row in np.asarray(part)]
        yield equal(f"labels that differ, {name}", sum(not same(row, n) for n, row in enumerate(labels)), 0)


def alone(ctx: Context) -> list[Any]:
    """The logits of each row by itself."""
    import torch

    model = stock_trainer.model(ctx).eval()
    with torch.no_grad():
        return [model(stock_trainer.row(n)["input_ids"][None]).logits[0].numpy() for n in range(ROWS)]


def same(labels: Any, number: int) -> bool:
    """Return whether labels are those of a row, padded by -100."""
    wanted = stock_trainer.row(number)["labels"].tolist()
    return bool(labels.tolist() == wanted + [IGNORED] * (len(labels) - len(wanted)))


def given_inputs(batch: list[int], whole: int) -> list[list[int]]:
    """The inputs of a batch's rows: padded by the collator to the widest row, and by -100 to the widest batch."""
    width = max(LENGTHS[number] for number in batch)
    rows = [stock_trainer.row(number)["input_ids"].tolist() for number in batch]
    return [[*ids, *[tiny.PADDING] * (width - len(ids)), *[IGNORED] * (whole - width)] for ids in rows]


@call(GROUP, phase=Phase.INFER, requires=("include_for_metrics",))
def trainer_metric_inputs(ctx: Context) -> Iterator[Check]:
    """include_for_metrics gives compute_metrics the inputs, padded by -100, and the loss of each row's batch."""
    for named in (["inputs"], ["loss"], ["inputs", "loss"]):
        seen: list[Any] = []
        made = trainer(ctx, include_for_metrics=named)
        made.compute_metrics = lambda found, seen=seen: seen.append(found) or {}
        made.evaluate(stock_trainer.rows(ROWS))
        found, words = seen[0], "+".join(named)
        yield equal(f"inputs given, {words}", int(found.inputs is not None), int("inputs" in named))
        yield equal(f"losses given, {words}", int(found.losses is not None), int("loss" in named))
        if "inputs" in named:
            rows = [[each for each in row if each not in (IGNORED, tiny.PADDING)] for row in found.inputs.tolist()]
            wanted = [stock_trainer.row(n)["input_ids"].tolist() for n in range(ROWS)]
            yield equal(
                f"rows of inputs that differ, {words}", sum(a != b for a, b in zip(rows, wanted, strict=True)), 0
            )
            every = [row for batch in batches() for row in given_inputs(batch, max(LENGTHS[:ROWS]))]
            yield equal(f"inputs and what is behind them, {words}", str(found.inputs.tolist()), str(every))
        if "loss" in named:
            losses = batch_losses(ctx)
            each = [loss for loss, batch in zip(losses, batches(), strict=True) for _ in batch]
            yield at_most(f"losses off, {words}", stock_trainer.worst(found.losses.tolist()[:ROWS], each), SAME)


@call(GROUP, phase=Phase.INFER, ranks=2, requires=("include_for_metrics",))
def trainer_metric_inputs_two_ranks(ctx: Context) -> Iterator[Check]:
    """On two ranks, inputs for compute_metrics have what their batch has, and -100 behind it, whichever rank is wider.

    The rows of complete batches alone: the last batch is filled up.
    """
    seen: list[Any] = []

    def compute(found: Any) -> dict[str, float]:
        seen.append(found)
        return {}

    made = trainer(ctx, include_for_metrics=["inputs"])
    made.compute_metrics = compute
    made.evaluate(stock_trainer.rows(ROWS))
    found = [row.tolist() for row in seen[0].inputs]
    whole = len(found[0])
    yield at_least("tokens of the widest row", whole, max(LENGTHS[:ROWS]))
    for batch in batches():
        if len(batch) < BATCH:
            continue
        for number, wanted in zip(batch, given_inputs(batch, whole), strict=True):
            yield equal(f"inputs of row {number}", str(found[number]), str(wanted))


@call(GROUP, phase=Phase.INFER, requires=("batch_eval_metrics",))
def trainer_batch_metrics(ctx: Context) -> Iterator[Check]:
    """With batch_eval_metrics, compute_metrics gets each batch by itself, and compute_result with the last alone.

    https://huggingface.co/docs/transformers/main_classes/trainer#transformers.TrainingArguments.batch_eval_metrics
    """
    seen: list[tuple[list[int], bool]] = []

    def compute(found: Any, *, compute_result: bool) -> dict[str, float]:
        seen.append(([len(row[row != IGNORED]) for row in found.label_ids], compute_result))
        return {"rows": float(sum(len(sizes) for sizes, _ in seen))}

    made = trainer(ctx, batch_eval_metrics=True)
    made.compute_metrics = compute
    metrics = made.evaluate(stock_trainer.rows(ROWS))
    wanted = [([stock_trainer.learned(n) for n in batch], batch[-1] == ROWS - 1) for batch in batches()]
    yield equal("learned labels of each batch and whether it is the last", str(seen), str(wanted))
    yield equal("rows counted", metrics["eval_rows"], float(ROWS))
    yield at_most("loss off", abs(metrics["eval_loss"] / mean_over_rows(batch_losses(ctx)) - 1), SAME)


@call(GROUP, phase=Phase.INFER)
def trainer_label_names(ctx: Context) -> Iterator[Check]:
    """label_names lists the inputs that become label_ids, in this order; prediction_loss_only returns neither.

    preprocess_logits_for_metrics replaces the logits before they are collected.
    """
    cases = {"labels": ["labels"], "two": ["attention_mask", "labels"]}
    for name, listed in cases.items():
        found = trainer(ctx, label_names=listed).predict(stock_trainer.rows(ROWS))
        parts = found.label_ids if len(listed) > 1 else (found.label_ids,)
        yield equal(f"labels that differ, {name}", sum(not same(row, n) for n, row in enumerate(parts[-1])), 0)
        if len(listed) > 1:
            yield equal(
                "real tokens of each row", str([int((row == 1).sum()) for row in parts[0]]), str([*LENGTHS[:ROWS]])
            )
    only = trainer(ctx, prediction_loss_only=True)
    found = only.predict(stock_trainer.rows(ROWS))
    yield equal(
        "predictions and labels of prediction_loss_only", str((found.predictions, found.label_ids)), "(None, None)"
    )
    yield at_most("loss of prediction_loss_only, off", abs(found.metrics["test_loss"] / expected_loss(ctx) - 1), SAME)
    made = trainer(ctx)
    made.preprocess_logits_for_metrics = lambda logits, _labels: logits.argmax(-1)
    found = made.predict(stock_trainer.rows(ROWS))
    tops = [each.argmax(-1).tolist() for each in alone(ctx)]
    rows = [row[: len(top)].tolist() for row, top in zip(found.predictions, tops, strict=True)]
    yield equal("rows of replaced logits that differ", sum(a != b for a, b in zip(rows, tops, strict=True)), 0)


def expected_loss(ctx: Context) -> float:
    return mean_over_rows(batch_losses(ctx))


@call(GROUP, phase=Phase.INFER)
def trainer_several_eval_sets(ctx: Context) -> Iterator[Check]:
    """A dictionary of data sets is evaluated one by one: eval_NAME_loss of each, and the best model by one of them."""
    sets = {"short": [1, 3, 5], "long": [0, 7]}
    made = trainer(
        ctx,
        8,
        num_train_epochs=1,
        eval_steps=1,
        evaluated=1,
        save_strategy="steps",
        save_steps=1,
        load_best_model_at_end=True,
        metric_for_best_model="eval_long_loss",
        greater_is_better=True,  # the first step's
        **stock_trainer.evaluation("steps"),
    )
    made.eval_dataset = {name: [stock_trainer.row(n) for n in numbers] for name, numbers in sets.items()}
    start = made.evaluate()
    reference = Reference(ctx)
    for name, numbers in sets.items():
        pairs = [numbers[begin : begin + BATCH] for begin in range(0, len(numbers), BATCH)]
        wanted = sum(float(reference.mean(pair).detach()) * len(pair) for pair in pairs) / len(numbers)
        yield at_most(f"loss off, {name}", abs(start[f"eval_{name}_loss"] / wanted - 1), SAME)
    made.train()
    found = [entry["eval_long_loss"] for entry in made.state.log_history if "eval_long_loss" in entry]
    yield equal("evaluations", len(found), 4)
    best = found.index(max(found)) + 1
    yield equal("best step", str(made.state.best_model_checkpoint).rpartition("-")[2], str(best))
    again = made.evaluate()["eval_long_loss"]
    yield at_most("loss of the best model, off", abs(again / max(found) - 1), SAME)
    yield at_least("distance of the other losses from the best", (max(found) - sorted(found)[-2]) / max(found), 1e-3)


@call(GROUP, phase=Phase.INFER)
def trainer_filtered_eval_loss(ctx: Context) -> Iterator[Check]:
    """With logging_nan_inf_filter, eval_loss leaves out batches without a learned token; without, it is NaN.

    "Whether to filter nan and inf losses for logging."
    """
    import math

    def collate(features: list[dict[str, Any]]) -> dict[str, Any]:
        batch = stock_trainer.padded(features)
        if 2 in stock_trainer.numbers(batch["input_ids"]):  # noqa: PLR2004 - a row of the second batch
            batch["labels"] = batch["labels"].clone().fill_(IGNORED)
        return batch

    losses = batch_losses(ctx, 6)
    found = {}
    for chosen in (True, False):
        made = trainer(ctx, logging_nan_inf_filter=chosen)
        made.data_collator = collate
        made.compute_loss_func = lambda outputs, labels, **_: mean_loss(outputs, labels)
        found[chosen] = made.evaluate(stock_trainer.rows(6))["eval_loss"]
    yield at_most("loss off, filtered", abs(found[True] / ((losses[0] + losses[2]) / 2) - 1), SAME)
    yield equal("loss, not filtered, is NaN", int(math.isnan(found[False])), 1)


def mean_loss(outputs: Any, labels: Any) -> Any:
    """The mean cross entropy over learned tokens, which is NaN without any."""
    import torch

    return torch.nn.functional.cross_entropy(outputs["logits"][:, :-1].flatten(0, 1), labels[:, 1:].flatten())
