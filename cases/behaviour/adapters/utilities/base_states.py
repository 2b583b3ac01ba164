"""The state of the base below adapters of every method, taken and given by the names that the base had without them.

https://huggingface.co/docs/peft/package_reference/functional
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.adapters.methods import layers
from cases.behaviour.adapters.methods.life_cycle import every
from cases.behaviour.adapters.methods.made_in_place import differing
from cases.behaviour.starts import adapted_layers
from cases.model import tiny
from cases.space.verdict import Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.behaviour.adapters.methods.layers import Method
    from cases.space.verdict import Check

GROUP = "States of the base"
NEEDS = ("base_states",)


def other_base() -> Any:
    """A base of the same shapes with other values."""
    import torch

    made = adapted_layers.base()
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            parameter.copy_(tiny.values(f"other {name}", tuple(parameter.shape)))
    return made


def both_ways(title: str, model: Any) -> Iterator[Check]:
    """Take the base's state, give another one, and take it again; the adapters keep theirs."""
    from peft.utils.save_and_load import get_base_model_state_dict, set_base_model_state_dict

    plain, other = adapted_layers.base().state_dict(), other_base().state_dict()
    yield equal(f"base's tensors that are others, {title}", differing(get_base_model_state_dict(model), plain), "none")
    before = {name: each.detach().clone() for name, each in model.named_parameters() if each.requires_grad}
    result = set_base_model_state_dict(model, other)
    yield equal(f"names that fit not, {title}", f"{result.missing_keys} {result.unexpected_keys}", "[] []")
    yield equal(
        f"base's tensors that are others, {title}, set", differing(get_base_model_state_dict(model), other), "none"
    )
    after = {name: each for name, each in model.named_parameters() if each.requires_grad}
    yield equal(f"trained tensors that are others, {title}", differing(after, before), "none")


@call(GROUP, phase=Phase.SAVE, requires=NEEDS)
def base_states_by_method(_ctx: Context) -> Iterator[Check]:
    """The base's state has the base's names and values below adapters of every method, and can be replaced."""

    def story(key: str, method: Method) -> Iterator[Check]:
        yield from both_ways(key, layers.adapted(method))

    yield from every(story)


@call(GROUP, phase=Phase.SAVE, requires=NEEDS)
def base_states_below_copies(_ctx: Context) -> Iterator[Check]:
    """Modules in modules_to_save, trained tokens, DoRA and adapters of embeddings leave the base's names and values."""
    settings: dict[str, dict[str, Any]] = {
        "modules_to_save": {"modules_to_save": ["words"]},
        "trained tokens": {"trainable_token_indices": {"words": [1, 5]}},
        "embeddings": {"target_modules": ["words", "wide"]},
        "dora": {"use_dora": True},
        "biases of adapters": {"lora_bias": True},
    }
    for title, more in settings.items():
        model = adapted_layers.adapted(adapted_layers.base(), adapted_layers.lora(**more))
        yield from both_ways(title, model)


@call(GROUP, phase=Phase.SAVE, requires=NEEDS)
def base_states_that_do_not_fit(_ctx: Context) -> Iterator[Check]:
    """Strict refuses a state that lacks names or has others; without it, these names are returned."""
    from peft.utils.save_and_load import set_base_model_state_dict

    plain, other = adapted_layers.base().state_dict(), other_base().state_dict()
    fewer = {name: each for name, each in other.items() if name != "wide.bias"}
    more = {**other, "wide.other": other["wide.bias"]}
    for title, state, missing, unexpected in (
        ("fewer", fewer, ["wide.bias"], []),
        ("more", more, [], ["wide.other"]),
    ):
        model = adapted_layers.adapted(adapted_layers.base(), adapted_layers.lora())
        refused = ""
        try:
            set_base_model_state_dict(model, state)
        except RuntimeError as error:
            refused = "yes" if (missing + unexpected)[0] in str(error) else str(error)
        yield equal(f"refused, {title}", refused, "yes")
        layer = adapted_layers.layer(model, "wide").get_base_layer()
        yield equal(f"weight after the refusal, {title}", layer.weight.equal(plain["wide.weight"]), bound=True)
        result = set_base_model_state_dict(model, state, strict=False)
        yield equal(f"names, {title}", f"{result.missing_keys} {result.unexpected_keys}", f"{missing} {unexpected}")
        yield equal(f"weight, {title}", layer.weight.equal(other["wide.weight"]), bound=True)
