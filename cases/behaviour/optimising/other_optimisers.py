"""torch's optimisers of whole matrices, of sparse gradients, and of a whole function: Muon, SparseAdam and L-BFGS."""

from __future__ import annotations

import copy
import inspect
from itertools import product
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.model import tiny
from cases.reference.tolerance import UNIT_ROUNDOFF, relative
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cases.apply.context import Context
    from cases.space.verdict import Check

    Closure = Callable[[], Any]

GROUP = "torch's optimisers"
STEPS = 4
EXACT = 1e-10  # relative: float64, in another order
SHAPES = {"wide": (6, 16), "tall": (20, 5), "square": (8, 8)}
QUINTIC = (3.4445, -4.7750, 2.0315)
# Five steps of the iteration in bfloat16 move the update of the smallest singular values by some roundings each.
OF_UPDATE = 12 * UNIT_ROUNDOFF["bf16"]
MUON: Mapping[str, Mapping[str, Any]] = {
    "defaults": {},
    "without Nesterov": {"nesterov": False, "weight_decay": 0.0},
    "original": {"adjust_lr_fn": "original", "momentum": 0.5},
    "match_rms_adamw": {"adjust_lr_fn": "match_rms_adamw"},
    "other coefficients": {"ns_coefficients": (2.0, -1.5, 0.5), "ns_steps": 3},
}


def orthogonal(matrix: Any, coefficients: tuple[float, float, float], steps: int) -> Any:
    """The Newton-Schulz iteration on a matrix of norm 1, float64: a X + (b G + c G^2) X, where G = X X^T."""
    a, b, c = coefficients
    found = matrix / matrix.norm()
    for _ in range(steps):
        gram = found @ found.T
        found = a * found + (b * gram + c * gram @ gram) @ found
    return found


def factor(kind: str | None, rows: int, columns: int) -> float:
    """What a rate is multiplied with: by Keller Jordan, or as AdamW's update is large (arXiv 2502.16982)."""
    if kind == "match_rms_adamw":
        return float(0.2 * max(rows, columns) ** 0.5)
    return float(max(1.0, rows / columns) ** 0.5)


@call(GROUP, phase=Phase.OPTIMIZER, requires=("muon",))
def torch_muon(_ctx: Context) -> Iterator[Check]:
    """Muon steps along the nearly orthogonal factor of its momentum, with each of its arguments and decoupled decay.

    https://docs.pytorch.org/docs/stable/generated/torch.optim.Muon.html. Its iteration is in bfloat16; the momentum is
    exact but for a factor, which the iteration's norm removes.
    """
    import torch

    for title, given in MUON.items():
        chosen = {"weight_decay": 0.1, "momentum": 0.95, "nesterov": True, "lr": 0.02, **given}
        held = {name: torch.nn.Parameter(tiny.values(name, shape)) for name, shape in SHAPES.items()}
        made = torch.optim.Muon([*held.values()], **{"lr": 0.02, **given})
        wanted = {name: each.detach().double().clone() for name, each in held.items()}
        averages = {name: torch.zeros_like(each) for name, each in wanted.items()}
        for step in range(STEPS):
            before = {name: each.detach().double().clone() for name, each in held.items()}
            for name, parameter in held.items():
                parameter.grad = tiny.values(f"{name} {step}", SHAPES[name])
            made.step()
            off = []
            for name, (rows, columns) in SHAPES.items():
                gradient = tiny.values(f"{name} {step}", SHAPES[name]).double()
                averages[name] = chosen["momentum"] * averages[name] + (1 - chosen["momentum"]) * gradient
                mixed = averages[name]
                if chosen["nesterov"]:
                    mixed = (1 - chosen["momentum"]) * gradient + chosen["momentum"] * averages[name]
                turned = mixed.T if rows > columns else mixed
                turned = orthogonal(turned, chosen.get("ns_coefficients", QUINTIC), chosen.get("ns_steps", 5))
                turned = turned.T if rows > columns else turned
                rate = chosen["lr"] * factor(chosen.get("adjust_lr_fn"), rows, columns)
                kept = before[name] * (1 - chosen["lr"] * chosen["weight_decay"])
                off.append(relative(held[name].detach().double() - kept, -rate * turned))
            yield at_most(f"update off, {title}, step {step}", max(off), OF_UPDATE)
        moments = [relative(made.state[held[name]]["momentum_buffer"], each) for name, each in averages.items()]
        yield at_most(f"momentum off, {title}", max(moments), 8 * UNIT_ROUNDOFF["fp32"])
    for title, shape in (("a vector", (3,)), ("a kernel", (2, 2, 2))):
        try:
            torch.optim.Muon([torch.nn.Parameter(torch.ones(shape))])
            said = "accepted"
        except ValueError as error:
            said = "2D" if "2D" in str(error) else str(error)
        yield equal(f"a parameter that is {title}", said, "2D")


@call(GROUP, phase=Phase.OPTIMIZER)
def torch_sparse_adam(_ctx: Context) -> Iterator[Check]:
    """SparseAdam updates the moments and weights of the rows that a gradient has, and leaves the others as they are.

    https://docs.pytorch.org/docs/stable/generated/torch.optim.SparseAdam.html. A row may occur twice in a gradient.
    """
    import torch

    rate, (first, second), eps = 0.1, (0.8, 0.9), 1e-3
    for maximize in (False, True):
        weight = torch.nn.Parameter(tiny.values("rows", (6, 3)).double())
        made = torch.optim.SparseAdam([weight], lr=rate, betas=(first, second), eps=eps, maximize=maximize)
        wanted = weight.detach().clone()
        moments = [torch.zeros_like(wanted) for _ in range(2)]
        for step, rows in enumerate(((0, 2), (2, 5, 2), (1,), (0, 2, 4)), start=1):
            values = tiny.values(f"values {step}", (len(rows), 3)).double()
            weight.grad = torch.sparse_coo_tensor(torch.tensor([rows]), values, (6, 3))
            made.step()
            dense = torch.zeros(6, 3, dtype=torch.float64).index_add(0, torch.tensor(rows), values)
            dense = -dense if maximize else dense
            for row in set(rows):
                moments[0][row] = first * moments[0][row] + (1 - first) * dense[row]
                moments[1][row] = second * moments[1][row] + (1 - second) * dense[row] ** 2
                size = rate * (1 - second**step) ** 0.5 / (1 - first**step)
                wanted[row] -= size * moments[0][row] / (moments[1][row].sqrt() + eps)
            off = relative(weight.detach(), wanted)
            yield at_most(f"weights off, step {step}, maximize={maximize}", off, EXACT)
        state = made.state[weight]
        off = max(relative(state[name], each) for name, each in zip(("exp_avg", "exp_avg_sq"), moments, strict=True))
        yield at_most(f"moments off, maximize={maximize}", off, EXACT)


def quasi_newton(gradients: list[Any], moves: list[Any], kept: int) -> Any:
    """The direction -H g by the inverse BFGS updates of the last pairs, from a multiple of the identity."""
    import torch

    pairs = [(move, new - old) for move, old, new in zip(moves, gradients, gradients[1:], strict=False)][-kept:]
    one = torch.eye(len(gradients[0]), dtype=torch.float64)
    inverse = one
    if pairs:
        move, change = pairs[-1]
        inverse = one * (change @ move) / (change @ change)
    for move, change in pairs:
        rho = 1 / (change @ move)
        side = one - rho * torch.outer(move, change)
        inverse = side @ inverse @ side.T + rho * torch.outer(move, move)
    return -inverse @ gradients[-1]


def quadratic() -> tuple[Any, Any]:
    """The matrix and the minimum of a function that curves upwards, float64."""
    import torch

    generator = torch.Generator().manual_seed(3)
    root = torch.randn(5, 5, generator=generator, dtype=torch.float64)
    return root @ root.T + torch.eye(5), torch.arange(1.0, 6.0, dtype=torch.float64)


def minimiser(sign: float = 1.0, **more: Any) -> tuple[list[Any], Any, Closure, list[float]]:
    """The parameters, L-BFGS on a sign times the quadratic function, its closure, and the losses that this computed."""
    import torch

    matrix, target = quadratic()
    parts = [torch.nn.Parameter(torch.zeros(size, dtype=torch.float64)) for size in (2, 3)]
    optimiser, seen = torch.optim.LBFGS(parts, **more), list[float]()

    def closure() -> Any:
        optimiser.zero_grad()
        point = torch.cat(parts) - target
        loss = sign * 0.5 * point @ matrix @ point
        loss.backward()
        seen.append(float(loss))
        return loss

    return parts, optimiser, closure, seen


def joined(parts: list[Any]) -> Any:
    import torch

    return torch.cat([each.detach() for each in parts])


@call(GROUP, phase=Phase.OPTIMIZER)
def torch_lbfgs(_ctx: Context) -> Iterator[Check]:
    """L-BFGS moves along -H g, where H follows from the last history_size steps by the update of BFGS.

    Nocedal and Wright, Numerical Optimization, section 7.2. The first step is at most 1 long in the 1-norm. With
    strong_wolfe it finds the minimum. max_iter and max_eval bound a step: it makes as many iterations as single steps
    would, and goes on from a state of an early release.
    """
    import torch

    matrix, target = quadratic()
    for kept, rate in ((10, 1.0), (2, 0.7)):
        parts, optimiser, closure, _ = minimiser(lr=rate, max_iter=1, history_size=kept)
        point = torch.zeros(5, dtype=torch.float64)
        gradients: list[Any] = []
        moves: list[Any] = []
        for step in range(5):
            gradient = matrix @ (point - target)
            gradients.append(gradient)
            direction = quasi_newton(gradients, moves, kept)
            length = rate * min(1.0, 1.0 / float(gradient.abs().sum())) if step == 0 else rate
            loss = optimiser.step(closure)
            wanted = 0.5 * (point - target) @ matrix @ (point - target)
            yield at_most(f"loss off, step {step}, {kept} pairs", relative(loss.detach(), wanted), 1e-8)
            moves.append(length * direction)
            point = point + moves[-1]
            yield at_most(f"weights off, step {step}, {kept} pairs", relative(joined(parts), point), 1e-6)
    parts, optimiser, closure, _ = minimiser(line_search_fn="strong_wolfe", max_iter=50)
    optimiser.step(closure)
    yield at_most("minimum off, strong_wolfe", relative(joined(parts), target), 1e-5)
    yield from bounded_steps()
    yield from steps_from_early_states()


def bounded_steps() -> Iterator[Check]:
    """A step evaluates the function max_eval times at most, and once for each iteration; later steps count on.

    max_iter is "maximal number of iterations per optimization step", max_eval that of function evaluations.
    """
    for most, evaluations in ((6, 3), (3, 6), (4, 4), (5, 2)):
        title = f"max_iter={most}, max_eval={evaluations}"
        parts, optimiser, closure, seen = minimiser(lr=0.5, max_iter=most, max_eval=evaluations)
        iterations = min(most, evaluations if most < evaluations else evaluations - 1)  # the last ends with one
        alone, single, one, _ = minimiser(lr=0.5, max_iter=1)
        for step in (1, 2):
            optimiser.step(closure)
            for _ in range(iterations):
                single.step(one)
            state = optimiser.state[parts[0]]
            counts = (len(seen), state["func_evals"], state["n_iter"])
            wanted = (step * min(most, evaluations),) * 2 + (step * iterations,)
            yield equal(f"evaluations and iterations, step {step}, {title}", str(counts), str(wanted))
            yield at_most(f"weights off, step {step}, {title}", relative(joined(parts), joined(alone)), EXACT)


def steps_from_early_states() -> Iterator[Check]:
    """A state without the arguments that later releases added goes on as it would have; maximize climbs as it falls."""
    import torch

    knows = "maximize" in inspect.signature(torch.optim.LBFGS).parameters
    for search, sign in product((None, "strong_wolfe"), (1.0, -1.0) if knows else (1.0,)):
        more = {"maximize": True} if sign < 0 else {}
        title = f"line_search_fn={search}, maximize={sign < 0}"
        given: dict[str, Any] = {"lr": 0.5, "max_iter": 3, "line_search_fn": search}
        plain, first, falling, _ = minimiser(**given)
        climbing, second, rising, _ = minimiser(sign, **given, **more)
        for _ in range(2):
            first.step(falling)
            second.step(rising)
        yield at_most(f"weights off, {title}", relative(joined(climbing), joined(plain)), EXACT)
        if sign < 0:
            continue
        state = copy.deepcopy(first.state_dict())
        state["param_groups"][0].pop("maximize", None)
        second.load_state_dict(state)
        first.step(falling)
        second.step(rising)
        yield at_most(f"weights off after an early state, {title}", relative(joined(climbing), joined(plain)), EXACT)
