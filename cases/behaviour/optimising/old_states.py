"""torch's optimisers over their lives: states of early releases, copies, parameters without gradients, refusals."""

from __future__ import annotations

import copy
import functools
import io
import pickle
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.optimising.optimiser_steps import give_gradients, kinds, parameters
from cases.behaviour.optimising.update_rules import RATE
from cases.space.verdict import Phase, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "torch's optimisers"
# Arguments that releases added to the parameter groups: the files of earlier ones lack them.
LATER = ("maximize", "foreach", "capturable", "differentiable", "fused", "decoupled_weight_decay")
OF_SGD = (*LATER, "nesterov")
WAYS: Mapping[str, dict[str, Any]] = {"by default": {}, "one by one": {"foreach": False}, "together": {"foreach": True}}
BEFORE, AFTER = range(1, 4), range(4, 7)


def made(kind: str, held: Mapping[str, Any], **more: Any) -> Any:
    import torch

    return getattr(torch.optim, kind)([*held.values()], **{"lr": RATE, **more})


def trained(held: Mapping[str, Any], optimiser: Any, steps: range) -> None:
    for step in steps:
        give_gradients(held, step)
        optimiser.step()


def numbers_off(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> int:
    return sum(int((found[name] != wanted[name]).sum()) for name in wanted)


def with_numbers(state: dict[str, Any]) -> dict[str, Any]:
    """The state of parameters as early releases kept it: steps and products as Python's numbers."""
    for each in state["state"].values():
        for name in ("step", "mu_product", "eta", "mu"):
            if name in each:
                value = float(each[name])
                each[name] = int(value) if value.is_integer() and name == "step" else value
    return state


@call(GROUP, phase=Phase.RESUME)
def optimisers_from_early_states(_ctx: Context) -> Iterator[Check]:
    """A state without the arguments that later releases added, and with steps as numbers, goes on as it would have.

    The arguments take the values of their defaults, also in an optimiser that was made with others: on the CPU, a
    foreach of None updates one by one.
    """
    for name, (kind, more) in kinds().items():
        for title, way in WAYS.items():
            if "decoupled_weight_decay" in more or kind == "Adafactor":
                continue  # younger than these arguments
            plain = parameters()
            optimiser = made(kind, plain, **more)
            trained(plain, optimiser, BEFORE)
            again = parameters()
            for key, each in again.items():
                each.data.copy_(plain[key].detach())
            later = made(kind, again, **more, **way)
            state = with_numbers(copy.deepcopy(optimiser.state_dict()))
            lacking = OF_SGD if kind == "SGD" and not more.get("nesterov") else LATER
            for argument in lacking:
                state["param_groups"][0].pop(argument, None)
            later.load_state_dict(state)
            group = later.param_groups[0]
            own = ("decoupled_weight_decay",) if kind == "AdamW" else ()  # the weights show it
            set_again = [key for key in lacking if group.get(key) and key not in own]
            yield equal(f"arguments that are set, {name}, {title}", str(set_again), "[]")
            yield equal(f"foreach, {name}, {title}", str(group["foreach"]), "None")
            trained(plain, optimiser, AFTER)
            trained(again, later, AFTER)
            yield equal(f"numbers of weights that differ, {name}, {title}", numbers_off(again, plain), 0)


@call(GROUP, phase=Phase.RESUME)
def optimisers_copied(_ctx: Context) -> Iterator[Check]:
    """A copied or pickled optimiser has the arguments and states of its original, and steps its own parameters."""

    def stored(pair: Any) -> Any:
        import torch

        file = io.BytesIO()
        torch.save(pair, file)
        file.seek(0)
        return torch.load(file, weights_only=False)

    ways: Mapping[str, Callable[[Any], Any]] = {
        "copied": copy.deepcopy,
        "pickled": lambda pair: pickle.loads(pickle.dumps(pair)),  # noqa: S301 - its own bytes
        "saved": stored,
    }
    for name, (kind, more) in kinds().items():
        for title, way in ways.items():
            held = parameters()
            optimiser = made(kind, held, **more)
            trained(held, optimiser, BEFORE)
            other, later = way((held, optimiser))
            differing = [key for key, value in optimiser.defaults.items() if later.defaults.get(key) != value]
            yield equal(f"arguments that differ, {name}, {title}", str(differing), "[]")
            before = {key: value.detach().clone() for key, value in held.items()}
            trained(other, later, AFTER)
            yield equal(f"numbers of the original that changed, {name}, {title}", numbers_off(held, before), 0)
            trained(held, optimiser, AFTER)
            yield equal(f"numbers of weights that differ, {name}, {title}", numbers_off(other, held), 0)
            yield equal(f"text, {name}, {title}", repr(later), repr(optimiser))
            later.load_state_dict(copy.deepcopy(optimiser.state_dict()))
            for each in (held, other):
                trained(each, optimiser if each is held else later, AFTER)
            yield equal(f"numbers of weights off after loading, {name}, {title}", numbers_off(other, held), 0)


@call(GROUP, phase=Phase.OPTIMIZER)
def optimisers_without_gradients(_ctx: Context) -> Iterator[Check]:
    """A step without any gradient changes nothing; a group without gradients does not hold up the next group."""
    for name, (kind, more) in kinds().items():
        for title, way in WAYS.items():
            held = parameters()
            before = {key: value.detach().clone() for key, value in held.items()}
            optimiser = made(kind, held, **more, **way)
            yield equal(f"what step returns, {name}, {title}", str(optimiser.step()), "None")
            yield equal(f"loss, {name}, {title}", optimiser.step(lambda: 0.5), 0.5)
            yield equal(f"numbers that changed, {name}, {title}", numbers_off(held, before), 0)
            moments = sum(len(each) > 1 for each in optimiser.state.values())
            yield equal(
                f"moments, {name}, {title}", moments, len(held) if kind == "Adagrad" else 0
            )  # it makes sums first
            alone, apart = parameters(), parameters()
            for each in (alone, apart):
                give_gradients(each, 1)
            chosen = {"lr": RATE, **more, **way}
            last = list(alone)[-1]
            one = type(optimiser)([alone[last]], **chosen)
            rest = [{"params": [each]} for key, each in apart.items() if key != last]
            two = type(optimiser)([*rest, {"params": [apart[last]]}], **chosen)
            for key in apart:
                apart[key].grad = None if key != last else apart[key].grad
            one.step()
            two.step()
            yield equal(f"numbers of a later group off, {name}, {title}", int((apart[last] != alone[last]).sum()), 0)
            two.zero_grad(set_to_none=False)
            yield equal(f"numbers of gradients, {name}, {title}", int(apart[last].grad.count_nonzero()), 0)
            two.zero_grad()
            yield equal(f"gradient after zero_grad, {name}, {title}", str(apart[last].grad), "None")


BETAS_REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a first beta of 1": ({"betas": (1.0, 0.9)}, "Invalid beta parameter at index 0: 1.0"),
    "a second beta of 1": ({"betas": (0.9, 1.0)}, "Invalid beta parameter at index 1: 1.0"),
    "a first beta below 0": ({"betas": (-0.1, 0.9)}, "Invalid beta parameter at index 0: -0.1"),
    "a second beta below 0": ({"betas": (0.9, -0.1)}, "Invalid beta parameter at index 1: -0.1"),
}
EPS_REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an eps below 0": ({"eps": -1e-8}, "Invalid epsilon value: -1e-08")
}
DECAY_REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a decay below 0": ({"weight_decay": -0.1}, "Invalid weight_decay value: -0.1")
}
ADAMS: dict[str, tuple[dict[str, Any], str]] = {**BETAS_REFUSED, **EPS_REFUSED, **DECAY_REFUSED}
REFUSED: Mapping[str, dict[str, tuple[dict[str, Any], str]]] = {
    **dict.fromkeys(("Adam", "AdamW", "RAdam", "Adamax"), ADAMS),
    "NAdam": {
        **ADAMS,
        "a momentum decay below 0": ({"momentum_decay": -1.0}, "Invalid momentum_decay value: -1.0"),
    },
    "Adadelta": {
        **EPS_REFUSED,
        **DECAY_REFUSED,
        "a rho above 1": ({"rho": 1.5}, "Invalid rho value: 1.5"),
        "a rho below 0": ({"rho": -0.5}, "Invalid rho value: -0.5"),
    },
    "Adagrad": {
        **EPS_REFUSED,
        **DECAY_REFUSED,
        "a decay of rates below 0": ({"lr_decay": -1.0}, "Invalid lr_decay value: -1.0"),
        "a first sum below 0": (
            {"initial_accumulator_value": -1.0},
            "Invalid initial_accumulator_value value: -1.0",
        ),
    },
    "RMSprop": {
        **EPS_REFUSED,
        **DECAY_REFUSED,
        "a momentum below 0": ({"momentum": -0.5}, "Invalid momentum value: -0.5"),
        "an alpha below 0": ({"alpha": -0.5}, "Invalid alpha value: -0.5"),
    },
    "ASGD": DECAY_REFUSED,
    "SGD": {
        **DECAY_REFUSED,
        "a momentum below 0": ({"momentum": -0.5}, "Invalid momentum value: -0.5"),
        "nesterov alone": ({"nesterov": True}, "Nesterov momentum requires a momentum and zero dampening"),
        "nesterov with dampening": (
            {"nesterov": True, "momentum": 0.9, "dampening": 0.1},
            "Nesterov momentum requires a momentum and zero dampening",
        ),
    },
    "Rprop": {
        "a first eta of 0": ({"etas": (0.0, 1.2)}, "Invalid eta values: 0.0, 1.2"),
        "a first eta of 1": ({"etas": (1.0, 1.2)}, "Invalid eta values: 1.0, 1.2"),
        "a second eta of 1": ({"etas": (0.5, 1.0)}, "Invalid eta values: 0.5, 1.0"),
    },
}
FUSED_KINDS = ("Adam", "AdamW", "SGD", "Adagrad")


def refusal(action: Callable[[], Any], words: str, kind: type[Exception] = ValueError) -> str:
    """The words if the action raises exactly this class with them; otherwise what happened."""
    try:
        action()
    except Exception as error:  # noqa: BLE001 - any other exception is the finding
        return words if type(error) is kind and words in str(error) else f"{type(error).__name__}: {error}"[:200]
    return "accepted"


@call(GROUP, phase=Phase.OPTIMIZER)
def optimisers_refuse_arguments(_ctx: Context) -> Iterator[Check]:
    """Each optimiser refuses every argument outside its range by a ValueError that states it; bounds are in."""
    import torch

    def attempt(kind: str, **more: Any) -> Callable[[], Any]:
        return lambda: getattr(torch.optim, kind)([torch.nn.Parameter(torch.ones(2))], **more)

    for kind, cases in REFUSED.items():
        every = {**cases, "a rate below 0": ({"lr": -0.5}, "Invalid learning rate: -0.5")}
        for title, (more, words) in every.items():
            yield equal(f"{kind}, {title}", refusal(attempt(kind, **more), words), words)
        words = "Tensor lr must be 1-element"
        yield equal(f"{kind}, two rates", refusal(attempt(kind, lr=torch.ones(2)), words), words)
        bounds = {key: value for key, value in BOUNDS.items() if key in attempt(kind)().defaults}
        yield equal(f"{kind}, bounds", refusal(attempt(kind, lr=0.0, **bounds), "accepted"), "accepted")
    for kind in FUSED_KINDS:
        both = "`fused` and `foreach` cannot be `True` together."
        action = attempt(kind, fused=True, foreach=True)
        yield equal(f"{kind}, fused and foreach", refusal(action, both, RuntimeError), both)
        apart = "`fused` does not support `differentiable`"
        action = attempt(kind, fused=True, differentiable=True)
        yield equal(f"{kind}, fused and differentiable", refusal(action, apart, RuntimeError), apart)
    for kind in ("Adam", "AdamW"):
        words = "lr as a Tensor is not supported for capturable=False and foreach=True"
        action = attempt(kind, lr=torch.tensor(0.1), foreach=True)
        yield equal(f"{kind}, a tensor and foreach", refusal(action, words), words)


BOUNDS: Mapping[str, Any] = {
    **dict.fromkeys(("eps", "weight_decay", "momentum", "alpha", "lr_decay", "momentum_decay"), 0.0),
    "initial_accumulator_value": 0.0,
    "betas": (0.0, 0.0),
    "rho": 1.0,
}


@call(GROUP, phase=Phase.OPTIMIZER)
def optimisers_refuse_parameters(_ctx: Context) -> Iterator[Check]:
    """Optimisers refuse no parameters, a tensor alone, results of operations, and states of other parameters."""
    import torch

    leaf = torch.nn.Parameter(torch.ones(2))
    given: dict[str, tuple[Any, str, type[Exception]]] = {
        "no parameters": ([], "optimizer got an empty parameter list", ValueError),
        "a tensor": (leaf, "params argument given to the optimizer should be an iterable", TypeError),
        "numbers": ([1.0], "optimizer can only optimize Tensors, but one of the params is float", TypeError),
        "a result": ([leaf * 2], "can't optimize a non-leaf Tensor", ValueError),
        "a set": ([{"params": {leaf}}], "optimizer parameters need to be organized in ordered", TypeError),
        "one in two groups": (
            [{"params": [leaf]}, {"params": [leaf]}],
            "some parameters appear in more than one parameter group",
            ValueError,
        ),
    }
    for name, (kind, more) in kinds().items():
        make = functools.partial(getattr(torch.optim, kind), **{"lr": RATE, **more})
        for title, (params, words, error) in given.items():
            yield equal(f"{title}, {name}", refusal(functools.partial(make, params), words, error), words)
        held = parameters()
        optimiser = make([*held.values()])
        trained(held, optimiser, BEFORE)
        smaller, larger = (copy.deepcopy(optimiser.state_dict()) for _ in range(2))
        smaller["param_groups"][0]["params"].pop()
        larger["param_groups"] *= 2
        words = "loaded state dict contains a parameter group that doesn't match the size of optimizer's group"
        loading = functools.partial(optimiser.load_state_dict, smaller)
        yield equal(f"fewer parameters, {name}", refusal(loading, words), words)
        words = "loaded state dict has a different number of parameter groups"
        loading = functools.partial(optimiser.load_state_dict, larger)
        yield equal(f"more groups, {name}", refusal(loading, words), words)
