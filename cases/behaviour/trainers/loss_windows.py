"""What the Trainer logs within windows of several steps, with evaluations between, after resuming, and as totals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.trainers import accumulating, optimisers, stock_trainer
from cases.behaviour.trainers.stock_trainer import LENGTHS, Reference
from cases.behaviour.trainers.trainer_logs import largest_error, logged
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cases.apply.context import Context

GROUP = "Trainer: logs"
ROUNDED = 6e-5  # some versions log losses with four decimals
ROWS, EVERY = 11, 3  # an epoch has six steps, the last of one row
EPOCHS = 2


def expected(ctx: Context, record: stock_trainer.Record) -> stock_trainer.Expected:
    """The losses and norms of a record of descent, by the reference."""
    steps = stock_trainer.together(ctx, record.steps)
    rates = [accumulating.RATE] * len(steps)
    return stock_trainer.repeated(Reference(ctx), steps, optimisers.sgd(0.0), rates)


def windows(values: Sequence[float], ends: Sequence[int], begin: int = 0) -> list[float]:
    """The mean of the values of the steps up to each end, from the end before."""
    found = []
    for end in ends:
        found.append(sum(values[begin:end]) / (end - begin))
        begin = end
    return found


def at_steps(trainer: Any, ends: Sequence[int], name: str) -> list[float]:
    """What a trainer logged with its losses after these steps."""
    logs = {entry["step"]: entry for entry in trainer.state.log_history if "loss" in entry}
    return [float(logs.get(step, {}).get(name, float("nan"))) for step in ends]


@call(GROUP, phase=Phase.FORWARD)
def trainer_loss_windows(ctx: Context) -> Iterator[Check]:
    """Each logged loss is the mean over the steps since the last log, whatever ended it or happened between.

    Logs end after step 1 (logging_first_step), each epoch, or by a share of all steps; evaluations and saved
    checkpoints between them change no number.
    """
    often = {
        **stock_trainer.evaluation("steps"),
        "eval_steps": 2,
        "evaluated": 3,
        "save_strategy": "steps",
        "save_steps": 4,
    }
    settings: dict[str, tuple[dict[str, Any], list[int]]] = {
        "logging_first_step": ({"logging_steps": EVERY, "logging_first_step": True}, [1, 3, 6, 9, 12]),
        "epochs": ({"logging_strategy": "epoch"}, [6, 12]),
        "a share": ({"logging_steps": 0.4}, [5, 10]),
        "interrupted": ({"logging_steps": EVERY, **often}, [3, 6, 9, 12]),
    }
    wanted: stock_trainer.Expected | None = None
    for name, (more, ends) in settings.items():
        trainer = stock_trainer.trainer(ctx, ROWS, max_grad_norm=1e9, **more)
        record = stock_trainer.observed(trainer)
        trainer.train()
        wanted = wanted or expected(ctx, record)  # all settings shuffle by the same seed
        steps = [entry["step"] for entry in trainer.state.log_history if "loss" in entry]
        yield equal(f"steps logged, {name}", str(steps), str(ends))
        losses = windows(wanted.losses, ends)
        yield at_most(f"logged loss, off, {name}", largest_error(at_steps(trainer, ends, "loss"), losses), ROUNDED)
        norms = [wanted.norms[end - 1] for end in ends]
        yield at_most(
            f"logged norm, off, {name}", stock_trainer.worst(at_steps(trainer, ends, "grad_norm"), norms), 1e-4
        )
        epochs = [end / 6 for end in ends]
        yield at_most(f"logged epoch, off, {name}", largest_error(at_steps(trainer, ends, "epoch"), epochs), 0.01)


@call(GROUP, phase=Phase.FORWARD)
def trainer_filtered_losses(ctx: Context) -> Iterator[Check]:
    """With logging_nan_inf_filter, a NaN step counts as the average of its window; without, the window's log is NaN.

    "the loss of every step that is `nan` or `inf` is filtered and the average loss of the current logging window is
    taken instead". Steps 2 and 6 of windows of three are NaN in the log alone: their gradients are as usual.
    """
    import math

    from transformers import Trainer

    lost = (2, 6)
    found = {}
    for chosen in (True, False):
        trainer = stock_trainer.trainer(
            ctx, ROWS, logging_steps=EVERY, logging_nan_inf_filter=chosen, num_train_epochs=1
        )
        record = stock_trainer.observed(trainer)

        def step(*given: Any, made: Any = trainer, taken: Any = record, **named: Any) -> Any:
            loss = Trainer.training_step(made, *given, **named)
            return loss * float("nan") if len(taken.steps) + 1 in lost else loss

        trainer.training_step = step
        trainer.train()
        found[chosen] = logged(trainer, "loss")
    losses = expected(ctx, record).losses
    first = (losses[0] + losses[2] + losses[0]) / EVERY
    second = (losses[3] + losses[4] + (losses[3] + losses[4]) / 2) / EVERY
    yield at_most("first loss logged, off", largest_error(found[True][:1], [first]), ROUNDED)
    yield at_most("second loss logged, off", largest_error(found[True][1:], [second]), ROUNDED)
    yield equal("windows that are NaN without the filter", sum(math.isnan(each) for each in found[False]), 2)


def tokens(steps: stock_trainer.Steps) -> int:
    """The input tokens of some steps, with padding."""
    batches = [[LENGTHS[number % len(LENGTHS)] for number in batch] for step in steps for batch in step]
    return sum(max(each) * len(each) for each in batches)


def operations(trainer: Any, steps: stock_trainer.Steps) -> float:
    """The floating-point operations of some steps: 6 for each token and each parameter but those of embeddings.

    https://arxiv.org/abs/2001.08361, section 2.1.
    """
    counted = {id(p): p.numel() for name, p in trainer.model.named_parameters() if "embed" not in name}
    return float(6 * tokens(steps) * sum(counted.values()))


class Totals:
    """The state's totals whenever a loss is logged."""

    def __init__(self, trainer: Any) -> None:
        from transformers import TrainerCallback

        self.operations: list[float] = []
        self.tokens: list[int] = []
        seen = self

        class TotalsObserver(TrainerCallback):  # type: ignore[misc]
            def on_log(self, _args: Any, state: Any, _control: Any, logs: Any = None, **_: Any) -> None:
                if "loss" in logs:
                    seen.operations.append(float(state.total_flos))
                    seen.tokens.append(int(state.num_input_tokens_seen))

        trainer.add_callback(TotalsObserver())


def totals_of(ctx: Context, **more: Any) -> Iterator[Check]:
    """Train in windows with checkpoints between, and compare the totals that a callback sees, and the result's."""
    trainer = stock_trainer.trainer(
        ctx,
        ROWS,
        logging_steps=EVERY,
        save_strategy="steps",
        save_steps=2,
        num_train_epochs=1,
        include_num_input_tokens_seen=True,
        **more,
    )
    record, seen = stock_trainer.observed(trainer), Totals(trainer)
    trainer.train()
    steps = stock_trainer.together(ctx, record.steps)
    ends = [*range(EVERY, len(steps) + 1, EVERY)]
    wanted = [operations(trainer, steps[:end]) for end in ends]
    yield equal("tokens seen in on_log", str(seen.tokens), str([tokens(steps[:end]) for end in ends]))
    yield at_most("operations seen in on_log, off", stock_trainer.worst(seen.operations, wanted), 1e-6)
    whole = operations(trainer, steps)
    logs = [entry["total_flos"] for entry in trainer.state.log_history if "total_flos" in entry]
    yield at_most("total_flos logged, off", stock_trainer.worst(logs[-1:], [whole]), 1e-6)
    yield at_most("total_flos of the state, off", abs(trainer.state.total_flos / whole - 1), 1e-6)


@call(GROUP, phase=Phase.FORWARD)
def trainer_operations(ctx: Context) -> Iterator[Check]:
    """total_flos and num_input_tokens_seen, as callbacks see them in on_log, cover all steps up to the log."""
    yield from totals_of(ctx)


@call(GROUP, phase=Phase.FORWARD, ranks=2)
def trainer_operations_two_ranks(ctx: Context) -> Iterator[Check]:
    """On two ranks with accumulation, total_flos and num_input_tokens_seen are the sums over both, in each log."""
    yield from totals_of(ctx, gradient_accumulation_steps=2, max_steps=7)


@call(GROUP, phase=Phase.RESUME)
def trainer_logs_after_resuming(ctx: Context) -> Iterator[Check]:
    """A resumed training logs what an uninterrupted one does: totals go on, and the first window has fewer steps.

    ``train_loss`` and the rates of the result cover the steps since the checkpoint. The log of the checkpoint is kept.
    """
    stop = 4
    more: dict[str, Any] = {
        "logging_steps": EVERY,
        "max_grad_norm": 1e9,
        "include_num_input_tokens_seen": True,
        "save_strategy": "steps",
        "save_steps": stop,
    }
    whole = stock_trainer.trainer(ctx, ROWS, **more)
    record, before = stock_trainer.observed(whole), Totals(whole)
    whole.train()
    wanted = expected(ctx, record)
    rest = stock_trainer.trainer(ctx, ROWS, **more)
    after = Totals(rest)
    result = rest.train(resume_from_checkpoint=str(ctx.kept / "output" / f"checkpoint-{stop}"))
    ends = [6, 9, 12]
    yield equal("steps logged", str([e["step"] for e in rest.state.log_history if "loss" in e]), str([3, *ends]))
    losses = windows(wanted.losses, ends, stop)
    yield at_most("logged loss, off", largest_error(at_steps(rest, ends, "loss"), losses), ROUNDED)
    for name in ("grad_norm", "epoch", "learning_rate", "num_input_tokens_seen"):
        yield equal(f"{name} logged", str(at_steps(rest, [3, *ends], name)), str(at_steps(whole, [3, *ends], name)))
    yield equal("tokens seen in on_log", str(after.tokens), str(before.tokens[1:]))
    yield at_most("operations seen in on_log, off", stock_trainer.worst(after.operations, before.operations[1:]), 1e-9)
    yield at_most("total_flos, off", abs(rest.state.total_flos / whole.state.total_flos - 1), 1e-9)
    mean = sum(wanted.losses[stop:]) / len(wanted.losses[stop:])
    yield at_most("train_loss, off", abs(result.training_loss / mean - 1), stock_trainer.SAME)


@call(GROUP, phase=Phase.FORWARD)
def trainer_speed(ctx: Context) -> Iterator[Check]:
    """train_samples_per_second over train_steps_per_second is the rows of a step, for epochs and for max_steps."""
    settings: dict[str, tuple[dict[str, Any], float]] = {
        "epochs": ({"gradient_accumulation_steps": 2}, EPOCHS * ROWS / 6),
        "max_steps": ({"max_steps": 4}, 2.0),
        "max_steps, accumulation": ({"max_steps": 3, "gradient_accumulation_steps": 2}, 4.0),
    }
    for name, (more, rows) in settings.items():
        found = stock_trainer.trainer(ctx, ROWS, **more).train().metrics
        ratio = found["train_samples_per_second"] / found["train_steps_per_second"]
        yield at_most(f"rows of a step, off, {name}", abs(ratio / rows - 1), 1e-3)  # three decimals of about 20
        yield at_most(
            f"epoch, off, {name}",
            abs(found["epoch"] - {"max_steps": 4 / 6, "max_steps, accumulation": 1.0}.get(name, EPOCHS)),
            0.01,
        )
