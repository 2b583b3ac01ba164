"""Which layers of a language model every method adapts if target_modules names none, or all linear ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.adapters import lora_reference as reference
from cases.behaviour.adapters.adapter_selection import ATTENTION, FEED_FORWARD
from cases.behaviour.adapters.methods.life_cycle import every
from cases.model import tiny
from cases.space.verdict import Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.behaviour.adapters.methods.layers import Method
    from cases.space.verdict import Check

GROUP = "Choosing an adapter's modules"
# The layers that the papers of these methods adapt, and PEFT documents for Llama models.
DEFAULTS = {
    "lora": ("q_proj", "v_proj"),
    "dora": ("q_proj", "v_proj"),
    "adalora": ("q_proj", "v_proj"),
    "vera": ("q_proj", "v_proj"),
    "ia3": ("down_proj", "k_proj", "v_proj"),
}


def adapted(model: Any) -> set[str]:
    """The adapted layers, by their names in the base."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    found = {name for name, module in model.named_modules() if isinstance(module, BaseTunerLayer)}
    return {name.removeprefix("base_model.model.") for name in found}


def layers(*names: str) -> set[str]:
    return {
        f"model.layers.{number}.{'self_attn' if name in ATTENTION else 'mlp'}.{name}"
        for number in range(tiny.LAYERS)
        for name in names
    }


def difference(found: set[str], wanted: set[str]) -> str:
    return " ".join(sorted(found ^ wanted)) or "none"


@call(GROUP, phase=Phase.ADAPT)
def all_linear_by_method(ctx: Context) -> Iterator[Check]:
    """target_modules="all-linear" adapts every linear layer but the head, for every method."""
    from peft import get_peft_model

    def story(key: str, method: Method) -> Iterator[Check]:
        more: dict[str, Any] = {"feedforward_modules": []} if key == "ia3" else {}
        model = get_peft_model(reference.loaded(ctx), method.made("first", target_modules="all-linear", **more))
        found = difference(adapted(model), layers(*ATTENTION, *FEED_FORWARD))
        yield equal(f"layers adapted or left out by {key}", found, "none")

    yield from every(story)


@call(GROUP, phase=Phase.ADAPT)
def default_targets_by_method(ctx: Context) -> Iterator[Check]:
    """Without target_modules, a method adapts the layers of a Llama model that its paper does, by its architecture."""
    from peft import get_peft_model

    def story(key: str, method: Method) -> Iterator[Check]:
        if key not in DEFAULTS:
            return
        more: dict[str, Any] = {"feedforward_modules": None} if key == "ia3" else {}
        model = get_peft_model(reference.loaded(ctx), method.made("first", target_modules=None, **more))
        found = difference(adapted(model), layers(*DEFAULTS[key]))
        yield equal(f"layers adapted or left out by {key}", found, "none")

    yield from every(story)
