"""The Trainer's evaluation: the loss over incomplete batches, the rows of metrics, and the best checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call, ingredients
from cases.behaviour.trainers import stock_trainer
from cases.behaviour.trainers.stock_trainer import LENGTHS, Reference
from cases.model import tiny
from cases.model.data import IGNORED
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "Trainer: evaluation"
EQUAL = (0, 11, 22, 33, 44)  # rows of the same length, with as many learned tokens
SAME = 1e-5


def loss(reference: Reference, numbers: list[int]) -> float:
    import torch

    with torch.no_grad():
        return float(reference.mean(numbers))


def evaluated(ctx: Context, numbers: tuple[int, ...], **more: Any) -> Any:
    trainer = stock_trainer.trainer(ctx, 1, per_device_eval_batch_size=2, **more)
    return trainer, trainer.evaluate([stock_trainer.row(number) for number in numbers])


@call(GROUP, phase=Phase.INFER)
def trainer_eval_loss(ctx: Context) -> Iterator[Check]:
    """eval_loss counts each row once, although the last batch is incomplete.

    The rows have as many learned tokens, so the means over rows and over tokens are equal.
    """
    _, found = evaluated(ctx, EQUAL)
    yield at_most("loss off", abs(found["eval_loss"] / loss(Reference(ctx), list(EQUAL)) - 1), SAME)


@call(GROUP, phase=Phase.INFER, ranks=2)
def trainer_eval_loss_two_ranks(ctx: Context) -> Iterator[Check]:
    """On two ranks, eval_loss counts each row once, although the last batch is filled up with first rows."""
    _, found = evaluated(ctx, EQUAL)
    yield at_most("loss off", abs(found["eval_loss"] / loss(Reference(ctx), list(EQUAL)) - 1), SAME)


@call(GROUP, phase=Phase.INFER, ranks=2)
def trainer_eval_loss_of_ranks(ctx: Context) -> Iterator[Check]:
    """On two ranks, eval_loss averages over the rows of both, with complete batches."""
    _, found = evaluated(ctx, EQUAL[:4])
    yield at_most("loss off", abs(found["eval_loss"] / loss(Reference(ctx), list(EQUAL[:4])) - 1), SAME)


@call(GROUP, phase=Phase.INFER)
def trainer_eval_loss_uneven(ctx: Context) -> Iterator[Check]:
    """eval_loss of rows of different lengths is the mean over rows of their batch's mean over tokens."""
    _, found = evaluated(ctx, (0, 1, 2, 3, 4))
    reference = Reference(ctx)
    batches = [loss(reference, batch) for batch in ([0, 1], [2, 3], [4])]
    yield at_most("loss off", abs(found["eval_loss"] / (sum(batches[:2]) * 2 / 5 + batches[2] / 5) - 1), SAME)


def first_label_kept(features: list[dict[str, Any]]) -> dict[str, Any]:
    """A batch whose labels begin with the row's number; the loss does not use them."""
    found = stock_trainer.padded(features)
    found["labels"][:, 0] = found["input_ids"][:, 0]
    return found


def fillers(logits: Any) -> set[int]:
    """What is behind the longest row of each complete batch of two rows."""
    batches = [(place, max(LENGTHS[place : place + 2])) for place in range(0, len(logits) - 1, 2)]
    return {int(each) for place, width in batches for each in logits[place : place + 2, width:].flatten().unique()}


def metrics_of(ctx: Context, count: int, **more: Any) -> Iterator[Check]:
    """Evaluate with metrics: each row once, in order, with its own logits and labels, and -100 behind them."""
    import torch

    seen: list[Any] = []

    def compute(found: Any) -> dict[str, float]:
        seen.append(found)
        return {"rows": float(len(found.label_ids)), "tokens": float((found.label_ids != IGNORED).sum())}

    trainer = stock_trainer.trainer(ctx, 1, per_device_eval_batch_size=2, **more)
    trainer.compute_metrics, trainer.data_collator = compute, first_label_kept
    metrics = trainer.evaluate(stock_trainer.rows(count))
    predicted = trainer.predict(stock_trainer.rows(count))
    labels = first_label_kept(stock_trainer.rows(count))["labels"]
    yield equal("rows counted", metrics["eval_rows"], float(count))
    yield equal("labels counted", metrics["eval_tokens"], float((labels != IGNORED).sum()))
    with torch.no_grad():
        alone = [
            trainer.model.eval()(stock_trainer.row(number)["input_ids"][None]).logits[0] for number in range(count)
        ]
    for name, found in (("evaluate", seen[0]), ("predict", predicted)):
        logits = torch.as_tensor(found.predictions)
        off = [float((logits[n][: LENGTHS[n]] - alone[n]).abs().max()) for n in range(min(count, len(logits)))]
        yield equal(f"rows of {name}", str(stock_trainer.numbers(found.label_ids)), str(list(range(count))))
        yield equal(f"labels of {name}", str(found.label_ids.tolist()), str(labels.tolist()))
        yield equal(f"logits of {name} behind the rows of a batch", str(fillers(logits)), str({IGNORED}))
        yield at_most(f"logits of {name}, off", max(off), SAME * float(max(each.abs().max() for each in alone)))


@call(GROUP, phase=Phase.INFER)
def trainer_metrics(ctx: Context) -> Iterator[Check]:
    """compute_metrics and predict get each row once, padded to the longest."""
    yield from metrics_of(ctx, 9)


@call(GROUP, phase=Phase.INFER, ranks=2)
def trainer_metrics_two_ranks(ctx: Context) -> Iterator[Check]:
    """On two ranks, compute_metrics and predict get each row once and in order, although batches are filled up."""
    yield from metrics_of(ctx, 9)


@call(GROUP, phase=Phase.INFER, ranks=2)
def trainer_metrics_accumulated(ctx: Context) -> Iterator[Check]:
    """eval_accumulation_steps moves logits to the CPU in parts, and changes no row."""
    yield from metrics_of(ctx, 9, eval_accumulation_steps=2)


SCORES = (0.3, 0.9, 0.5, 0.7)  # of the evaluations: the best is the second if greater is better, else the first


def best_restored(ctx: Context, adapted: Any, best: int, *, greater_is_better: bool) -> Iterator[Check]:
    """Train four steps whose evaluations get these scores, and compare the weights at the end with the best ones."""
    from transformers import TrainerCallback

    taken: list[dict[str, Any]] = []
    scores = iter(SCORES)

    class Keeping(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *_: Any, **__: Any) -> None:
            taken.append({name: p.detach().clone() for name, p in tiny.named(trainer.model)})

    trainer = stock_trainer.trainer(
        ctx,
        8,
        of=adapted,
        num_train_epochs=1,
        save_strategy="steps",
        save_steps=1,
        eval_steps=1,
        save_total_limit=1,
        load_best_model_at_end=True,
        metric_for_best_model="score",
        greater_is_better=greater_is_better,
        evaluated=1,
        **stock_trainer.evaluation("steps"),
    )
    trainer.compute_metrics = lambda _: {"score": next(scores)}
    trainer.add_callback(Keeping())
    trainer.train()
    found = dict(tiny.named(trainer.model))
    differ = [name for name, wanted in taken[best - 1].items() if not found[name].equal(wanted)]
    moved = [name for name, wanted in taken[-1].items() if not found[name].equal(wanted)]
    yield equal("best step", str(trainer.state.best_model_checkpoint).rpartition("-")[2], str(best))
    yield equal("weights that are not the best step's", len(differ), 0)
    yield equal("weights that differ from the last step's", int(bool(moved)), 1)
    kept = sorted(each.name for each in (ctx.kept / "output").glob("checkpoint-*"))
    yield equal("best checkpoint kept", int(f"checkpoint-{best}" in kept), 1)
    yield at_most("checkpoints kept", len(kept), 2)


@call(GROUP, phase=Phase.LOAD)
def trainer_best_greater(ctx: Context) -> Iterator[Check]:
    """load_best_model_at_end restores the weights of the highest metric, and save_total_limit=1 keeps them."""
    yield from best_restored(ctx, None, 2, greater_is_better=True)


@call(GROUP, phase=Phase.LOAD)
def trainer_best_smaller(ctx: Context) -> Iterator[Check]:
    """With greater_is_better=False, load_best_model_at_end restores the weights of the lowest metric."""
    yield from best_restored(ctx, None, 1, greater_is_better=False)


@call(GROUP, phase=Phase.LOAD)
def trainer_best_adapter(ctx: Context) -> Iterator[Check]:
    """load_best_model_at_end restores the best step's adapter into a PEFT model."""
    from peft import get_peft_model

    adapted = get_peft_model(stock_trainer.model(ctx), ingredients.lora())
    yield from best_restored(ctx, ingredients.fill_adapter(adapted), 2, greater_is_better=True)
