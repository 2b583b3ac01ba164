"""What torch's schedulers write into the groups of an optimiser, which cuts they skip, and what they refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.optimising.torch_schedules import GROUP
from cases.space.verdict import Phase, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check


def made(kind: str = "SGD", rates: tuple[float, ...] = (0.4, 0.1), **more: Any) -> Any:
    import torch

    groups = [{"params": [torch.nn.Parameter(torch.ones(2))], "lr": rate} for rate in rates]
    return getattr(torch.optim, kind)(groups, **more)


def refusal(action: Callable[[], Any], kind: type[Exception], word: str) -> str:
    """The word if the action raises this class with a message that has it, else what happened instead."""
    try:
        action()
    except kind as error:
        return word if word in str(error) else str(error)
    return "accepted"


def fields(optimiser: Any, *names: str) -> str:
    """The values of fields of each group, rounded to what floats hold."""
    return str([[round(float(group[name]), 12) for name in names] for group in optimiser.param_groups])


@call(GROUP, phase=Phase.OPTIMIZER)
def torch_plateaus_skip_small_cuts(_ctx: Context) -> Iterator[Check]:
    """ReduceLROnPlateau skips a cut of at most eps, whatever the rate is, and never falls below each group's min_lr.

    https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.ReduceLROnPlateau.html: "If the difference
    between new and old lr is smaller than eps, the update is ignored"
    """
    from torch.optim.lr_scheduler import ReduceLROnPlateau

    chosen = made()
    scheduler = ReduceLROnPlateau(chosen, factor=0.5, patience=0, eps=0.06, min_lr=0.0)
    found = []
    for _ in range(5):
        scheduler.step(1.0)
        found.append([group["lr"] for group in chosen.param_groups])
    # The second group would fall by 0.05 at first; the first one stops when it would fall by 0.05.
    wanted = [[0.4, 0.1], [0.2, 0.1], [0.1, 0.1], [0.1, 0.1], [0.1, 0.1]]
    yield equal("rates", str(found), str(wanted))
    yield equal("get_last_lr", str(scheduler.get_last_lr()), str(wanted[-1]))
    chosen = made()
    scheduler = ReduceLROnPlateau(chosen, factor=0.1, patience=0, min_lr=[0.3, 0.05])
    for _ in range(3):
        scheduler.step(1.0)
    yield equal("rates at their least", fields(chosen, "lr"), str([[0.3], [0.05]]))


@call(GROUP, phase=Phase.OPTIMIZER, requires=("plateaus_of_new_groups",))
def torch_plateaus_of_new_groups(_ctx: Context) -> Iterator[Check]:
    """ReduceLROnPlateau cuts groups that came later if min_lr is one number; a list for other groups is refused."""
    import torch
    from torch.optim.lr_scheduler import ReduceLROnPlateau

    more = {"factor": 0.5, "patience": 0}
    for title, least in (("one number", 0.01), ("a list", [0.01, 0.02])):
        chosen = made()
        scheduler = ReduceLROnPlateau(chosen, min_lr=least, **more)
        chosen.add_param_group({"params": [torch.nn.Parameter(torch.ones(1))], "lr": 0.8})
        scheduler.step(1.0)
        if title == "one number":
            scheduler.step(1.0)
            yield equal("rates with a later group", fields(chosen, "lr"), str([[0.2], [0.05], [0.4]]))
        else:
            said = refusal(lambda: scheduler.step(1.0), RuntimeError, "param groups")  # noqa: B023 - called here
            yield equal("a list for fewer groups", said, "param groups")
    refused: dict[str, tuple[Callable[[], Any], str]] = {
        "a factor of 1": (lambda: ReduceLROnPlateau(made(), factor=1.0), "Factor"),
        "three least rates for two groups": (lambda: ReduceLROnPlateau(made(), min_lr=[0.1] * 3), "expected 2 min_lrs"),
        "an unknown mode": (lambda: ReduceLROnPlateau(made(), mode="low"), "mode low"),
        "an unknown threshold_mode": (lambda: ReduceLROnPlateau(made(), threshold_mode="sum"), "threshold mode sum"),
    }
    for title, (action, word) in refused.items():
        yield equal(title, refusal(action, ValueError, word), word)


@call(GROUP, phase=Phase.OPTIMIZER)
def torch_cyclic_fields(_ctx: Context) -> Iterator[Check]:
    """CyclicLR sets each group to its base rate and largest momentum, which it states, of SGD as of AdamW's first beta.

    https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.CyclicLR.html
    """
    from torch.optim.lr_scheduler import CyclicLR

    momenta = {"base_momentum": [0.5, 0.6], "max_momentum": [0.8, 0.9]}
    low, high = [0.01, 0.02], [0.1, 0.2]
    for kind, more in (("SGD", {"momentum": 0.7}), ("AdamW", {"betas": (0.7, 0.99)})):
        chosen = made(kind, **more)
        scheduler = CyclicLR(chosen, low, high, step_size_up=2, **momenta)
        wanted = [[low[n], low[n], momenta["base_momentum"][n], momenta["max_momentum"][n]] for n in (0, 1)]
        stated = fields(chosen, "lr", "initial_lr", "base_momentum", "max_momentum")
        yield equal(f"fields of groups, {kind}", stated, str(wanted))

        def now(chosen: Any = chosen, kind: str = kind) -> list[float]:
            groups = chosen.param_groups
            return [round(group["momentum"] if kind == "SGD" else group["betas"][0], 12) for group in groups]

        seen = [now()]
        for _ in range(2):
            chosen.step()
            scheduler.step()
            seen.append(now())
        yield equal(f"momenta on the way up, {kind}", str(seen), str([[0.8, 0.9], [0.65, 0.75], [0.5, 0.6]]))
        if kind == "AdamW":
            yield equal("second betas", str({group["betas"][1] for group in chosen.param_groups}), "{0.99}")
        chosen = made(kind, **more)
        CyclicLR(chosen, low, high, cycle_momentum=False)
        kept = {group["momentum"] if kind == "SGD" else group["betas"][0] for group in chosen.param_groups}
        yield equal(f"momenta with cycle_momentum=False, {kind}", str(kept), "{0.7}")
        yield equal(f"fields with cycle_momentum=False, {kind}", str("max_momentum" in chosen.param_groups[0]), "False")
    refused: dict[str, tuple[Callable[[], Any], str]] = {
        "an optimiser without momentum": (lambda: CyclicLR(made("Adagrad"), 0.1, 0.2), "momentum"),
        "an unknown mode": (lambda: CyclicLR(made(momentum=0.9), 0.1, 0.2, mode="square"), "mode is invalid"),
        "three rates for two groups": (lambda: CyclicLR(made(momentum=0.9), [0.1] * 3, 0.2), "base_lr"),
    }
    for title, (action, word) in refused.items():
        yield equal(title, refusal(action, ValueError, word), word)


@call(GROUP, phase=Phase.OPTIMIZER)
def torch_one_cycle_fields(_ctx: Context) -> Iterator[Check]:
    """OneCycleLR states the rates and momenta between which each group moves, and refuses steps beyond its end.

    https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.OneCycleLR.html
    """
    from torch.optim.lr_scheduler import OneCycleLR

    for kind, more in (("SGD", {"momentum": 0.7}), ("AdamW", {"betas": (0.7, 0.99)})):
        chosen = made(kind, **more)
        settings = {"div_factor": 4.0, "final_div_factor": 10.0, "base_momentum": 0.5, "max_momentum": 0.9}
        scheduler = OneCycleLR(chosen, max_lr=[0.4, 0.8], epochs=3, steps_per_epoch=2, **settings)
        wanted = [[peak / 4, peak / 4, peak, peak / 40, 0.5, 0.9] for peak in (0.4, 0.8)]
        wanted = [[round(each, 12) for each in group] for group in wanted]
        names = ("lr", "initial_lr", "max_lr", "min_lr", "base_momentum", "max_momentum")
        yield equal(f"fields of groups, {kind}", fields(chosen, *names), str(wanted))
        first = [group["momentum"] if kind == "SGD" else group["betas"][0] for group in chosen.param_groups]
        yield equal(f"momenta at the start, {kind}", str(first), "[0.9, 0.9]")
        for _ in range(5):
            chosen.step()
            scheduler.step()
        yield equal(f"rates at the end, {kind}", fields(chosen, "lr"), str([[group[3]] for group in wanted]))
        scheduler.step()  # the end itself is still allowed
        yield equal(f"a step beyond the end, {kind}", refusal(scheduler.step, ValueError, "total"), "total")
    refused: dict[str, tuple[Callable[[], Any], str]] = {
        "no number of steps": (lambda: OneCycleLR(made(momentum=0.9), 0.1), "total_steps"),
        "no steps": (lambda: OneCycleLR(made(momentum=0.9), 0.1, total_steps=0), "total_steps"),
        "a share above 1": (lambda: OneCycleLR(made(momentum=0.9), 0.1, total_steps=5, pct_start=1.5), "pct_start"),
        "an unknown curve": (
            lambda: OneCycleLR(made(momentum=0.9), 0.1, total_steps=5, anneal_strategy="sin"),
            "anneal_strategy",
        ),
        "an optimiser without momentum": (lambda: OneCycleLR(made("Adagrad"), 0.1, total_steps=5), "momentum"),
    }
    for title, (action, word) in refused.items():
        yield equal(title, refusal(action, ValueError, word), word)
