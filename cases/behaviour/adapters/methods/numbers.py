"""Adapters of every method in float64, by their gradients, disabled while merged, and on layers of two dtypes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.adapters.methods import layers, states
from cases.behaviour.adapters.methods.life_cycle import LIVING, every, gives
from cases.behaviour.adapters.methods.method_merging import MERGING, SAME
from cases.behaviour.starts import adapted_layers
from cases.model import tiny
from cases.reference.tolerance import UNIT_ROUNDOFF, relative, worst
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cases.apply.context import Context
    from cases.behaviour.adapters.methods.layers import Method
    from cases.space.verdict import Check

EXACT = 1e-12  # relative: the same arithmetic in float64, in another order
PRODUCTS = ("lora", "dora", "adalora", "loha", "lokr")
GRADIENTS = 1e-5  # relative: a pass back through products in float32


def merge(model: Any, *, safe: bool) -> None:
    """Merge the first adapter, layer by layer: merge_adapter of early versions has no safe_merge."""
    for name in layers.TARGETS["first"]:
        layers.module(model, name).merge(safe_merge=safe, adapter_names=["first"])


def outputs(model: Any, name: str, inputs: Any) -> Any:
    return layers.module(model, name)(inputs)


def by_formula(pair: tuple[Any, Any], inputs: Any) -> Any:
    """The outputs of a layer with this weight and bias, float64."""
    return inputs.double() @ pair[0].T + pair[1]


def rows(name: str, dtype: Any) -> Any:
    return (4 * tiny.values(f"inputs of {name}", (2, 3, adapted_layers.SIZES[name][1]))).to(dtype)


@call(MERGING, phase=Phase.MERGE)
def double_by_method(_ctx: Context) -> Iterator[Check]:
    """On a float64 model, methods of products compute and merge in float64, and keep the dtype of inputs and weights.

    Others compute a part in float32: a transform, a rotation, or matrices that they draw.
    """
    import torch

    def story(key: str, method: Method) -> Iterator[Check]:
        if key not in PRODUCTS:
            return
        plain = adapted_layers.base().double()
        model = layers.adapted(method, plain, names=("first",))
        wanted = layers.expected(model, method, "first", plain=plain)
        kinds = {str(p.dtype) for n, p in model.named_parameters() if any(mark in n for mark in method.marks)}
        yield equal(f"dtypes of parts of {key}", " ".join(sorted(kinds)), "torch.float64")
        for name in layers.TARGETS["first"]:
            given = rows(name, torch.float64)
            found = outputs(model, name, given).detach()
            yield equal(f"dtype of outputs of {key}", str(found.dtype), "torch.float64")
            yield at_most(f"outputs of {key} off", relative(found, by_formula(wanted[name], given)), EXACT)
        merge(model, safe=True)
        yield at_most(f"merged weights of {key} off", layers.off(layers.held(model), wanted), EXACT)
        model.unmerge_adapter()
        yield at_most(f"unmerged weights of {key} off", layers.off(layers.held(model), layers.held(plain)), EXACT)

    yield from every(story)


def leaves(model: Any, method: Method, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The trained parts of the first adapter in a layer, as the library has them, and as copies for the formula."""
    pieces = layers.parts(model, method, name, "first")
    held = {}
    for key, parameter in layers.module(model, name).named_parameters():
        words = key.split(".")
        if "first" in words and any(mark in key for mark in method.marks):
            held[layers.part_of(key, "first")] = parameter
    if method.config == "VBLoRAConfig":
        held["vblora_vector_bank"] = model.base_model.vblora_vector_bank["first"]
    for key in held:
        pieces[key] = pieces[key].clone().requires_grad_()
    return held, pieces


@call(LIVING, phase=Phase.BACKWARD)
def gradients_by_method(_ctx: Context) -> Iterator[Check]:
    """Every method gives its parts, and the inputs of the layer, the gradients of its formula.

    Several methods differentiate by code of their own. PVeRA draws its ranks in training; see pvera_draws.
    """

    def story(key: str, method: Method) -> Iterator[Check]:
        model = layers.adapted(method, names=("first",)).train()
        for name in layers.TARGETS["first"]:
            given = rows(name, None).requires_grad_()
            sizes = tiny.values(f"sizes of {name}", (adapted_layers.SIZES[name][0],))
            held, pieces = leaves(model, method, name)
            for parameter in held.values():
                parameter.grad = None
            (outputs(model, name, given) * sizes).square().sum().backward()
            base = layers.held(adapted_layers.base())[name]
            copied = given.detach().double().requires_grad_()
            pair = method.formula(*base, pieces, method.arguments("first"))
            (by_formula(pair, copied) * sizes.double()).square().sum().backward()
            for part, parameter in held.items():
                found = relative(parameter.grad, pieces[part].grad)
                yield at_most(f"gradient of {part} of {key} off, {name}", found, GRADIENTS)
            if key != "c3a":  # see c3a_input_gradients
                off = relative(given.grad, copied.grad)
                yield at_most(f"gradient of inputs of {key} off, {name}", off, GRADIENTS)

    yield from every(story, "pvera")


@call(LIVING, phase=Phase.BACKWARD, requires=("peft_C3AConfig",))
def c3a_input_gradients(_ctx: Context) -> Iterator[Check]:
    """C3A gives the inputs of a layer the gradient of its formula, by which the layers below train.

    PEFT's own backward pass correlates where it should convolve: y_k = sum_j x_j w_(j-k) has the gradient
    sum_k g_k w_(j-k), and it computes sum_k g_k w_(j+k).
    """
    method = layers.METHODS["c3a"]
    model = layers.adapted(method, names=("first",)).train()
    for name in layers.TARGETS["first"]:
        given = rows(name, None).requires_grad_()
        outputs(model, name, given).square().sum().backward()
        copied = given.detach().double().requires_grad_()
        pieces = layers.parts(model, method, name, "first")
        pair = method.formula(*layers.held(adapted_layers.base())[name], pieces, method.arguments("first"))
        by_formula(pair, copied).square().sum().backward()
        yield at_most(f"gradient of inputs off, {name}", relative(given.grad, copied.grad), GRADIENTS)


@call(LIVING, phase=Phase.MERGE)
def disable_merged_by_method(_ctx: Context) -> Iterator[Check]:
    """disable_adapter gives the base of a merged adapter, and the adapter afterwards, for every method."""

    def story(key: str, method: Method) -> Iterator[Check]:
        model = layers.adapted(method)
        plain, first = layers.held(adapted_layers.base()), layers.expected(model, method, "first")
        model.merge_adapter()
        yield gives(f"weights of {key} off, merged", model, first)
        yield from states.reported(f"{key} merged", model, method, ["first"], merged=["first"])
        with model.disable_adapter():
            yield gives(f"weights of {key} off while disabled", model, plain)
            yield from states.reported(f"{key} disabled", model, method, ["first"], enabled=False)
        yield gives(f"weights of {key} off afterwards", model, first)
        merged = {name: layers.module(model, name).merged for name in layers.TARGETS["first"]}
        yield equal(f"layers of {key} that are merged afterwards", sum(merged.values()), 0)
        yield from states.reported(f"{key} afterwards", model, method, ["first"])

    yield from every(story)


@call(MERGING, phase=Phase.MERGE)
def merge_two_dtypes_by_method(_ctx: Context) -> Iterator[Check]:
    """Merging into a bfloat16 weight beside a float32 bias keeps both dtypes, and rounds each once or twice.

    prepare_model_for_kbit_training and many scripts leave biases in float32. What early versions do to weights in half
    precision with DoRA, Bone, HRA and BOFT is the subject of merge_half_dora and its kind. GLoRA adds a product of the
    weight to the bias, in the dtype of the weight.
    """
    yield from every(into_two_dtypes, "road", "dora", "bone", "hra", "hra_orthogonal", "boft", "glora")


@call(MERGING, phase=Phase.MERGE, requires=("peft_RoadConfig",))
def merge_two_dtypes_road(_ctx: Context) -> Iterator[Check]:
    """As merge_two_dtypes_by_method, of RoAd, whose rotation turns the bias too.

    PEFT multiplies the bias by the rotation in the dtype of the weight, and torch refuses to mix both.
    """
    yield from into_two_dtypes("road", layers.METHODS["road"])


def into_two_dtypes(key: str, method: Method) -> Iterator[Check]:
    import torch

    plain = adapted_layers.base().to(torch.bfloat16)
    for name in adapted_layers.TARGETS:
        plain.get_submodule(name).bias.data = plain.get_submodule(name).bias.data.float()
    model = layers.adapted(method, plain, names=("first",))
    wanted = layers.expected(model, method, "first", plain=plain)
    for safe in (False, True):
        merge(model, safe=safe)
        yield from two_dtypes(key, model)
        found = layers.held(model)
        off = worst(relative(found[name][0], wanted[name][0]) for name in wanted)
        yield at_most(f"merged weights of {key} off, in roundings", off / UNIT_ROUNDOFF["bf16"], 2.0)
        off = worst(relative(found[name][1], wanted[name][1]) for name in wanted)
        yield at_most(f"merged biases of {key} off", off, SAME)
        model.unmerge_adapter()
        yield from two_dtypes(key, model)


def two_dtypes(key: str, model: Any) -> Iterator[Check]:
    for name in layers.TARGETS["first"]:
        inside = layers.module(model, name).get_base_layer()
        kinds = f"{inside.weight.dtype} {inside.bias.dtype}"
        yield equal(f"dtypes of {key}, {name}", kinds, "torch.bfloat16 torch.float32")


# The classes of LyCORIS multiply alpha / r.
@call(LIVING, phase=Phase.MERGE)
def scale_by_method(_ctx: Context) -> Iterator[Check]:
    """set_scale, scale_layer and unscale_layer multiply and divide alpha / r of LoHa and LoKr, and a merge uses it."""

    def story(key: str, method: Method) -> Iterator[Check]:
        if key not in {"loha", "lokr"}:
            return
        model = layers.adapted(method)
        times = {"set_scale of 3": 3.0, "scale_layer of 2": 6.0, "unscale_layer by 2": 3.0, "unscale_layer": 1.0}
        for title, factor in times.items():
            for name in layers.TARGETS["first"]:
                change(layers.module(model, name), title)
            wanted = layers.held(adapted_layers.base())
            for name in layers.TARGETS["first"]:
                given: Mapping[str, Any] = {**method.arguments("first")}
                given = {**given, "alpha": given["alpha"] * factor}
                pieces = layers.parts(model, method, name, "first")
                wanted[name] = method.formula(*wanted[name], pieces, given)
            yield gives(f"weights of {key} off, {title}", model, wanted)
            model.merge_adapter()
            yield at_most(f"merged weights of {key} off, {title}", layers.off(layers.held(model), wanted), SAME)
            model.unmerge_adapter()

    yield from every(story)


def change(layer: Any, title: str) -> None:
    if title.startswith("set"):
        layer.set_scale("first", 3.0)
    elif title.startswith("scale"):
        layer.scale_layer(2.0)
    elif title.endswith("2"):
        layer.unscale_layer(2.0)
    else:
        layer.unscale_layer()
