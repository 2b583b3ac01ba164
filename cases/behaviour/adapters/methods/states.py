"""What PEFT reports about the adapters of any method, and what their parameters are, whatever happened to them.

https://huggingface.co/docs/peft/developer_guides/troubleshooting#check-layer-and-model-status
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.behaviour.adapters.methods.layers import NAMES, TARGETS
from cases.behaviour.starts import adapted_layers
from cases.space.verdict import equal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cases.behaviour.adapters.methods.layers import Method
    from cases.space.verdict import Check


def trained(model: Any) -> set[str]:
    return {name for name, parameter in model.named_parameters() if parameter.requires_grad}


def by_mistake(model: Any, method: Method, adapters: Iterable[str]) -> str:
    """The parameters that are trained or frozen by mistake if only the parts of these adapters are trained."""
    wanted = {
        name
        for name, _ in model.named_parameters()
        if any(mark in name for mark in method.marks) and {*adapters} & {*name.split(".")}
    }
    return " ".join(sorted(trained(model) ^ wanted)) or "none"


def reported(
    title: str,
    model: Any,
    method: Method,
    active: Sequence[str],
    *,
    merged: Sequence[str] = (),
    enabled: bool = True,
    adapters: Sequence[str] = NAMES,
) -> Iterator[Check]:
    """Compare the status of a model and of its layers, and the dtypes and training of its parameters, with what is due.

    The layers are those of ``layers.TARGETS``. Disabled adapters stay active, and are not trained.
    """
    import peft

    yield equal(f"active adapters, {title}", str([*model.base_model.active_adapters]), str([*active]))
    if method.config != "AdaLoraConfig":  # its second adapter never trains: it is made for inference
        mistaken = by_mistake(model, method, active if enabled else ())
        yield equal(f"trained or frozen by mistake, {title}", mistaken, "none")
    kinds = {str(p.dtype) for p in model.parameters()}
    yield equal(f"dtypes of parameters, {title}", " ".join(sorted(kinds)), "torch.float32")
    if not hasattr(peft, "get_model_status"):
        return  # PEFT before 0.11
    shared = {"enabled": enabled, "active_adapters": [*active]}
    wanted = shared | of_model(model, method, adapters)
    if not bank(method):
        wanted |= {"merged_adapters": [*merged], "available_adapters": [*adapters]}
    status = peft.get_model_status(model)
    if not hasattr(status, "devices"):
        del wanted["devices"]  # PEFT before 0.12
    yield equal(f"status, {title}", fields(status, wanted), str(wanted))
    for layer in peft.get_layer_status(model):
        name = layer.name.rpartition(".")[2]
        own = [each for each in adapters if name in TARGETS[each]]
        wanted = shared | {"merged_adapters": [each for each in own if each in merged]}
        if not bank(method):
            wanted |= {"available_adapters": own}
        yield equal(f"status of layer {name}, {title}", fields(layer, wanted), str(wanted))


def bank(method: Method) -> bool:
    """Whether each layer has the vector banks of all adapters, so that PEFT takes all of them for the layer's own."""
    return method.config == "VBLoRAConfig"


def of_model(model: Any, method: Method, adapters: Sequence[str]) -> dict[str, Any]:
    """The fields of a model's status that stay the same while adapters are switched and merged."""
    short = method.config.removesuffix("Config")
    return {
        "base_model_type": "Sequential",
        "adapter_model_type": f"{short}Model",
        "peft_types": dict.fromkeys(adapters, short.upper()),
        "num_adapter_layers": len(adapted_layers.TARGETS),
        "devices": {each: [next(model.parameters()).device.type] for each in adapters},
        "trainable_params": sum(p.numel() for p in model.parameters() if p.requires_grad),
        "total_params": sum(p.numel() for p in model.parameters()),
    }


def fields(status: Any, names: Iterable[str]) -> str:
    return str({name: getattr(status, name) for name in names})


def unloaded(title: str, model: Any) -> Iterator[Check]:
    """An unloaded model has the parameters of the base, frozen, of its dtypes, and none of an adapter."""
    found, wanted = (
        {name: (str(p.dtype), tuple(p.shape)) for name, p in each.named_parameters()}
        for each in (model, adapted_layers.base())
    )
    yield equal(f"parameters, {title}", str(found), str(wanted))
    yield equal(f"trained, {title}", " ".join(sorted(trained(model))) or "none", "none")


def settings_off(config: Any, method: Method, adapter: str) -> str:
    """The settings of a configuration that are not those that the adapter was made with."""
    short = method.config.removesuffix("Config")
    wanted = {**method.arguments(adapter), "target_modules": TARGETS[adapter], "peft_type": short.upper()}
    wanted.pop("inference_mode", None)  # as it is loaded
    off = [f"{name}={getattr(config, name)!r}" for name in wanted if not alike(getattr(config, name), wanted[name])]
    return " ".join(off) or "none"


def alike(found: Any, wanted: Any) -> bool:
    """Equal, or a set of the same members as a list: PEFT makes sets of names."""
    return {*found} == {*wanted} if isinstance(wanted, list) else bool(found == wanted)
