"""What PEFT reports about a model with adapters: its status by layer and as a whole, and its numbers of parameters.

https://huggingface.co/docs/peft/developer_guides/troubleshooting#check-layer-and-model-status
"""

from __future__ import annotations

import contextlib
import io
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.adapters import lora_reference as reference
from cases.behaviour.adapters.lora_reference import FIRST, SECOND
from cases.model import tiny
from cases.space.verdict import Phase, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Several adapters"
BOTH = "['first', 'second']"


def unchanged(_model: Any) -> None:
    """Leave the model as it is made: the first of two adapters is active."""


def second(model: Any) -> None:
    model.set_adapter("second")


def both(model: Any) -> None:
    model.base_model.set_adapter(["first", "second"])


def disabled(model: Any) -> None:
    model.base_model.disable_adapter_layers()


def merged(model: Any) -> None:
    model.merge_adapter(adapter_names=["first"])


def partly_merged(model: Any) -> None:
    next(module for module in model.modules() if hasattr(module, "lora_A")).merge(adapter_names=["first"])


def partly_frozen(model: Any) -> None:
    next(parameter for name, parameter in model.named_parameters() if ".first." in name).requires_grad = False


def partly_switched(model: Any) -> None:
    layers = [module for module in model.modules() if "second" in getattr(module, "lora_A", {})]
    layers[0].set_adapter("second")


# What each change makes of: enabled, active_adapters, merged_adapters, requires_grad of both.
STATES: Mapping[str, tuple[Callable[[Any], None], tuple[Any, ...]]] = {
    "unchanged": (unchanged, (True, ["first"], [], {"first": True, "second": False})),
    "second": (second, (True, ["second"], [], {"first": False, "second": True})),
    "both": (both, (True, ["first", "second"], [], {"first": True, "second": True})),
    "disabled": (disabled, (False, ["first"], [], {"first": False, "second": False})),
    "merged": (merged, (True, ["first"], ["first"], {"first": True, "second": False})),
    "partly merged": (partly_merged, (True, ["first"], "irregular", {"first": True, "second": False})),
    "partly frozen": (partly_frozen, (True, ["first"], [], {"first": "irregular", "second": False})),
    "partly switched": (
        partly_switched,
        (True, "irregular", [], {"first": "irregular", "second": "irregular"}),
    ),
}


@call(GROUP, phase=Phase.ADAPT, requires=("model_status",))
def status_of_model(ctx: Context) -> Iterator[Check]:
    """get_model_status counts parameters and layers, and calls a state irregular that not all layers share."""
    from peft import get_model_status

    for name, (change, wanted) in STATES.items():
        model = reference.adapted(ctx, FIRST, SECOND)
        change(model)
        found = model.get_model_status()
        values = (found.enabled, found.active_adapters, found.merged_adapters, found.requires_grad)
        yield equal(f"status, {name}", str(values), str(wanted))
        yield equal(f"function and method agree, {name}", get_model_status(model) == found, bound=True)
        trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
        whole = sum(p.numel() for p in model.parameters())
        yield equal(f"parameters, {name}", f"{found.trainable_params} {found.total_params}", f"{trained} {whole}")
        names = {
            each for each, _ in model.named_modules() if each.endswith(("q_proj", "v_proj", "up_proj", "down_proj"))
        }
        yield equal(f"layers, {name}", found.num_adapter_layers, len(names))
        yield equal(f"adapters, {name}", f"{found.available_adapters} {found.peft_types}", TYPES)
        yield equal(f"classes, {name}", f"{found.base_model_type} {found.adapter_model_type}", CLASSES)


TYPES = BOTH + " {'first': 'LORA', 'second': 'LORA'}"
CLASSES = "LlamaForCausalLM LoraModel"


@call(GROUP, phase=Phase.ADAPT, requires=("model_status",))
def status_of_layers(ctx: Context) -> Iterator[Check]:
    """get_layer_status lists each layer with the adapters that it has, those active and merged, and what is trained."""
    model = reference.adapted(ctx, FIRST, SECOND)
    model.merge_adapter(adapter_names=["first"])
    found = {each.name: each for each in model.get_layer_status()}
    own = {"q_proj": ["first"], "v_proj": ["first", "second"], "up_proj": ["second"], "down_proj": ["second"]}
    kind = next(model.parameters()).device.type
    for name, adapters in own.items():
        layers = [each for key, each in found.items() if key.endswith(name)]
        yield equal(f"layers, {name}", len(layers), tiny.LAYERS)
        for layer in layers:
            values = (layer.available_adapters, layer.merged_adapters, layer.requires_grad, layer.devices)
            wanted = (
                adapters,
                ["first"] if "first" in adapters else [],
                {each: each == "first" for each in adapters},
                {each: [kind] for each in adapters},
            )
            yield equal(f"status, {name}", str(values), str(wanted))
            yield equal(f"type, {name}", f"{layer.module_type} {layer.enabled} {layer.active_adapters}", TYPE)

    partly_frozen(model)
    irregular = [each.name for each in model.get_layer_status() if each.requires_grad.get("first") == "irregular"]
    yield equal("layers with one trained part", len(irregular), 1)


TYPE = "lora.Linear True ['first']"


@call(GROUP, phase=Phase.ADAPT)
def counted_parameters(ctx: Context) -> Iterator[Check]:
    """get_nb_trainable_parameters and print_trainable_parameters count the adapter, the model, and their share."""
    first = sum(each.numel() for each in sides(ctx).values())
    whole = sum(each.numel() for each in reference.read(ctx).tensors.values())
    model = reference.adapted(ctx, FIRST)
    yield equal("parameters", str(model.get_nb_trainable_parameters()), str((first, whole + first)))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        model.print_trainable_parameters()
    share = 100 * first / (whole + first)
    wanted = f"trainable params: {first:,d} || all params: {whole + first:,d} || trainable%: {share:.4f}"
    yield equal("printed", printed.getvalue().strip(), wanted)
    model.base_model.disable_adapter_layers()
    yield equal("parameters while disabled", str(model.get_nb_trainable_parameters()), str((0, whole + first)))


def sides(ctx: Context) -> dict[str, Any]:
    base = reference.read(ctx)
    return base.sides("first", base.placed(FIRST))
