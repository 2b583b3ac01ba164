"""The values that adapters start from: put into a PEFT model, and checked where PEFT computes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.model import adapters, architectures, tiny
from cases.space.options import DECOMPOSED
from cases.space.verdict import Check, at_most

if TYPE_CHECKING:
    from cases.space.options import Options


def start(model: Any, options: Options) -> None:
    """Set the start values of an adapter by name: PEFT's zeros would hide errors, and its random values vary.

    Keeps the values that PEFT computes from the base weights: DoRA's magnitude, and decompositions except their signs.
    """
    import torch

    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if ".vera_" in name:
                buffer.copy_(adapters.value(tiny.canonical(name).rpartition(".")[2], tuple(buffer.shape)))
        if options.method in DECOMPOSED:
            from cases.reference import adapter_layers  # cells of other methods do not depend on it

            for name, layer in decomposed_layers(model).items():
                base = architectures.linear_values(name, tuple(layer.get_base_layer().weight.shape), options)
                _, parts = adapter_layers.decomposed(base, options)
                a, b = (each["default"].weight for each in (layer.lora_A, layer.lora_B))
                settle_signs(a, b, parts["lora_A.weight"])
            return
        for name, parameter in tiny.named(model):
            if tiny.is_adapter(name) and "magnitude" not in name and "ranknum" not in name:
                parameter.copy_(adapters.value(name, tuple(parameter.shape)))


def decomposed_layers(model: Any) -> dict[str, Any]:
    """PEFT's LoRA layers, by the canonical name of the weight that they are put on."""
    return {
        tiny.canonical(f"{name}.weight"): module for name, module in model.named_modules() if hasattr(module, "lora_A")
    }


def settle_signs(a: Any, b: Any, reference: Any) -> None:
    """In place: singular vectors are unique up to their sign; each row of A gets the reference's."""
    signs = (a.float().cpu() * reference).sum(dim=1, keepdim=True).sign().to(a)
    a.mul_(signs)
    b.mul_(signs.T)


def start_checks(model: Any, options: Options, roundoff: float) -> list[Check]:
    """Check a start that is computed from the base weights: residual plus update must equal the base.

    LoftQ must come nearer to the base than its quantised weights alone: 8 of 64 ranks remove over a tenth of the error.
    """
    import torch

    if options.method not in DECOMPOSED:
        return []
    off, quantised = [], []
    with torch.no_grad():
        for name, layer in decomposed_layers(model).items():
            base = architectures.linear_values(name, tuple(layer.get_base_layer().weight.shape), options)
            weight = layer.get_base_layer().weight.float().cpu()
            a, b = (part["default"].weight.float().cpu() for part in (layer.lora_A, layer.lora_B))
            off.append(float((weight + adapters.scaling(options) * b @ a - base).norm() / base.norm()))
            quantised.append(float((weight - base).norm() / base.norm()))
    if options.method == "loftq":
        return [at_most("start off the base / without adapter", max(map(share, off, quantised)), 0.9)]
    return [at_most("start off the base", max(off), 2 * roundoff)]


def share(part: float, whole: float) -> float:
    return part / whole if whole else float("inf")
