"""Hooks of torch's optimisers: when they run, what they get, and what they may change.

https://docs.pytorch.org/docs/stable/optim.html#base-class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.space.verdict import Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "torch's optimisers"
KINDS = ("SGD", "AdamW", "Adafactor", "Rprop")


def optimiser(kind: str = "SGD", rate: float = 0.5) -> tuple[Any, Any]:
    """A parameter of ones with a gradient of ones, and its optimiser."""
    import torch

    parameter = torch.nn.Parameter(torch.ones(2, 2))
    parameter.grad = torch.ones(2, 2)
    return parameter, getattr(torch.optim, kind)([parameter], lr=rate)


def shown(made: Any, first: Any, arguments: Any, named: Any) -> str:
    return f"optimiser {first is made}, {arguments}, {named}"


@call(GROUP, phase=Phase.OPTIMIZER)
def optimiser_step_hooks(_ctx: Context) -> Iterator[Check]:
    """Hooks around step get the optimiser and the arguments of step, before and after the weights change.

    Those of one optimiser, and those of all (register_optimizer_step_pre_hook and its counterpart).
    """
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    for kind in (each for each in KINDS if hasattr(torch.optim, each)):
        parameter, made = optimiser(kind)
        seen: list[str] = []

        def note(name: str, parameter: Any = parameter, made: Any = made, seen: list[str] = seen) -> Any:
            def hook(first: Any, arguments: Any, named: Any) -> None:
                moved = bool((parameter != 1).any())
                values = [each() for each in arguments if each is not made]
                seen.append(f"{name}: {shown(made, first, values, sorted(named))}, {moved}")

            return hook

        handles = [
            register_optimizer_step_pre_hook(note("all before")),
            register_optimizer_step_post_hook(note("all after")),
            made.register_step_pre_hook(note("before")),
            made.register_step_post_hook(note("after")),
        ]
        made.step(lambda: 3.0)
        for handle in handles:
            handle.remove()
        made.step()
        given = "optimiser True, [3.0], []"
        wanted = [
            f"{each}: {given}, {each.endswith('after')}" for each in ("all before", "before", "after", "all after")
        ]
        yield equal(f"hooks of a step, {kind}", str(sorted(seen)), str(sorted(wanted)))


@call(GROUP, phase=Phase.OPTIMIZER)
def optimiser_hook_changes(_ctx: Context) -> Iterator[Check]:
    """A hook before step may replace its arguments: "it must be a tuple of args and kwargs", as documented."""
    parameter, made = optimiser()

    def other_loss(_made: Any, arguments: Any, named: Any) -> Any:
        return tuple(each if each is made else lambda: 7.0 for each in arguments), named

    made.register_step_pre_hook(other_loss)
    yield equal("loss that step returns", made.step(lambda: 3.0), 7.0)
    yield equal("weights", str(parameter.detach().flatten().tolist()), str([0.5] * 4))


@call(GROUP, phase=Phase.SAVE)
def optimiser_state_hooks(_ctx: Context) -> Iterator[Check]:
    """Hooks around state_dict and load_state_dict get the optimiser and the state, and may replace it."""
    _, made = optimiser("AdamW")
    made.step()
    seen: list[str] = []
    made.register_state_dict_pre_hook(lambda first: seen.append(f"before {first is made}"))

    def more(first: Any, state: Any) -> Any:
        seen.append(f"after {first is made} {sorted(state)}")
        return {**state, "more": 1}

    made.register_state_dict_post_hook(more)
    state = made.state_dict()
    yield equal("hooks of state_dict", str(seen), str(["before True", "after True ['param_groups', 'state']"]))
    yield equal("what a hook added", state.pop("more", None), 1)
    seen.clear()
    _, other = optimiser("AdamW", rate=0.1)

    def replaced(first: Any, given: Any) -> Any:
        seen.append(f"before {first is other}")
        return {**given, "param_groups": [{**group, "lr": 0.25} for group in given["param_groups"]]}

    other.register_load_state_dict_pre_hook(replaced)
    other.register_load_state_dict_post_hook(lambda first: seen.append(f"after {first is other}"))
    other.load_state_dict(state)
    yield equal("hooks of load_state_dict", str(seen), "['before True', 'after True']")
    yield equal("rate that a hook set", other.param_groups[0]["lr"], 0.25)


@call(GROUP, phase=Phase.OPTIMIZER)
def optimiser_groups_added(_ctx: Context) -> Iterator[Check]:
    """add_param_group steps further parameters by the defaults and their own arguments; one twice is refused.

    zero_grad drops gradients, or sets them to zero, of all groups.
    """
    import torch

    one, made = optimiser()
    other = torch.nn.Parameter(torch.ones(3))
    made.add_param_group({"params": other, "momentum": 0.5, "lr": 0.25})
    for _ in range(2):
        one.grad, other.grad = torch.ones(2, 2), torch.ones(3)
        made.step()
    yield equal("weights of the first group", str(one.detach().flatten().tolist()), str([0.0] * 4))
    yield equal("weights of the second group", str(other.detach().tolist()), str([1 - 0.25 - 0.375] * 3))
    made.zero_grad(set_to_none=False)
    yield equal("gradients set to zero", str([int(each.grad.abs().sum()) for each in (one, other)]), "[0, 0]")
    made.zero_grad()
    yield equal("gradients dropped", str([each.grad for each in (one, other)]), "[None, None]")
    try:
        made.add_param_group({"params": one})
    except ValueError:
        refused = True
    else:
        refused = False
    yield equal("a parameter of two groups is refused", refused, bound=True)
