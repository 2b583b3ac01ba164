"""TRL's BEMACallback: the average of a training's weights whose bias is corrected (https://arxiv.org/abs/2508.00180).

https://huggingface.co/docs/trl/bema_for_reference_model and the documentation of the class state the formula.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.trainers import stock_trainer
from cases.model import tiny
from cases.space.verdict import Check, Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

    Weights = dict[str, Any]  # float64, by name

GROUP = "Trainer: steps"
STEPS = 6
RATE = 0.2  # a visible step
SAME = 1e-4  # of the distance from the first weights, which are kept in float32


@dataclass(frozen=True)
class Averaging:
    """Options of BEMACallback, under its names."""

    update_freq: int = 1
    ema_power: float = 0.5
    bias_power: float = 0.2
    lag: int = 10
    update_after: int = 0
    multiplier: float = 1.0
    min_ema_multiplier: float = 0.0


CHOSEN = (
    Averaging(),
    Averaging(ema_power=0.8, bias_power=0.4, lag=2, multiplier=1.5),
    Averaging(update_freq=2, update_after=2, lag=3),
    Averaging(min_ema_multiplier=0.6, bias_power=0.0),
)


def averaged(course: list[Weights], chosen: Averaging) -> Weights:
    """The weights after the last step; ``course`` has those before the first step and after each."""
    origin = mean = course[chosen.update_after]
    found = course[0]
    for step in range(chosen.update_after + chosen.update_freq, len(course), chosen.update_freq):
        age = chosen.lag + chosen.multiplier * step
        share = max(age**-chosen.ema_power, chosen.min_ema_multiplier)
        now = course[step]
        mean = {name: (1 - share) * mean[name] + share * now[name] for name in now}
        found = {name: mean[name] + age**-chosen.bias_power * (now[name] - origin[name]) for name in now}
    return found


def keeping(course: list[Weights]) -> Any:
    """A callback that keeps the weights before the first step and after each."""
    from transformers import TrainerCallback

    class CourseKeeping(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, *_: Any, model: Any, **__: Any) -> None:
            course.append({name: p.detach().double() for name, p in tiny.named(model)})

        def on_step_end(self, *_: Any, model: Any, **__: Any) -> None:
            self.on_train_begin(model=model)

    return CourseKeeping()


def moving(folder: Path) -> Any:
    """A callback that moves the average that the callback before it saved."""
    from transformers import TrainerCallback

    class AverageMoving(TrainerCallback):  # type: ignore[misc]
        def on_train_end(self, args: Any, *_: Any, **__: Any) -> None:
            (Path(args.output_dir) / "bema").rename(folder)

    return AverageMoving()


def distance(one: Weights, other: Weights) -> float:
    return math.sqrt(sum(float((one[name] - other[name]).square().sum()) for name in other))


@call(GROUP, phase=Phase.OPTIMIZER, requires=("bema",))
def bema_averages_weights(ctx: Context) -> Iterator[Check]:
    """BEMACallback saves the corrected average of the weights of each step, for all of its powers, ages and delays.

    The mean takes (lag + multiplier * step)^-ema_power of the weights; (lag + multiplier * step)^-bias_power of their
    way since ``update_after`` is added.
    """
    from transformers import AutoModelForCausalLM
    from trl import BEMACallback

    course: list[Weights] = []
    trainer = stock_trainer.trainer(ctx, 2 * STEPS, max_steps=STEPS, learning_rate=RATE)
    trainer.add_callback(keeping(course))
    folders = [ctx.kept / f"average-{place}" for place in range(len(CHOSEN))]
    for chosen, folder in zip(CHOSEN, folders, strict=True):
        trainer.add_callback(BEMACallback(**asdict(chosen)))
        trainer.add_callback(moving(folder))
    trainer.train()
    yield equal("steps", len(course), STEPS + 1)
    for chosen, folder in zip(CHOSEN, folders, strict=True):
        wanted = averaged(course, chosen)
        found = {name: p.detach().double() for name, p in tiny.named(AutoModelForCausalLM.from_pretrained(folder))}
        way = distance(course[0], wanted)
        yield at_least(f"way from the first weights, {chosen}", way, 0.01)
        yield at_most(f"average off, {chosen}", distance(found, wanted) / way, SAME)
        yield at_least(f"distance of the average from the last weights, {chosen}", distance(course[-1], wanted), 0.001)


@call(GROUP, phase=Phase.OPTIMIZER, requires=("bema",))
def bema_averages_trained_weights(ctx: Context) -> Iterator[Check]:
    """BEMACallback averages what is trained of a model that is frozen in part, and saves the rest as it is."""
    from transformers import AutoModelForCausalLM
    from trl import BEMACallback

    model = stock_trainer.model(ctx)
    for place, (_, parameter) in enumerate(tiny.named(model)):
        parameter.requires_grad_(place % 2 == 0)
    course: list[Weights] = []
    trainer = stock_trainer.trainer(ctx, 2 * STEPS, of=model, max_steps=STEPS, learning_rate=RATE)
    trainer.add_callback(keeping(course))
    folder, chosen = ctx.kept / "average", CHOSEN[1]
    trainer.add_callback(BEMACallback(**asdict(chosen)))
    trainer.add_callback(moving(folder))
    trainer.train()
    wanted = averaged(course, chosen)
    found = {name: p.detach().double() for name, p in tiny.named(AutoModelForCausalLM.from_pretrained(folder))}
    way = distance(course[0], wanted)
    yield at_least("way from the first weights", way, 0.01)
    yield at_most("average off", distance(found, wanted) / way, SAME)
    frozen = [name for name, p in tiny.named(model) if not p.requires_grad]
    moved = [name for name in frozen if not found[name].equal(course[0][name])]
    yield equal("frozen weights that moved", str(moved), "[]")
