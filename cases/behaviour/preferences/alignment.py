"""TRL's trainers as a user calls them in every version, a recording of their training, and its comparison."""

from __future__ import annotations

import importlib
import inspect
import os
from typing import TYPE_CHECKING, Any

from cases.api import ingredients, models
from cases.api.trainers import in_order
from cases.apply import front_ends
from cases.behaviour.preferences.policies import Course
from cases.checks import observers
from cases.model import adapter_start, tiny
from cases.reference import tolerance
from cases.space.options import Options
from cases.space.verdict import Check, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cases.apply.context import Context

RATE = 0.5  # a visible step: several per cent of a weight
SAME = 1e-5  # relative: the same arithmetic in float32, in another order
LOGGED = 5e-5  # some versions of the Trainer round the logged loss to four decimals, so that it is off by half a unit


def named(name: str) -> Any:
    """A class of TRL. Some versions moved it to an experimental module, and keep one that passes on its arguments.

    Raises:
        ImportError: this version has no such class.
    """
    import trl

    found = getattr(trl, name, None)
    if found is not None and "args" not in varied(found.__init__):
        return found
    kind = name.removesuffix("Trainer").removesuffix("Config").lower()
    return getattr(importlib.import_module(f"trl.experimental.{kind}"), name)


def varied(function: Any) -> set[str]:
    """The names of a function's ``*args`` and ``**kwargs``."""
    every = inspect.signature(function).parameters.values()
    return {each.name for each in every if each.kind is each.VAR_POSITIONAL}


def options_of(kind: str) -> set[str]:
    """The options of a trainer, of its configuration or, before trl 0.9, of its constructor."""
    return set(inspect.signature(constructor(kind)).parameters)


def constructor(kind: str) -> Any:
    try:
        return named(f"{kind}Config")
    except (ImportError, AttributeError):
        return named(f"{kind}Trainer").__init__


def source_mentions(kind: str, words: str) -> bool:
    """Return whether the code of a trainer contains these words."""
    return words in inspect.getsource(inspect.getmodule(named(f"{kind}Trainer")))  # type: ignore[arg-type]


def create(
    ctx: Context, kind: str, chosen: Mapping[str, Any], *, ordered: bool = True, tokenizer: Any = None, **more: Any
) -> Any:
    """Create a recording trainer; ``chosen`` are options of TRL and training arguments, ``more`` go to the trainer.

    ``ordered``: the trainer reads the rows in their order.
    """
    os.environ.update(front_ends.launched(ctx.place))
    base = named(f"{kind}Trainer")
    made = recording(in_order(base) if ordered else base)
    usual = {"bf16": False, "gradient_checkpointing": False, "learning_rate": RATE, "disable_tqdm": True}
    try:
        config = named(f"{kind}Config")
    except (ImportError, AttributeError):
        config, known = None, set(inspect.signature(base.__init__).parameters)
        more = {**more, **{name: value for name, value in chosen.items() if name in known}}
        chosen = {name: value for name, value in chosen.items() if name not in known}
    keyword, usual_tokenizer = next(iter(ingredients.tokenizer_argument(base).items()))
    more[keyword] = usual_tokenizer if tokenizer is None else tokenizer
    return made(args=ingredients.arguments(ctx, config, **{**usual, **chosen}), **more)


def recording(trainer: Any) -> Any:
    """A subclass that keeps the loss and the gradients of each micro-batch.

    ``log`` drops a start time that the trainer does not accept: the call dpo_trains shows which versions disagree.
    """
    accepted = len(inspect.signature(trainer.log).parameters) - 1

    class Recording(trainer):  # type: ignore[misc]
        def training_step(self, *arguments: Any, **named_arguments: Any) -> Any:
            loss = super().training_step(*arguments, **named_arguments)
            self.__dict__.setdefault("micro_losses", []).append(float(loss))
            self.__dict__.setdefault("micro_gradients", []).append(observers.gradients(self.model, Options()))
            return loss

        def log(self, *arguments: Any) -> None:
            super().log(*arguments[:accepted])

    Recording.__name__ = trainer.__name__
    return Recording


def lora(**more: Any) -> Any:
    return models.config(**more)


def fresh(ctx: Context) -> dict[str, Any]:
    """The arguments of a trainer for the tiny model that gets an adapter."""
    return {"model": ingredients.base(ctx), "peft_config": lora()}


def fill(trainer: Any) -> Any:
    """Give the adapter non-zero values, so that the policy differs from the reference."""
    adapter_start.start(trainer.model, Options())
    return trainer


def trained(trainer: Any) -> Course:
    """Train, and return what the trainer did: the losses of its steps, what it logged, gradients and weights."""
    trainer.train()
    number = trainer.args.gradient_accumulation_steps
    losses, gradients = trainer.micro_losses, trainer.micro_gradients
    return Course(
        losses=[of_all_ranks(sum(losses[begin : begin + number])) for begin in range(0, len(losses), number)],
        metrics=[entry for entry in trainer.state.log_history if "loss" in entry],
        gradients=gradients[number - 1 :: number],
        after=weights(trainer.model),
    )


def of_all_ranks(value: float) -> float:
    """The mean over the ranks."""
    import torch
    import torch.distributed as dist

    if not dist.is_initialized():
        return value
    number = torch.tensor(value, dtype=torch.float64)
    dist.all_reduce(number)
    return float(number.item()) / int(dist.get_world_size())


def weights(model: Any) -> dict[str, Any]:
    return {name: observers.whole(p).float() for name, p in tiny.named(model) if p.requires_grad}


def as_defined(found: Course, expected: Course, within: float = SAME) -> Iterator[Check]:
    """Compare a training with its definition."""
    yield equal("steps", len(found.losses), len(expected.losses))
    pairs = list(zip(found.losses, expected.losses, strict=False))
    yield at_most("loss off", tolerance.worst(off(a, b) for a, b in pairs), within)
    yield from as_logged(found, expected, within)
    both = zip(found.gradients, expected.gradients, strict=False)
    yield at_most("gradient off", tolerance.worst(tolerance.worst_tensor(a, b) for a, b in both), within)
    yield at_most("weights off", tolerance.worst_tensor(found.after, expected.after), within)


def as_logged(found: Course, expected: Course, within: float) -> Iterator[Check]:
    """Compare the logged loss and metrics; an expected metric that is not logged is infinitely far.

    Other ranks than the first may log nothing, which nobody sees. The logged loss may be rounded, and the loss that is
    rounded is allowed to be ``within`` of its definition.
    """
    if int(os.environ.get("RANK", "0")):
        return
    logged = list(zip(found.metrics, expected.metrics, expected.losses, strict=False))
    beyond = (abs(entry["loss"] - loss) - within * max(1.0, abs(loss)) for entry, _, loss in logged)
    yield at_most("logged loss off", tolerance.worst(beyond), LOGGED)
    for name in expected.metrics[0]:
        errors = [off(entry.get(name, float("inf")), metrics[name]) for entry, metrics, _ in logged if name in metrics]
        yield at_most(f"logged {name} off", tolerance.worst(errors), within)


def off(value: float, expected: float) -> float:
    """The error, relative to a value of at least 1."""
    return abs(float(value) - expected) / max(1.0, abs(expected))


def evaluated(trainer: Any, expected: Mapping[str, float]) -> Iterator[Check]:
    """Compare what an evaluation returns or logs."""
    found = trainer.evaluate()
    for entry in trainer.state.log_history:
        found = {**entry, **found}
    for name, value in expected.items():
        yield at_most(f"evaluated {name} off", off(found.get(f"eval_{name}", float("inf")), value), SAME)
