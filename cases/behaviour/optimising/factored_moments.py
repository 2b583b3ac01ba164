"""torch's Adafactor by its documented algorithm, for vectors, matrices and stacks of them.

https://docs.pytorch.org/docs/stable/generated/torch.optim.Adafactor.html, https://arxiv.org/abs/1804.04235
"""

from __future__ import annotations

import functools
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.model import tiny
from cases.reference import tolerance
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "torch's optimisers"
REQUIRES = ("adafactor",)
STEPS = 4
SHAPES = {"number": (), "vector": (6,), "matrix": (5, 7), "experts": (3, 5, 7), "kernel": (4, 3, 2, 5)}
EXACT = 1e-10  # relative: the same arithmetic in float64, in another order
DEFAULTS: Mapping[str, Any] = {
    "lr": 1e-2,
    "beta2_decay": -0.8,
    "eps": (None, 1e-3),
    "d": 1.0,
    "weight_decay": 0.0,
    "maximize": False,
}
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "defaults": {},
    "a rate above the root of the steps": {"lr": 0.9},
    "a tensor as rate": {"lr": 0.03},
    "a slow decay of moments": {"beta2_decay": -0.3, "d": 1.5},
    "large eps": {"eps": (0.2, 0.9)},
    "small eps": {"eps": (1e-30, 0.0)},
    "decay of weights": {"weight_decay": 0.3},
    "maximize": {"maximize": True, "weight_decay": 0.1},
}


@functools.cache
def gradient(name: str, step: int) -> Any:
    """Gradients of several sizes along each side, float64. Callers change copies alone."""
    found = tiny.values(f"{name} {step}", SHAPES[name]).double() * 4
    return found if found.dim() == 0 else found * found.new_tensor(range(1, found.shape[-1] + 1)) / 3


def start(name: str) -> Any:
    return tiny.values(name, SHAPES[name]).double() * 3 + 0.1


def smallest(dtype: Any) -> float:
    """The default of the first eps: the distance of 1 from the next number of the dtype."""
    import torch

    return float(torch.nextafter(torch.ones((), dtype=dtype), torch.full((), 2.0, dtype=dtype)) - 1)


def moment(grad: Any, state: dict[str, Any], share: float, eps: float) -> Any:
    """The estimate of the squared gradient: of a vector itself, else from means of rows and columns."""
    if grad.dim() < 2:  # noqa: PLR2004 - a vector has no factors
        state["variance"] = (1 - share) * state.get("variance", 0.0) + share * grad**2
        return state["variance"]
    for kind, side in (("row_var", -1), ("col_var", -2)):
        state[kind] = (1 - share) * state.get(kind, 0.0) + share * (grad**2).mean(side, keepdim=True)
    return state["row_var"] * state["col_var"] / state["row_var"].mean(-2, keepdim=True).clamp(min=eps)


def by_rule(name: str, settings: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The weight after all steps and the moments, float64."""
    chosen = {**DEFAULTS, **settings}
    weight, state = start(name), {}  # type: ignore[var-annotated]
    first = smallest(weight.dtype) if chosen["eps"][0] is None else chosen["eps"][0]
    for step in range(1, STEPS + 1):
        grad = -gradient(name, step) if chosen["maximize"] else gradient(name, step)
        rate = min(chosen["lr"], step**-0.5) * max(chosen["eps"][1], float((weight**2).mean() ** 0.5))
        weight = weight * (1 - chosen["lr"] * chosen["weight_decay"])
        update = grad / moment(grad, state, step ** chosen["beta2_decay"], first).sqrt().clamp(min=first)
        weight = weight - rate * update / max(1.0, float((update**2).mean() ** 0.5) / chosen["d"])
    return weight, state


def by_torch(settings: Mapping[str, Any], *, foreach: bool) -> tuple[dict[str, Any], Any]:
    """The weights after all steps, and the optimiser. One parameter has no gradient."""
    import torch

    found = {name: torch.nn.Parameter(start(name)) for name in SHAPES}
    unused = torch.nn.Parameter(torch.ones(2, 2))
    made = torch.optim.Adafactor([*found.values(), unused], foreach=foreach, **settings)
    for step in range(1, STEPS + 1):
        for name, parameter in found.items():
            parameter.grad = gradient(name, step).clone()
        made.step()
    return {**found, "unused": unused}, made


@call(GROUP, phase=Phase.OPTIMIZER, requires=REQUIRES)
def torch_adafactor(_ctx: Context) -> Iterator[Check]:
    """Adafactor steps tensors of any dimensions by its algorithm, with each of its arguments, alone and together."""
    import torch

    for title, settings in SETTINGS.items():
        for foreach in (False, True):
            is_tensor = "tensor" in title
            given = {**settings, "lr": torch.tensor(settings["lr"], dtype=torch.float64)} if is_tensor else settings
            found, made = by_torch(given, foreach=foreach)
            kind = f"{title}, foreach={foreach}"
            pairs = {name: by_rule(name, settings) for name in SHAPES}
            worst = {name: tolerance.relative(found[name].detach(), pairs[name][0]) for name in SHAPES}
            yield at_most(f"weights off, {kind}", max(worst.values()), EXACT)
            moments = [
                tolerance.relative(made.state[found[name]][key], each)
                for name in SHAPES
                for key, each in pairs[name][1].items()
            ]
            yield at_most(f"moments off, {kind}", max(moments), EXACT)
            kept = [
                name
                for name in SHAPES
                if not torch.equal(found[name].grad, gradient(name, STEPS))  # of the last step
            ]
            yield equal(f"gradients that a step changed, {kind}", ", ".join(kept) or "none", "none")
            yield equal(f"state without a gradient, {kind}", str(made.state.get(found["unused"], {})), "{}")


@call(GROUP, phase=Phase.SAVE, requires=REQUIRES)
def torch_adafactor_continues(_ctx: Context) -> Iterator[Check]:
    """Adafactor keeps a moment for each row and column, and goes on from its state dict as it would have gone on."""
    import torch

    for foreach in (False, True):
        found, made = by_torch({}, foreach=foreach)
        names = [*found]
        state = deepcopy(made.state_dict())  # loading shares tensors of the same dtype
        shapes = {
            names[number]: {key: tuple(each.shape) for key, each in kept.items() if key != "step"}
            for number, kept in state["state"].items()
        }
        wanted = {
            name: {"variance": shape}
            if len(shape) < 2  # noqa: PLR2004 - a vector has no factors
            else {"row_var": (*shape[:-1], 1), "col_var": (*shape[:-2], 1, shape[-1])}
            for name, shape in SHAPES.items()
        }
        yield equal(f"shapes of moments, foreach={foreach}", str(shapes), str(wanted))
        counts = {float(each["step"]) for each in state["state"].values()}
        yield equal(f"counts of steps, foreach={foreach}", str(counts), str({float(STEPS)}))
        again = {name: torch.nn.Parameter(each.detach().clone()) for name, each in found.items()}
        other = torch.optim.Adafactor([*again.values()], foreach=foreach, lr=1.0)
        other.load_state_dict(state)
        for one, parameters in ((made, found), (other, again)):
            for name in SHAPES:
                parameters[name].grad = gradient(name, STEPS + 1).clone()
            one.step()
        differ = sum(int((found[name] != again[name]).sum()) for name in SHAPES)
        yield equal(f"numbers of weights that differ, foreach={foreach}", differ, 0)


@call(GROUP, phase=Phase.OPTIMIZER, requires=REQUIRES)
def torch_adafactor_eps_of_each_dtype(_ctx: Context) -> Iterator[Check]:
    """Without a first eps, Adafactor divides small gradients by their size as far as each parameter's dtype resolves.

    The documentation names the eps of the parameter's dtype. A group may hold parameters of several dtypes, as
    float32 adapters in a bfloat16 model are. The first step of a gradient of one size is the rate times the root mean
    square of the weight.
    """
    import torch

    for foreach in (False, True):
        parameters = {
            str(dtype): torch.nn.Parameter(torch.ones(4, 4, dtype=dtype)) for dtype in (torch.bfloat16, torch.float32)
        }
        for each in parameters.values():
            each.grad = torch.full_like(each, 1e-4)
        made = torch.optim.Adafactor([*parameters.values()], lr=0.25, foreach=foreach)
        made.step()
        found = 1 - float(parameters["torch.float32"].detach()[0, 0])
        yield at_most(f"step of float32 beside bfloat16 off, foreach={foreach}", abs(found - 0.25), 1e-5)


@call(GROUP, phase=Phase.OPTIMIZER, requires=REQUIRES)
def torch_adafactor_refusals(_ctx: Context) -> Iterator[Check]:
    """Adafactor refuses arguments outside of their ranges by a ValueError that states them, and complex parameters."""
    import torch

    refused: Mapping[str, tuple[dict[str, Any], str]] = {
        "a negative rate": ({"lr": -1.0}, "Learning rate"),
        "a rate of two numbers": ({"lr": torch.ones(2)}, "1-element"),
        "growing moments": ({"beta2_decay": 0.1}, "beta2_decay"),
        "a negative first eps": ({"eps": (-1.0, 1e-3)}, "epsilon1"),
        "a negative second eps": ({"eps": (None, -1e-3)}, "epsilon2"),
        "a threshold below 1": ({"d": 0.5}, "threshold"),
        "a negative decay": ({"weight_decay": -0.1}, "weight_decay"),
    }
    for title, (more, word) in refused.items():
        try:
            torch.optim.Adafactor([torch.nn.Parameter(torch.ones(2))], **more)
        except ValueError as error:
            said = word if word in str(error) else str(error)
        else:
            said = "accepted"
        yield equal(title, said, word)
    bounds = {"lr": 0.0, "beta2_decay": 0.0, "eps": (0.0, 0.0), "d": 1.0, "weight_decay": 0.0}
    made = torch.optim.Adafactor([torch.nn.Parameter(torch.ones(2))], **bounds)
    yield equal("the bounds themselves", str({name: made.defaults[name] for name in bounds}), str(bounds))
    complex_one = torch.nn.Parameter(torch.ones(2, dtype=torch.complex64))
    complex_one.grad = torch.ones_like(complex_one)
    try:
        torch.optim.Adafactor([complex_one]).step()
    except RuntimeError as error:
        said = "complex" if "complex" in str(error) else str(error)
    else:
        said = "accepted"
    yield equal("a complex parameter", said, "complex")
