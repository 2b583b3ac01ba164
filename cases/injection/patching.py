"""Helpers that inject faults by small patches of the stack or of the code that uses it."""

from __future__ import annotations

import functools
import types
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cases.model import tiny

if TYPE_CHECKING:
    from collections.abc import Callable

    from cases.space.options import Options

    Inject = Callable[["InjectionPoint"], None]


@dataclass(frozen=True)
class InjectionPoint:
    """The rank and the stage of a case that a fault is injected into."""

    rank: int
    stage: int
    options: Options


@dataclass(frozen=True)
class Fault:
    """A fault and the cases that it is injected into. The stack may raise an error only for a ``loud`` fault.

    ``located`` is a pattern of the kind and the module that a location must name first, e.g. ``output lm_head``.
    """

    name: str
    what: str
    inject: Inject
    cases: tuple[str, ...]
    loud: bool = False
    located: str = ""


def fault(*cases: str, loud: bool = False, located: str = "") -> Callable[[Inject], Fault]:
    """Declare a fault; the first line of its docstring describes it."""

    def declare(inject: Inject) -> Fault:
        what = (inject.__doc__ or "").strip().splitlines()[0].rstrip(".")
        return Fault(inject.__name__, what, inject, cases, loud, located)

    return declare


def around(owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
    """Replace ``owner.name`` by ``wrapper``, whose first argument is the original."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def replaced(*arguments: Any, **named: Any) -> Any:
        return wrapper(original, *arguments, **named)

    setattr(owner, name, replaced)


def after(owner: Any, name: str, change: Callable[[Any], Any]) -> None:
    """Change the result of ``owner.name``; ``change`` modifies it in place or returns a replacement."""

    def changed(original: Any, *arguments: Any, **named: Any) -> Any:
        found = original(*arguments, **named)
        replacement = change(found)
        return found if replacement is None else replacement

    around(owner, name, changed)


def change_adapted_model(change: Callable[[Any], Any]) -> None:
    """Change the adapted model before it is wrapped."""
    from cases.apply import build

    after(build, "adapt", change)


def change_wrapped_model(change: Callable[[Any], Any]) -> None:
    """Change the wrapped model."""
    from cases.apply import build

    after(build, "wrap", change)


def change_reduced_bucket(model: Any, change: Callable[[Any], Callable[[], object]]) -> None:
    """Average gradients as DDP does; ``change`` sees each bucket before that and returns what to do after it."""
    import torch.distributed as dist

    def average(bucket: Any) -> Any:
        finish = change(bucket)
        work = dist.all_reduce(bucket.buffer(), async_op=True).get_future()

        def averaged(done: Any) -> Any:
            done.value()[0].div_(dist.get_world_size())
            finish()
            return bucket.buffer()

        return work.then(averaged)

    model.register_comm_hook(None, lambda _state, bucket: average(bucket))  # no annotation: torch would read it


def before_each_step(change: Callable[[list[Any]], None]) -> None:
    """Call ``change`` with all parameters that have a gradient before each optimiser step."""
    from cases.apply import build

    def hooked(optimiser: Any) -> None:
        def change_them(*_: Any) -> None:
            change([p for group in optimiser.param_groups for p in group["params"] if p.grad is not None])

        optimiser.register_step_pre_hook(change_them)

    after(build, "optimiser", hooked)


def parameters_named(model: Any, word: str) -> list[Any]:
    """The parameters whose name contains a word.

    Raises:
        LookupError: no parameter matches.
    """
    found = [parameter for name, parameter in tiny.named(model) if word in name]
    if not found:
        raise LookupError(f"no parameter name contains {word!r}, so the fault cannot be injected")
    return found


def local_tensor(tensor: Any) -> Any:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def skip_optimiser_step(number: int, *, only: bool = True) -> None:
    """Skip one optimiser step, counted from 1; do nothing unless ``only``."""
    from cases.apply import build

    def skipping(optimiser: Any) -> None:
        done = [0]
        step = optimiser.step

        def counted(_self: Any, *arguments: Any, **named: Any) -> Any:
            done[0] += 1
            return None if only and done[0] == number else step(*arguments, **named)

        optimiser.step = types.MethodType(counted, optimiser)  # schedulers require a bound method

    after(build, "optimiser", skipping)


def set_optimiser_options(**values: Any) -> None:
    """Set options of the optimiser in all its parameter groups."""
    from cases.apply import build

    def change(optimiser: Any) -> None:
        for group in optimiser.param_groups:
            group.update(values)

    after(build, "optimiser", change)


def trainable(model: Any) -> list[Any]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def rescale(model: Any, factor: float) -> None:
    for module in model.modules():
        if isinstance(getattr(module, "scaling", None), dict):
            module.scaling = {name: value * factor for name, value in module.scaling.items()}
