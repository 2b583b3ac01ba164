"""Optimisers by their settings: arguments, 16-bit weights, another default dtype, and a schedule by a metric."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.trainers import optimisers, stock_trainer
from cases.model import tiny
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cases.apply.context import Context

    State = dict[str, Any]
    Formula = Callable[[Any, Any, State, int, float], Any]  # weight, gradient, state, step, decay; all float64

GROUP = "Trainer: optimisers"
RATE, DECAY, STEPS = 0.01, 0.3, 4
FEW = (  # parameters whose weights are compared: with decay and without, of one and two dimensions
    "model.layers.0.self_attn.q_proj.weight",
    "model.layers.1.input_layernorm.weight",
)
BOUNDS = 2.0**-8  # half of the distance between neighbours in bfloat16, relative to the smaller power of two
MANY = 270  # steps: beyond 256, bfloat16 does not hold every whole number
DEFAULTS = ("AdamW", "NAdam", "RAdam", "Adamax", "Adagrad")  # whose step depends on its number


def sgd(
    weight: Any, gradient: Any, state: State, _step: int, decay: float, damping: float = 0.0, *, ahead: bool = False
) -> Any:
    """https://docs.pytorch.org/docs/stable/generated/torch.optim.SGD.html, with momentum 0.9."""
    decayed = gradient + decay * weight
    first = 0.9 * state["first"] + (1 - damping) * decayed if state else decayed
    state["first"] = first
    return weight - RATE * (decayed + 0.9 * first if ahead else first)


def damped(weight: Any, gradient: Any, state: State, step: int, decay: float) -> Any:
    return sgd(weight, gradient, state, step, decay, 0.5)


def nesterov(weight: Any, gradient: Any, state: State, step: int, decay: float) -> Any:
    return sgd(weight, gradient, state, step, decay, ahead=True)


def adagrad(weight: Any, gradient: Any, state: State, step: int, decay: float) -> Any:
    """https://docs.pytorch.org/docs/stable/generated/torch.optim.Adagrad.html, with lr_decay 0.5 and eps 1e-3."""
    decayed = gradient + decay * weight
    state["sum"] = state.get("sum", 0.0) + decayed**2
    return weight - RATE / (1 + (step - 1) * 0.5) * decayed / (state["sum"].sqrt() + 1e-3)


def rmsprop(weight: Any, gradient: Any, state: State, _step: int, decay: float, *, centred: bool = False) -> Any:
    """https://docs.pytorch.org/docs/stable/generated/torch.optim.RMSprop.html; alpha 0.8, eps 1e-3, momentum 0.9."""
    decayed = gradient + decay * weight
    state["square"] = 0.8 * state.get("square", 0.0) + 0.2 * decayed**2
    state["mean"] = 0.8 * state.get("mean", 0.0) + 0.2 * decayed
    size = (state["square"] - state["mean"] ** 2 if centred else state["square"]).sqrt() + 1e-3
    state["first"] = 0.9 * state.get("first", 0.0) + decayed / size
    return weight - RATE * state["first"]


def centred_rmsprop(weight: Any, gradient: Any, state: State, step: int, decay: float) -> Any:
    return rmsprop(weight, gradient, state, step, decay, centred=True)


def lion(weight: Any, gradient: Any, state: State, _step: int, decay: float) -> Any:
    """https://arxiv.org/abs/2302.06675, algorithm 2, with the Trainer's adam_beta1=0.8 and adam_beta2=0.95."""
    direction = (0.8 * state.get("first", 0.0) + 0.2 * gradient).sign()
    state["first"] = 0.95 * state.get("first", 0.0) + 0.05 * gradient
    return weight * (1 - RATE * decay) - RATE * direction


SETTINGS: dict[str, tuple[dict[str, Any], Formula]] = {
    "sgd, momentum": ({"optim": "sgd", "optim_args": "momentum=0.9"}, sgd),
    "sgd, dampening": ({"optim": "sgd", "optim_args": "momentum=0.9, dampening=0.5"}, damped),
    "sgd, nesterov": ({"optim": "sgd", "optim_args": "momentum=0.9,nesterov=True"}, nesterov),
    "adagrad": ({"optim": "adagrad", "optim_args": "lr_decay=0.5,eps=0.001"}, adagrad),
    "rmsprop": ({"optim": "rmsprop", "optim_args": "alpha=0.8,eps=0.001,momentum=0.9"}, rmsprop),
    "rmsprop, centered": (
        {"optim": "rmsprop", "optim_args": "alpha=0.8,eps=0.001,momentum=0.9,centered=True"},
        centred_rmsprop,
    ),
}
BITS: dict[str, tuple[dict[str, Any], Formula]] = {
    "lion_32bit": ({"optim": "lion_32bit", "adam_beta1": 0.8, "adam_beta2": 0.95}, lion),
}


def gradient(name: str, step: int, shape: Any) -> Any:
    """A gradient; the factor makes a sum of two steps zero nowhere, as its sign would be rounding."""
    return tiny.values(f"{name} {step}", shape) * (1 + step**0.5 / 10)


def by_formula(start: Any, name: str, formula: Formula) -> Any:
    """A weight after all steps, float64."""
    weight = start.double()
    state: State = {}
    decay = DECAY if optimisers.decays(name) else 0.0
    for step in range(1, STEPS + 1):
        weight = formula(weight, gradient(name, step, start.shape).double(), state, step, decay)
    return weight


def stepped(optimiser: Any, chosen: dict[str, Any], steps: int = STEPS) -> None:
    """Step some parameters along gradients that their names determine."""
    for step in range(1, steps + 1):
        for name, parameter in chosen.items():
            parameter.grad = gradient(name, step, parameter.shape).to(parameter.dtype)
        optimiser.step()


def by_the_trainer(ctx: Context, settings: dict[str, tuple[dict[str, Any], Formula]]) -> Iterator[Check]:
    """Step a few parameters by the optimiser that the Trainer creates from its arguments."""
    for kind, (more, formula) in settings.items():
        trainer = stock_trainer.trainer(ctx, 1, **{"learning_rate": RATE, "weight_decay": DECAY, **more})
        chosen = {name: p for name, p in trainer.model.named_parameters() if name in FEW}
        starts = {name: p.detach().clone() for name, p in chosen.items()}
        stepped(trainer.create_optimizer(), chosen)
        wanted = {name: by_formula(start, name, formula) for name, start in starts.items()}
        off = max(
            float((chosen[name].detach().double() - wanted[name]).norm() / (wanted[name] - starts[name]).norm())
            for name in FEW
        )
        yield at_most(f"steps off, {kind}", off, 1e-4)


@call(GROUP, phase=Phase.OPTIMIZER)
def trainer_optimiser_arguments(ctx: Context) -> Iterator[Check]:
    """With optim_args, optim names the torch optimiser with these arguments, at the Trainer's weight decay."""
    yield from by_the_trainer(ctx, SETTINGS)


@call(GROUP, phase=Phase.OPTIMIZER, requires=("adamw_8bit_step",))
def trainer_lion(ctx: Context) -> Iterator[Check]:
    """optim="lion_32bit" is Lion with adam_beta1, adam_beta2 and weight_decay."""
    yield from by_the_trainer(ctx, BITS)


@call(GROUP, phase=Phase.OPTIMIZER, requires=("adamw_8bit_step",))
def trainer_rmsprop_arguments(ctx: Context) -> Iterator[Check]:
    """optim="rmsprop_bnb_32bit" takes alpha and eps from optim_args, as optim="rmsprop" does."""

    def formula(weight: Any, gradient: Any, state: State, _step: int, decay: float) -> Any:
        decayed = gradient + decay * weight
        state["square"] = 0.8 * state.get("square", 0.0) + 0.2 * decayed**2
        return weight - RATE * decayed / (state["square"].sqrt() + 1e-3)

    given = {"optim": "rmsprop_bnb_32bit", "optim_args": "alpha=0.8,eps=0.001"}
    yield from by_the_trainer(ctx, {"rmsprop_bnb_32bit": (given, formula)})


@call(GROUP, phase=Phase.OPTIMIZER)
def trainer_optimiser_class(ctx: Context) -> Iterator[Check]:
    """optimizer_cls_and_kwargs selects any class, with the Trainer's groups: weights decay, biases and norms do not.

    Here AdamW with AMSGrad, of https://arxiv.org/abs/1904.09237, algorithm 2: the largest second moment so far divides.
    """
    import torch
    from transformers import Trainer

    def amsgrad(weight: Any, gradient: Any, state: State, step: int, decay: float) -> Any:
        state["first"] = 0.9 * state.get("first", 0.0) + 0.1 * gradient
        state["second"] = 0.5 * state.get("second", 0.0) + 0.5 * gradient**2
        state["largest"] = torch.maximum(state.get("largest", torch.zeros_like(weight)), state["second"])
        size = (state["largest"] / (1 - 0.5**step)).sqrt() + 1e-3
        return weight * (1 - RATE * decay) - RATE * state["first"] / (1 - 0.9**step) / size

    chosen_kind = {"lr": RATE, "betas": (0.9, 0.5), "eps": 1e-3, "amsgrad": True}
    trainer = Trainer(
        model=stock_trainer.model(ctx),
        args=stock_trainer.arguments(ctx, weight_decay=DECAY),
        optimizer_cls_and_kwargs=(torch.optim.AdamW, chosen_kind),
    )
    chosen = {name: p for name, p in trainer.model.named_parameters() if name in FEW}
    starts = {name: p.detach().clone() for name, p in chosen.items()}
    stepped(trainer.create_optimizer(), chosen)
    for name, start in starts.items():
        wanted = by_formula(start, name, amsgrad)
        off = (chosen[name].detach().double() - wanted).norm() / (wanted - start).norm()
        yield at_most("steps off", float(off), 1e-4)


@call(GROUP, phase=Phase.OPTIMIZER)
def trainer_adafactor_bfloat16(ctx: Context) -> Iterator[Check]:
    """optim="adafactor" steps bfloat16 weights in float32 and rounds once: no further than half to the next number.

    Its moments are float32, by https://arxiv.org/abs/1804.04235, algorithms 4 and 5.
    """
    import torch

    model = stock_trainer.model(ctx).to(torch.bfloat16)
    trainer = stock_trainer.trainer(ctx, 1, of=model, optim="adafactor", learning_rate=RATE, weight_decay=DECAY)
    optimiser = trainer.create_optimizer()
    chosen = {name: p for name, p in model.named_parameters() if name in FEW}
    update = optimisers.split(optimisers.adafactor)
    worst = 0.0
    for step in range(1, STEPS + 1):
        exact = {name: p.detach().double().clone() for name, p in chosen.items()}
        for name, parameter in chosen.items():
            parameter.grad = gradient(name, step, parameter.shape).to(torch.bfloat16)
            exact[name].grad = parameter.grad.double()
        update(exact, RATE)
        optimiser.step()
        for name, parameter in chosen.items():
            below = 2.0 ** (torch.frexp(exact[name])[1] - 1).double()  # the power of two below
            worst = max(worst, float(((parameter.detach().double() - exact[name]).abs() / below).max()))
    yield at_most("distance in roundings", worst / BOUNDS, 1.01)
    kinds = {
        str(each.dtype)
        for state in optimiser.state.values()
        for each in state.values()
        if hasattr(each, "dim") and each.dim()
    }
    yield equal("dtypes of moments", str(kinds), "{'torch.float32'}")


def in_default(kind: Any, name: str, **more: Any) -> tuple[Any, Any]:
    """Weights and the count of steps of a torch optimiser after many steps under a default dtype."""
    import torch

    weight = torch.nn.Parameter(tiny.values("weight", (5, 3)))
    gradients = [tiny.values(f"gradient {number}", (5, 3)) for number in range(7)]
    before = torch.get_default_dtype()
    torch.set_default_dtype(kind)
    try:
        optimiser = getattr(torch.optim, name)([weight], **more)
        for step in range(MANY):
            weight.grad = gradients[step % 7]
            optimiser.step()
    finally:
        torch.set_default_dtype(before)
    return weight.detach(), optimiser.state[weight]["step"]


@call(GROUP, phase=Phase.OPTIMIZER)
def optimiser_default_dtype(_ctx: Context) -> Iterator[Check]:
    """Optimisers of torch step float32 weights alike under a default dtype of bfloat16, also beyond 256 steps.

    The count of steps corrects moments or the rate; in bfloat16, 256 + 1 is 256.
    """
    settings: dict[str, tuple[str, dict[str, Any]]] = {name: (name, {}) for name in DEFAULTS}
    settings |= {f"AdamW, {name}": ("AdamW", {name: True}) for name in ("foreach", "amsgrad")}
    for shown, (name, more) in settings.items():
        yield from alike(shown, name, **more)


def alike(shown: str, name: str, **more: Any) -> Iterator[Check]:
    import torch

    found, steps = in_default(torch.bfloat16, name, lr=0.01, **more)
    wanted, _ = in_default(torch.float32, name, lr=0.01, **more)
    yield equal(f"steps counted, {shown}", float(steps), float(MANY))
    yield equal(f"weights that differ, {shown}", int((found != wanted).sum()), 0)


@call(GROUP, phase=Phase.OPTIMIZER)
def optimiser_default_dtype_asgd(_ctx: Context) -> Iterator[Check]:
    """ASGD steps float32 weights alike under a default dtype of bfloat16: its rate is not rounded to it.

    https://docs.pytorch.org/docs/stable/generated/torch.optim.ASGD.html; the rate of each step is a part of its state.
    """
    yield from alike("ASGD", "ASGD")


def by_plateaus(scores: Sequence[float], patience: int, factor: float, least: float) -> list[float]:
    """The rates of steps that an evaluation follows each.

    After ``patience`` evaluations in a row that are no better, the next such one multiplies the rate by ``factor``:
    https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.ReduceLROnPlateau.html.
    """
    rates, best, bad = [optimisers.RATE], float("inf"), 0
    for score in scores[:-1]:
        bad = 0 if score < best * (1 - 1e-4) else bad + 1
        best = min(best, score)
        if bad > patience:
            rates.append(max(least, rates[-1] * factor))
            bad = 0
        else:
            rates.append(rates[-1])
    return rates


@call(GROUP, phase=Phase.OPTIMIZER)
def schedule_plateau(ctx: Context) -> Iterator[Check]:
    """lr_scheduler_type="reduce_lr_on_plateau" cuts the rate when metric_for_best_model does not improve, also resumed.

    The metric of an evaluation after each step is given; patience and best value are part of a checkpoint.
    """
    scores = (5.0, 4.0, 4.5, 4.2, 4.1, 3.0, 3.5, 3.4, 3.2, 3.1, 3.05, 3.01)
    patience, factor, least, stop = 1, 0.5, 0.2 * optimisers.RATE, 3
    more: dict[str, Any] = {
        "lr_scheduler_type": "reduce_lr_on_plateau",
        "lr_scheduler_kwargs": {"patience": patience, "factor": factor, "min_lr": least},
        "learning_rate": optimisers.RATE,
        "metric_for_best_model": "score",
        "greater_is_better": False,
        "eval_steps": 1,
        "evaluated": 1,
        "save_strategy": "steps",
        "save_steps": stop,
        "save_only_model": False,
        **stock_trainer.evaluation("steps"),
    }
    expected = by_plateaus(scores, patience, factor, least)

    def rates(begin: int, checkpoint: str | None) -> list[float]:
        trainer = stock_trainer.trainer(ctx, 11, **more)
        left = iter(scores[begin:])
        trainer.compute_metrics = lambda _: {"score": next(left)}
        record = stock_trainer.observed(trainer)
        trainer.train(resume_from_checkpoint=checkpoint)
        return [each[0] for each in record.rates]

    yield at_most("learning rate used, off", stock_trainer.worst(rates(0, None), expected), 1e-9)
    resumed = rates(stop, str(ctx.kept / "output" / f"checkpoint-{stop}"))
    yield at_most("learning rate used after resuming, off", stock_trainer.worst(resumed, expected[stop:]), 1e-9)
