"""PEFT's optimisers for LoRA: the steps that their papers and documentation define.

LoRA-FA trains B alone (https://arxiv.org/abs/2308.03303); Riemannian preconditioning scales the gradients of both
factors (https://arxiv.org/abs/2402.02347).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.starts import adapted_layers
from cases.model import tiny
from cases.reference.tolerance import relative
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Optimisers of PEFT"
RATE, DECAY, STEPS = 0.125, 0.25, 3
EPS = 4.0  # as large as the gradients, so that their size counts and not their sign alone
SMALL_EPS = 0.1  # of LoRA-FA, which adds it before the bias correction: near the root of its second moments
BETAS = (0.9, 0.999)
# Relative errors of what three steps change: LoRA-FA multiplies in bfloat16 where the machine has it.
NEAR, SAME = 3e-2, 1e-4
DAMPING = 0.5
MARKS = (".lora_A.", ".lora_B.")
PARTS: Mapping[str, Mapping[str, Any]] = {
    "": {"target_modules": ["wide", "tall", "words"]},
    "dora": {"use_dora": True, "modules_to_save": ["words"]},
}


def adapted(**more: Any) -> Any:
    """Two linear layers and an embedding with adapters, of other ranks and alphas, and a bias that is trained."""
    model = adapted_layers.adapted(adapted_layers.base(), adapted_layers.lora(**more))
    return adapted_layers.fill(model)


def gradient(name: str, step: int, shape: tuple[int, ...]) -> Any:
    return tiny.values(f"{name} in step {step}", shape) * 8


def give_gradients(model: Any, step: int) -> None:
    for name, parameter in model.named_parameters():
        parameter.grad = gradient(name, step, tuple(parameter.shape)) if parameter.requires_grad else None


def copies(model: Any) -> dict[str, Any]:
    return {name: parameter.detach().double().clone() for name, parameter in model.named_parameters()}


class Adam:
    """AdamW as LoRA-FA documents it: of Transformers, whose decay follows the step."""

    def __init__(self) -> None:
        self.first: dict[str, Any] = {}
        self.second: dict[str, Any] = {}

    def step(self, name: str, weight: Any, grad: Any, number: int, decay: float) -> Any:
        first = self.first.get(name, 0.0) * BETAS[0] + (1 - BETAS[0]) * grad
        second = self.second.get(name, 0.0) * BETAS[1] + (1 - BETAS[1]) * grad**2
        self.first[name], self.second[name] = first, second
        size = RATE * math.sqrt(1 - BETAS[1] ** number) / (1 - BETAS[0] ** number)
        moved = weight - size * first / (second.sqrt() + SMALL_EPS)
        return moved - RATE * decay * moved


def changed(found: Mapping[str, Any], wanted: Mapping[str, Any], begin: Mapping[str, Any]) -> float:
    """The largest relative error of what the steps changed."""
    return max(relative(found[name] - begin[name], wanted[name] - begin[name]) for name in wanted)


@call(GROUP, phase=Phase.OPTIMIZER, requires=("lorafa",))
def lorafa_steps(_ctx: Context) -> Iterator[Check]:
    """LoRA-FA freezes A and steps B by its gradient times (A A^T)^-1 / scaling^2; other weights get AdamW's step.

    Each layer has the scaling of its own rank and alpha, and of rsLoRA.
    """
    import torch
    from peft.optimizers import create_lorafa_optimizer

    patterns = {"rank_pattern": {"wide": 4}, "alpha_pattern": {"tall": 60}}
    scalings = {"": {"wide": 20 / 12, "tall": 20 / 12}, "rslora": {"wide": 20 / 12**0.5, "tall": 20 / 12**0.5}}
    scalings["patterns"] = {"wide": 20 / 4, "tall": 60 / 12}
    settings: dict[str, dict[str, Any]] = {"": {}, "rslora": {"use_rslora": True}, "patterns": patterns}
    for title, more in settings.items():
        for decay in (0.0, DECAY):
            model = adapted(bias="lora_only", **more)
            made = create_lorafa_optimizer(model, r=12, lora_alpha=20, lr=RATE, weight_decay=decay)
            for group in made.param_groups:
                group["eps"] = SMALL_EPS
            begin, adam = copies(model), Adam()
            wanted = {name: begin[name] for name, each in model.named_parameters() if each.requires_grad}
            yield equal(f"trained parts of A, {title}, decay {decay}", sum(".lora_A." in name for name in wanted), 0)
            for step in range(STEPS):
                give_gradients(model, step)
                for name, weight in wanted.items():
                    grad = gradient(name, step, tuple(begin[name].shape)).double()
                    if ".lora_B." in name:
                        factor = begin[name.replace(".lora_B.", ".lora_A.")]
                        scaling = scalings[title]["wide" if ".wide." in name else "tall"]
                        grad = grad @ torch.linalg.inv(factor @ factor.T) / scaling**2
                    wanted[name] = adam.step(name, weight, grad, step + 1, decay)
                made.step()
            found = copies(model)
            yield at_most(f"steps off, {title}, decay {decay}", changed(found, wanted, begin), NEAR)
            still = max(float((found[name] - begin[name]).abs().max()) for name in begin.keys() - wanted.keys())
            yield at_most(f"frozen weights moved, {title}, decay {decay}", still, 0.0)


@call(GROUP, phase=Phase.OPTIMIZER, requires=("riemannian",))
def riemannian_steps(_ctx: Context) -> Iterator[Check]:
    """The gradient of A becomes (B^T B + reg)^-1 g, that of B g (A A^T + reg)^-1, before any optimiser's step.

    Magnitudes of DoRA, adapters of embeddings and other weights keep their gradients.
    """
    import torch
    from peft.optimizers import create_riemannian_optimizer

    every: tuple[tuple[Any, dict[str, Any]], ...] = (
        (torch.optim.SGD, {"momentum": 0.5}),
        (torch.optim.AdamW, {"eps": EPS, "weight_decay": DECAY}),
    )
    for kind, arguments in every:
        for title, more in PARTS.items():
            model = adapted(**more)
            begin = copies(model)
            trained = [name for name, each in model.named_parameters() if each.requires_grad]
            twin = {name: begin[name].clone().requires_grad_() for name in trained}
            made = create_riemannian_optimizer(model, kind, lr=RATE, reg=DAMPING, **arguments)
            reference = kind([*twin.values()], lr=RATE, **arguments)
            for step in range(STEPS):
                give_gradients(model, step)
                for name, weight in twin.items():
                    grad = gradient(name, step, tuple(weight.shape)).double()
                    weight.grad = preconditioned(name, grad, twin)
                made.step()
                reference.step()
            found = {name: each for name, each in copies(model).items() if name in twin}
            wanted = {name: each.detach() for name, each in twin.items()}
            name = f"{kind.__name__}, {title}"
            yield at_most(f"steps off, {name}", changed(found, wanted, begin), SAME)
            yield equal(f"an optimiser of the class, {name}", isinstance(made, kind), bound=True)


def preconditioned(name: str, grad: Any, weights: Mapping[str, Any]) -> Any:
    import torch

    if not any(mark in name for mark in MARKS):
        return grad
    is_first = MARKS[0] in name
    other = weights[name.replace(*(MARKS if is_first else MARKS[::-1]))].detach()
    gram = other.T @ other if is_first else other @ other.T
    inverse = torch.linalg.inv(gram + DAMPING * torch.eye(gram.shape[0], dtype=gram.dtype))
    return inverse @ grad if is_first else grad @ inverse
