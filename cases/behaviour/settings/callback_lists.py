"""The Trainer's list of callbacks: what a user adds, takes out and removes, as a class or as an instance.

https://huggingface.co/docs/transformers/main_classes/trainer#transformers.Trainer.add_callback
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.trainers import stock_trainer
from cases.space.verdict import Check, Phase, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cases.apply.context import Context

GROUP = "Trainer: callbacks"
STEPS = 2


def kinds(told: list[str]) -> dict[str, Any]:
    """Two independent classes of callbacks that tell at each step which of their instances were called."""
    from transformers import TrainerCallback

    def begin(self: Any, name: str = "") -> None:
        self.name = name or type(self).__name__

    def tell(self: Any, *_: Any, **__: Any) -> None:
        told.append(self.name)

    parts = {"__init__": begin, "on_step_end": tell}
    return {name: type(name, (TrainerCallback,), parts) for name in ("One", "Other")}


@call(GROUP, phase=Phase.OPTIMIZER)
def trainer_callback_list(ctx: Context) -> Iterator[Check]:
    """add_callback, pop_callback and remove_callback take a class or an instance, the first one of the class.

    Events call what is left, in the order in which it was added.
    """
    told: list[str] = []
    one, other = kinds(told).values()
    first, second, third = one("first"), other("second"), one("third")
    changes: dict[str, tuple[Callable[[Any], Any], list[str]]] = {
        "added": (lambda _: None, ["first", "second", "third", "Other"]),
        "class taken out": (lambda trainer: trainer.pop_callback(one), ["second", "third", "Other"]),
        "instance taken out": (lambda trainer: trainer.pop_callback(second), ["first", "third", "Other"]),
        "last instance taken out": (lambda trainer: trainer.pop_callback(third), ["first", "second", "Other"]),
        "class removed": (lambda trainer: trainer.remove_callback(other), ["first", "third", "Other"]),
        "instance removed": (lambda trainer: trainer.remove_callback(third), ["first", "second", "Other"]),
    }
    returned = {"class taken out": first, "instance taken out": second, "last instance taken out": third}
    for title, (change, left) in changes.items():
        trainer = stock_trainer.trainer(ctx, 2 * STEPS, max_steps=STEPS)
        for each in (first, second, third, other):
            trainer.add_callback(each)
        found = change(trainer)
        yield equal(f"what is returned, {title}", found is returned.get(title), bound=True)
        told.clear()
        trainer.train()
        yield equal(f"callbacks told, {title}", str(told), str(left * STEPS))
