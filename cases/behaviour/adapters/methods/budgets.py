"""AdaLoRA's budget: which singular values are left after each step, by the paper, and what a file keeps of them.

https://arxiv.org/abs/2303.10512, section 3.2 and algorithm 1; the schedule is that of the authors' code.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.adapters.methods import layers
from cases.behaviour.starts import adapted_layers
from cases.model import tiny
from cases.reference.tolerance import relative, worst
from cases.space.verdict import Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

    Tensors = dict[str, Any]

GROUP = "AdaLoRA's budget"
RATE, NEAR = 0.01, 1e-5
METHOD = layers.METHODS["adalora"]


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The fields of ``AdaLoraConfig`` that determine the budget."""

    init_r: int = 6
    target_r: int = 2
    tinit: int = 2
    tfinal: int = 3
    total_step: int = 12
    deltaT: int = 1  # noqa: N815 - as PEFT names it
    beta1: float = 0.85
    beta2: float = 0.6

    def budget(self, step: int, matrices: int) -> int:
        """The number of singular values of all matrices together: constant, then a cubic decrease, then constant."""
        first, last = self.init_r * matrices, self.target_r * matrices
        left = 1 - (step - self.tinit) / (self.total_step - self.tfinal - self.tinit)
        return int((first - last) * min(max(left, 0.0), 1.0) ** 3 + last)

    def prunes(self, step: int) -> bool:
        """Whether a step chooses singular values; after the last choice they are fixed."""
        last = self.total_step - self.tfinal
        return step == last or (self.tinit < step < last and step % self.deltaT == 0)


@dataclass
class Importance:
    """The importance of singular values by smoothed sensitivities and their uncertainty (eq. 8 to 11)."""

    schedule: Schedule
    sensitivity: Tensors = field(default_factory=dict)
    uncertainty: Tensors = field(default_factory=dict)

    def update(self, weights: Tensors, gradients: Tensors) -> None:
        for name, weight in weights.items():
            now = (weight * gradients[name]).abs()
            smooth = self.schedule.beta1 * self.sensitivity.get(name, 0.0) + (1 - self.schedule.beta1) * now
            unsure = (now - smooth).abs()
            self.sensitivity[name] = smooth
            self.uncertainty[name] = (
                self.schedule.beta2 * self.uncertainty.get(name, 0.0) + (1 - self.schedule.beta2) * unsure
            )

    def of(self, layer: str) -> Any:
        """One number for each singular value: its own, and the means of both of its vectors."""
        left, middle, right = (
            self.sensitivity[f"{layer}.lora_{part}"] * self.uncertainty[f"{layer}.lora_{part}"] for part in "AEB"
        )
        return left.mean(1) + middle[:, 0] + right.mean(0)


def kept(importance: Importance, names: tuple[str, ...], budget: int) -> dict[str, Any]:
    """For each layer, which of its singular values are among the most important ones of all."""
    import torch

    scores = {name: importance.of(name) for name in names}
    least = torch.cat(list(scores.values())).sort(descending=True).values[budget - 1]
    return {name: score >= least for name, score in scores.items()}


def made(schedule: Schedule) -> Any:
    import peft

    config = peft.AdaLoraConfig(target_modules=list(adapted_layers.TARGETS), lora_alpha=6, **vars(schedule))
    model = peft.get_peft_model(adapted_layers.base(), config)
    return layers.fill(model, METHOD)


def parts(model: Any) -> Tensors:
    """The parts of the adapter by layer and part."""
    found = {}
    for name, parameter in model.named_parameters():
        words = name.split(".")
        if words[-1] == "default" and words[-2] in ("lora_A", "lora_B", "lora_E"):
            found[f"{words[-3]}.{words[-2]}"] = parameter
    return found


def gradient(name: str, like: Any, step: int) -> Any:
    """Random numbers of a spread that differs by rank, and lasts: else the means of long vectors would be alike."""
    import torch

    seed, lasting = (torch.Generator().manual_seed(1000 * each + sum(map(ord, name))) for each in (step, 0))
    found = torch.randn(like.shape, generator=seed)
    if name.endswith("_E"):
        return found
    ranks = 3 * torch.rand(like.shape[1 if name.endswith("_B") else 0], generator=lasting)
    return found * (ranks if name.endswith("_B") else ranks[:, None])


def trained(model: Any, schedule: Schedule) -> Iterator[tuple[int, Tensors, Tensors]]:
    """Train with given gradients; yields each step, the singular values, and those of the paper."""
    import torch

    mine = parts(model)
    own = {name: part.detach().double().clone() for name, part in mine.items()}
    importance, choice = Importance(schedule), dict[str, Any]()
    for step in range(1, schedule.total_step + 1):
        gradients = {name: gradient(name, part, step) for name, part in mine.items()}
        with torch.no_grad():
            for name, part in mine.items():
                part.grad = gradients[name].to(part.device)
                part.add_(part.grad, alpha=-RATE)
                own[name] -= RATE * gradients[name].double()
        model.base_model.update_and_allocate(step)
        if step < schedule.total_step - schedule.tfinal:  # the authors' code does not count the last steps
            importance.update(own, {name: each.double() for name, each in gradients.items()})
        if schedule.prunes(step):
            choice = kept(importance, adapted_layers.TARGETS, schedule.budget(step, len(adapted_layers.TARGETS)))
        if schedule.prunes(step) or step > schedule.total_step - schedule.tfinal:
            for layer, mask in choice.items():
                own[f"{layer}.lora_E"] *= mask[:, None]
        values = {name: part.detach().double().cpu().clone() for name, part in mine.items() if name.endswith("_E")}
        yield step, values, {name: own[name].clone() for name in values}


@call(GROUP, phase=Phase.OPTIMIZER)
def adalora_budgets(_ctx: Context) -> Iterator[Check]:
    """After each step, AdaLoRA keeps the most important singular values of its budget, for several schedules."""
    schedules = {
        "every step": Schedule(),
        "every third step": Schedule(deltaT=3, tinit=1, tfinal=1, total_step=14),
        "other averages": Schedule(beta1=0.4, beta2=0.9, init_r=4, target_r=1),
        "short": Schedule(tinit=1, tfinal=1, total_step=4, target_r=3),
    }
    for name, schedule in schedules.items():
        wrong, off, sizes = [], [], []
        for step, found, wanted in trained(made(schedule), schedule):
            wrong += [step for layer in wanted if not (found[layer] == 0).equal(wanted[layer] == 0)]
            off += [relative(found[layer], wanted[layer]) for layer in wanted if wanted[layer].any()]
            sizes.append(sum(int((each != 0).sum()) for each in wanted.values()))
        yield equal(f"steps with other singular values, {name}", "+".join(map(str, wrong)) or "none", "none")
        yield at_most(f"singular values off, {name}", worst(off), NEAR)
        yield equal(f"singular values in the end, {name}", sizes[-1], schedule.target_r * len(adapted_layers.TARGETS))
        yield at_least(f"numbers of singular values on the way, {name}", len(set(sizes)), 2)


@call(GROUP, phase=Phase.RELOAD)
def adalora_pruned_file(ctx: Context) -> Iterator[Check]:
    """An AdaLoRA adapter that was pruned is saved and loaded with the update it had, twice."""
    import peft
    import torch

    schedule = Schedule()
    model = made(schedule)
    *_, last = trained(model, schedule)
    ranks = {name: int((values != 0).sum()) for name, values in last[1].items()}
    wanted = layers.applied(model.eval())
    plain = layers.applied(adapted_layers.base())
    for turn in ("first", "second"):
        folder = ctx.kept / turn
        model.save_pretrained(folder)
        saved = peft.load_peft_weights(str(folder), device="cpu")
        sizes = {name.split(".")[-2]: len(each) for name, each in saved.items() if name.endswith("lora_E")}
        expected = {name.split(".")[0]: size for name, size in ranks.items()}
        yield equal(f"singular values saved, {turn}", str(sorted(sizes.items())), str(sorted(expected.items())))
        torch.manual_seed(5)
        model = peft.PeftModel.from_pretrained(copy.deepcopy(adapted_layers.base()), folder).eval()
        found = layers.applied(model)
        for name in adapted_layers.TARGETS:
            update = wanted[name][0] - plain[name][0]
            yield at_most(f"update off, {turn}", relative(found[name][0] - plain[name][0], update), tiny.RANK * NEAR)
