"""What a step of torch's optimisers returns, keeps and needs: losses, gradients, states of any dtype, and scales."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.optimising import torch_optimisers, update_rules
from cases.behaviour.optimising.torch_optimisers import COUPLED, DECOUPLED, FUSED, SHAPES
from cases.behaviour.optimising.update_rules import RATE
from cases.model import tiny
from cases.reference import tolerance
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "torch's optimisers"
NEAR = 1e-6  # relative: float64, with rates and corrections of bias that some optimisers keep in float32
LARGE = 2.0**12  # a scale of gradients
LATE = 300  # steps: bfloat16 has this number, and not the next
FIRST_MOMENTUM = ("SGD, momentum", "SGD, nesterov")
# The names of a parameter's state, by torch's documentation of each algorithm; all have a count of steps but SGD.
STATES: Mapping[str, tuple[str, ...]] = {
    "Adam": ("exp_avg", "exp_avg_sq", "step"),
    "Adam, amsgrad": ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "step"),
    "AdamW": ("exp_avg", "exp_avg_sq", "step"),
    "RAdam": ("exp_avg", "exp_avg_sq", "step"),
    "NAdam": ("exp_avg", "exp_avg_sq", "mu_product", "step"),
    "Adamax": ("exp_avg", "exp_inf", "step"),
    "Adadelta": ("acc_delta", "square_avg", "step"),
    "Adagrad": ("step", "sum"),
    "RMSprop": ("square_avg", "step"),
    "RMSprop, centered": ("grad_avg", "momentum_buffer", "square_avg", "step"),
    "SGD, momentum": ("momentum_buffer",),
    "SGD, nesterov": ("momentum_buffer",),
}


def kinds() -> dict[str, tuple[str, dict[str, Any]]]:
    """Every optimiser of torch for dense gradients that the release has, with its arguments."""
    import torch

    known = {name: (kind, dict(more)) for name, (kind, more, _) in {**COUPLED, **DECOUPLED}.items()}
    known |= {name: (name, {}) for name in ("Rprop", "Adafactor")}
    return {name: each for name, each in known.items() if hasattr(torch.optim, each[0])}


def parameters(dtype: Any = None) -> dict[str, Any]:
    import torch

    return {
        name: torch.nn.Parameter(tiny.values(name, shape).to(dtype or torch.float32)) for name, shape in SHAPES.items()
    }


def give_gradients(held: Mapping[str, Any], step: int, times: float = 1.0) -> None:
    for name, parameter in held.items():
        parameter.grad = (torch_optimisers.gradient(name, step) * times).to(parameter.dtype)


@call(GROUP, phase=Phase.OPTIMIZER)
def optimiser_losses(_ctx: Context) -> Iterator[Check]:
    """step(closure) computes the loss anew, with gradients, and returns it; step() returns None. For every optimiser.

    https://docs.pytorch.org/docs/stable/optim.html#optimizer-step-closure
    """
    import torch

    makers = {**kinds(), "LBFGS": ("LBFGS", {"max_iter": 1})}
    for name, (kind, more) in makers.items():
        parameter = torch.nn.Parameter(torch.full((3,), 2.0))
        made = getattr(torch.optim, kind)([parameter], **{"lr": RATE, **more})
        calls: list[bool] = []

        def closure(parameter: Any = parameter, made: Any = made, calls: list[bool] = calls) -> Any:
            calls.append(torch.is_grad_enabled())
            made.zero_grad()
            loss = parameter.square().sum()
            loss.backward()
            return loss

        with torch.no_grad():
            loss = made.step(closure)
        yield equal(f"loss, {name}", str(None if loss is None else float(loss)), "12.0")
        yield equal(f"calls with gradients, {name}", str(calls), "[True]")
        yield equal(f"the parameter moved, {name}", bool((parameter.detach() < 2).all()), bound=True)  # noqa: PLR2004
        if name != "LBFGS":  # it needs a closure
            yield equal(f"step() returns, {name}", str(made.step()), "None")


@call(GROUP, phase=Phase.OPTIMIZER)
def optimisers_keep_gradients(_ctx: Context) -> Iterator[Check]:
    """A step changes no gradient: a script may log it, clip it or step again with it. For every optimiser and way."""
    for name, (kind, more) in kinds().items():
        if name == "SGD, nesterov":  # see nesterov_keeps_gradients
            continue
        yield from kept_gradients(name, kind, more)


@call(GROUP, phase=Phase.OPTIMIZER)
def nesterov_keeps_gradients(_ctx: Context) -> Iterator[Check]:
    """A step of SGD with nesterov changes no gradient either.

    torch 2.5 to 2.15 adds the momentum to the gradients themselves if foreach=True and neither decay nor maximize
    copied them.
    """
    yield from kept_gradients("SGD, nesterov", *kinds()["SGD, nesterov"])


def kept_gradients(name: str, kind: str, more: Mapping[str, Any]) -> Iterator[Check]:
    import torch

    changed = []
    for foreach, maximize, decay in product((False, True), (False, True), (0.0, 0.1)):
        chosen = {"foreach": foreach, "maximize": maximize}
        if kind != "Rprop":
            chosen["weight_decay"] = decay  # type: ignore[assignment]
        held = parameters()
        made = getattr(torch.optim, kind)([*held.values()], **{"lr": RATE, **more, **chosen})
        for step in (1, 2):
            give_gradients(held, step)
            made.step()
            kept = all(each.grad.equal(torch_optimisers.gradient(key, step)) for key, each in held.items())
            if not kept:
                changed.append(f"{chosen}")
    yield equal(f"ways that change gradients, {name}", " ".join(changed) or "none", "none")


@call(GROUP, phase=Phase.SAVE)
def optimiser_states(_ctx: Context) -> Iterator[Check]:
    """An optimiser keeps the moments of its algorithm for each parameter that had a gradient, and no others.

    Before a step there is no state; SGD without momentum never has any. Adagrad makes its sums at once. Steps are
    counted exactly whatever torch's default dtype is: bfloat16 has no 257.
    """
    import torch

    for name, (kind, more) in kinds().items():
        if name not in STATES and name != "SGD":
            continue
        for foreach in (False, True):
            held = parameters()
            unused = torch.nn.Parameter(torch.ones(2))
            made = getattr(torch.optim, kind)([*held.values(), unused], **{"lr": RATE, "foreach": foreach, **more})
            title = f"{name}, foreach={foreach}"
            if kind != "Adagrad":
                yield equal(f"state at the start, {title}", str(made.state_dict()["state"]), "{}")
            for step in (1, 2):
                give_gradients(held, step)
                made.step()
            state = made.state_dict()["state"]
            names = {number: tuple(sorted(each)) for number, each in state.items()}
            wanted = dict.fromkeys(range(2 + (kind == "Adagrad")), STATES[name]) if name in STATES else {}
            yield equal(f"names of states, {title}", str(names), str(wanted))
            counts = {float(each["step"]) for number, each in state.items() if "step" in each and number < len(held)}
            yield equal(
                f"counts of steps, {title}", str(counts), str({2.0} if "step" in STATES.get(name, ()) else set())
            )

    yield from counted_by_any_default()


def counted_by_any_default() -> Iterator[Check]:
    """Compare late steps under default dtypes of less precision with those under float32, bit by bit."""
    import torch

    for name, (kind, more) in kinds().items():
        wanted, _ = late_steps(kind, more, torch.float32)
        for dtype in (torch.bfloat16, torch.float16):
            found, counts = late_steps(kind, more, dtype)
            differ = sum(int((found[key] != wanted[key]).sum()) for key in wanted)
            if kind != "ASGD":  # torch 2.5 to 2.15 rounds its rate of each step to the default dtype
                yield equal(f"numbers of weights that differ, {name}, {dtype}", differ, 0)
            yield equal(f"counts of steps off, {name}, {dtype}", sum(each != LATE + 2 for each in counts), 0)


def late_steps(kind: str, more: Mapping[str, Any], dtype: Any) -> tuple[dict[str, Any], list[float]]:
    """The weights after a first and two late steps of an optimiser under a default dtype, and its counts of steps."""
    import torch

    held = parameters()
    give_gradients(held, 1)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        made = getattr(torch.optim, kind)([*held.values()], **{"lr": RATE, **more})
        made.step()
        counts = [each["step"] for each in made.state.values() if "step" in each]
        for count in counts:
            count.fill_(LATE)
        for _ in range(2):
            made.step()
    finally:
        torch.set_default_dtype(before)
    return {name: each.detach() for name, each in held.items()}, [float(each) for each in counts]


@call(GROUP, phase=Phase.RESUME)
def optimiser_states_of_other_dtypes(_ctx: Context) -> Iterator[Check]:
    """A state loads into parameters of another dtype: moments take it, counts stay whole, and steps go on from them.

    "Make a deep copy of the state and cast it to the parameter's dtype, but not step": Optimizer.load_state_dict.
    """
    import torch

    for name, (kind, more) in kinds().items():
        for source, target in ((torch.float32, torch.bfloat16), (torch.float32, torch.float64)):
            held, other = parameters(source), parameters(target)
            made = getattr(torch.optim, kind)([*held.values()], **{"lr": RATE, **more})
            for step in (1, 2):
                give_gradients(held, step)
                made.step()
            again = getattr(torch.optim, kind)([*other.values()], **{"lr": RATE, **more})
            again.load_state_dict(made.state_dict())
            title = f"{name}, {target}"
            off = []
            for key in SHAPES:
                for part, before in made.state[held[key]].items():
                    after = again.state[other[key]].get(part)
                    is_moment = part != "step"
                    wanted = before.to(target) if is_moment and torch.is_tensor(before) else before
                    same = torch.is_tensor(after) == torch.is_tensor(wanted) and (
                        bool((after == wanted).all()) if torch.is_tensor(after) else after == wanted
                    )
                    if not same or (is_moment and torch.is_tensor(after) and after.dtype is not target):
                        off.append(f"{part} of {key}")
            yield equal(f"states loaded otherwise, {title}", " ".join(off) or "none", "none")
            give_gradients(other, 3)
            again.step()
            finite = all(bool(each.isfinite().all()) for each in other.values())
            yield equal(f"the next step is finite, {title}", finite, bound=True)


@call(GROUP, phase=Phase.OPTIMIZER)
def differentiable_optimisers(_ctx: Context) -> Iterator[Check]:
    """With differentiable=True, a step has derivatives by the weight and the gradient: those of its formula.

    https://docs.pytorch.org/docs/stable/generated/torch.optim.Adam.html
    """
    for name in {**COUPLED, **DECOUPLED}:
        if name not in FIRST_MOMENTUM:
            yield step_and_derivatives(name)


@call(GROUP, phase=Phase.OPTIMIZER)
def differentiable_momentum(_ctx: Context) -> Iterator[Check]:
    """With differentiable=True, the first step of SGD with momentum has derivatives by the gradient, too.

    torch detaches the gradient that becomes the first momentum.
    """
    for name in FIRST_MOMENTUM:
        yield step_and_derivatives(name)


def step_and_derivatives(name: str) -> Check:
    import torch

    kind, more, rule = {**COUPLED, **DECOUPLED}[name]
    found: list[Any] = []
    wanted: list[Any] = []
    for by_library in (True, False):
        weight = tiny.values("matrix", (5, 7)).double().requires_grad_()
        gradient = torch_optimisers.gradient("matrix", 1).double().requires_grad_()
        if by_library:
            parameter = weight.clone()
            parameter.grad = gradient * 1.0
            made = getattr(torch.optim, kind)(
                [parameter], **{"lr": RATE, "weight_decay": 0.0, **more, "differentiable": True}
            )
            made.step()
            stepped = parameter
        else:
            stepped = rule(weight, gradient, {}, 1)
        parts = torch.autograd.grad(stepped.square().sum(), (weight, gradient), materialize_grads=True)
        (found if by_library else wanted).extend((stepped.detach(), *parts))
    worst = max(tolerance.relative(one, other) for one, other in zip(found, wanted, strict=True))
    return at_most(f"step and derivatives off, {name}", worst, NEAR)


@call(GROUP, phase=Phase.OPTIMIZER)
def differentiable_rates(_ctx: Context) -> Iterator[Check]:
    """With differentiable=True, the step of Adam and AdamW has the derivative by a rate that is a tensor."""
    import torch

    for name, rule in (("Adam", update_rules.adam), ("AdamW", update_rules.adam)):
        rate = torch.tensor(RATE, dtype=torch.float64, requires_grad=True)
        parameter = tiny.values("matrix", (5, 7)).double().requires_grad_().clone()
        parameter.grad = torch_optimisers.gradient("matrix", 1).double()
        given = {**torch_optimisers.ADAMS, "weight_decay": 0.0}
        before, gradient = parameter.detach().clone(), parameter.grad.clone()
        made = getattr(torch.optim, name)(
            [parameter], **{**given, "lr": rate, "differentiable": True, "foreach": False}
        )
        made.step()
        found = torch.autograd.grad(parameter.sum(), rate)[0]
        wanted = (rule(before, gradient, {}, 1) - before).sum() / RATE  # a step is a multiple of the rate
        yield at_most(f"derivative by the rate off, {name}", tolerance.relative(found, wanted), NEAR)


@call(GROUP, phase=Phase.OPTIMIZER, requires=("fused_optimisers", "cpu_scaler"))
def fused_optimisers_and_scalers(ctx: Context) -> Iterator[Check]:
    """A fused optimiser divides scaled gradients itself, and skips a step whose gradients overflow.

    GradScaler leaves both to optimisers that support it; the others get gradients that are divided already. Each group
    of parameters has its own rate.
    """
    import torch

    for name in (each for each in FUSED if each != "Adagrad"):
        kind, more, _ = {**COUPLED, **DECOUPLED}[name]
        plain, scaled = parameters(), parameters()
        scaler = torch.amp.GradScaler(ctx.place.kind, init_scale=LARGE, growth_interval=1)
        made = [
            getattr(torch.optim, kind)(
                [{"params": [held["matrix"]]}, {"params": [held["vector"]], "lr": 2 * RATE}],
                **{"lr": RATE, **more, **chosen},
            )
            for held, chosen in ((plain, {"foreach": False}), (scaled, {"fused": True}))
        ]
        for step in range(1, 5):
            overflows = step == 2  # noqa: PLR2004 - any step in the middle
            scale = scaler.get_scale()
            scaler.scale(torch.zeros(()))  # makes the scale
            give_gradients(scaled, step, scale)
            if overflows:
                scaled["vector"].grad[1] = float("inf")
            scaler.step(made[1])
            scaler.update()
            if not overflows:
                give_gradients(plain, step)
                made[0].step()
            wanted_scale = scale / 2 if overflows else scale * 2
            yield equal(f"scale after step {step}, {name}", scaler.get_scale(), wanted_scale)
            worst = max(tolerance.relative(scaled[key].detach(), plain[key].detach()) for key in SHAPES)
            yield at_most(f"weights off after step {step}, {name}", worst, 8 * tolerance.UNIT_ROUNDOFF["fp32"])
