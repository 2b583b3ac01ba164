"""The dtypes of adapters and of their products: autocast_adapter_dtype for every task, and half precision on a CPU."""

from __future__ import annotations

import copy
import inspect
from itertools import product
from typing import TYPE_CHECKING, Any

from cases.api import call, ingredients, models
from cases.behaviour.adapters import adapter_patterns
from cases.behaviour.adapters.methods import convolutions, layers
from cases.behaviour.adapters.methods.layers import METHODS
from cases.behaviour.adapters.methods.life_cycle import every
from cases.behaviour.starts import adapted_layers
from cases.model import tiny
from cases.reference.tolerance import UNIT_ROUNDOFF, relative
from cases.space.verdict import Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.behaviour.adapters.methods.layers import Method
    from cases.space.verdict import Check

GROUP = "Dtypes of adapters"
TASKS = (None, "CAUSAL_LM", "SEQ_CLS", "FEATURE_EXTRACTION")
KINDS = {"bf16": "bfloat16", "fp16": "float16"}
WIDTH, ALPHA = 24, 7
SEVERAL = 8.0  # roundings of outputs, of what a method computes in between, and of sums
CLASSES = {"SEQ_CLS": "SequenceClassification"}


def base(ctx: Context, task: str | None, dtype: str) -> Any:
    """The model of a task in this dtype."""
    import torch
    import transformers

    kind = CLASSES.get(task or "", "" if task == "FEATURE_EXTRACTION" else "CausalLM")
    made = getattr(transformers, f"AutoModelFor{kind}" if kind else "AutoModel")
    return made.from_config(models.variant()).to(getattr(torch, dtype)).to(ctx.place.device)


def dtypes(model: Any, name: str = "default") -> str:
    return str(sorted({str(p.dtype) for key, p in model.named_parameters() if f".{name}." in key and "lora_" in key}))


@call(GROUP, phase=Phase.ADAPT, requires=("adapter_dtype",))
def adapter_dtype_of_every_task(ctx: Context) -> Iterator[Check]:
    """An adapter on a half-precision model is float32, or with autocast_adapter_dtype=False of the model's dtype.

    For each task_type, by get_peft_model, add_adapter, load_adapter and from_pretrained.
    """
    import peft

    for task, dtype, cast in product(TASKS, KINDS.values(), (True, False)):
        more = {"autocast_adapter_dtype": cast}
        config = ingredients.lora(task_type=task)
        model = peft.get_peft_model(base(ctx, task, dtype), config, **more)
        wanted = "['torch.float32']" if cast else f"['torch.{dtype}']"
        title = f"{task}, {dtype}, autocast_adapter_dtype={cast}"
        yield equal(f"dtypes, get_peft_model, {title}", dtypes(model), wanted)
        if "autocast_adapter_dtype" in inspect.signature(model.add_adapter).parameters:
            model.add_adapter("second", config, **more)
            yield equal(f"dtypes, add_adapter, {title}", dtypes(model, "second"), wanted)
        if dtype != "bfloat16":
            continue
        folder = ctx.kept / f"{task}-{cast}"
        model.save_pretrained(folder, selected_adapters=["default"])
        loaded = peft.PeftModel.from_pretrained(base(ctx, task, dtype), folder, **more)
        yield equal(f"dtypes, from_pretrained, {title}", dtypes(loaded), wanted)
        loaded.load_adapter(folder, "second", **more)
        yield equal(f"dtypes, load_adapter, {title}", dtypes(loaded, "second"), wanted)


@call(GROUP, phase=Phase.MERGE, requires=("adapter_dtype",))
def half_products(_ctx: Context) -> Iterator[Check]:
    """get_delta_weight of a half-precision LoRA adapter on a CPU is computed in float32 and rounded once.

    For linear layers, Conv1D, embeddings and convolutions; an adapter in float64 keeps its precision.
    """
    import torch

    for kind in ("float16", "bfloat16", "float32", "float64"):
        dtype = getattr(torch, kind)
        for name, original, more in (
            ("linear and embedding", adapted_layers.base(), {"target_modules": ["wide", "tall", "words"]}),
            ("Conv1D", adapted_layers.conv1d(), {"fan_in_fan_out": True}),
            ("convolutions", convolutions.base(), {"target_modules": [*convolutions.TARGETS]}),
        ):
            model = adapted_layers.fill(adapted_layers.adapted(original, adapted_layers.lora(**more))).to(dtype)
            for key, layer in model.named_modules():
                if not hasattr(layer, "get_delta_weight"):
                    continue
                found = layer.get_delta_weight("default").detach()
                title = f"{name}, {key.rsplit('.', 1)[-1]}, {kind}"
                yield equal(f"dtype of the product, {title}", str(found.dtype), f"torch.{kind}")
                yield at_most(f"product off, in roundings, {title}", product_off(layer, found), 1.01)


def product_off(layer: Any, found: Any) -> float:
    """The largest error of a product's entry, in units of its rounding; float32 sums have those of their terms too."""
    import torch

    if layer.lora_embedding_A:
        a, b = layer.lora_embedding_A["default"], layer.lora_embedding_B["default"]
    else:
        a, b = (side["default"].weight.flatten(1) for side in (layer.lora_A, layer.lora_B))  # over kernels' places
    scaling = layer.scaling["default"]
    exact = (b.detach().double() @ a.detach().double()) * scaling
    terms = (b.detach().double().abs() @ a.detach().double().abs()) * scaling
    found = found.flatten(1)
    if exact.shape != found.shape:  # embeddings and Conv1D store (in, out); no layer is square
        exact, terms = exact.T, terms.T
    if exact.shape != found.shape:
        return float("inf")
    unit = {"torch.float16": UNIT_ROUNDOFF["fp16"], "torch.bfloat16": UNIT_ROUNDOFF["bf16"]}
    own = unit.get(str(found.dtype), UNIT_ROUNDOFF["fp32"] if found.dtype == torch.float32 else 2.0**-53)
    inner = UNIT_ROUNDOFF["fp32"] if found.dtype != torch.float64 else 2.0**-53
    allowed = own * exact.abs() + adapted_layers.RANK * inner * terms + torch.finfo(found.dtype).tiny
    return float(((found.double() - exact).abs() / allowed).max())


@call(GROUP, phase=Phase.MERGE, requires=("adapter_dtype", "attention_adapters"))
def half_products_of_attention(_ctx: Context) -> Iterator[Check]:
    """LoRA on torch's attention has the dtype that autocast_adapter_dtype asks for, and keeps what its product has."""
    import peft
    import torch

    for kind, cast in product(("float16", "bfloat16", "float32", "float64"), (True, False)):
        dtype = getattr(torch, kind)
        plain = torch.nn.Sequential()
        plain.add_module("attention", torch.nn.MultiheadAttention(WIDTH, 2, batch_first=True))
        tiny.fill(plain)
        config = peft.LoraConfig(r=adapted_layers.RANK, lora_alpha=ALPHA, target_modules=["attention"])
        model = peft.get_peft_model(plain.to(dtype), config, autocast_adapter_dtype=cast).eval()
        title = f"{kind}, autocast_adapter_dtype={cast}"
        is_half = kind in KINDS.values()
        yield equal(f"dtypes, {title}", dtypes(model), f"['torch.{'float32' if cast and is_half else kind}']")
        before = trainable(adapted_layers.fill(model))
        layer = model.base_model.model.attention
        for part in (layer, layer.base_layer.out_proj):
            found = part.get_delta_weight("default").detach()
            most = 2.0 if kind == "bfloat16" else 1.01  # up to peft 0.19, the scaled product is rounded again
            yield at_most(f"product off, in roundings, {title}", product_off(part, found), most)
        inputs = tiny.values("attention", (2, 5, WIDTH)).to(dtype)
        for mode in (False, True):
            found = layer.train(mode)(inputs, inputs, inputs)[0]
            yield equal(f"dtype of the outputs, {title}, training={mode}", str(found.dtype), f"torch.{kind}")
            changed = sorted(before ^ trainable(model))
            yield equal(f"weights that a pass trains or freezes, {title}, training={mode}", str(changed), "[]")


def trainable(model: Any) -> set[str]:
    return {name for name, parameter in model.named_parameters() if parameter.requires_grad}


@call(GROUP, phase=Phase.ADAPT, requires=("adapter_dtype", "parameter_targets"))
def adapter_dtype_of_experts(ctx: Context) -> Iterator[Check]:
    """LoRA on stacked experts is float32, or with autocast_adapter_dtype=False of their dtype.

    What it adds has the experts' dtype and is rounded a few times, in a pass and merged.
    """
    import peft
    import torch

    inputs = tiny.values("inputs of experts", (5, 4)).to(ctx.place.device)
    for dtype, cast in product(KINDS.values(), (True, False)):
        targets = {"target_modules": [], "target_parameters": ["up.weight", "down.weight"]}
        plain = adapter_patterns.stacked(4, 6).to(getattr(torch, dtype)).to(ctx.place.device)
        config = peft.LoraConfig(r=2, **targets)
        model = peft.get_peft_model(plain, config, autocast_adapter_dtype=cast)
        wanted = "['torch.float32']" if cast else f"['torch.{dtype}']"
        title = f"{dtype}, autocast_adapter_dtype={cast}"
        yield equal(f"dtypes, {title}", dtypes(model), wanted)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if ".lora_" in name:
                    parameter.copy_(tiny.values(name, tuple(parameter.shape)))
        kind = next(short for short, name in KINDS.items() if name == dtype)
        for part in ("up", "down"):
            layer = model.base_model.model[part]
            exact = adapter_patterns.expert_delta(model, part, "default", layer.scaling["default"], layer.num_experts)
            found = layer.get_delta_weight("default").detach()
            yield equal(f"dtype of what {part} gets, {title}", str(found.dtype), f"torch.{dtype}")
            yield at_most(
                f"what {part} gets off, in roundings, {title}", relative(found, exact) / UNIT_ROUNDOFF[kind], SEVERAL
            )
            given = inputs.to(found.dtype)
            whole = torch.einsum("bi,eio->beo", given.double(), layer.get_param().detach().double() + exact)
            for merged in (False, True):
                outputs = layer(given)
                state = f"{title}, merged={merged}"
                yield equal(f"dtype of outputs of {part}, {state}", str(outputs.dtype), f"torch.{dtype}")
                off = relative(outputs.detach(), whole) / UNIT_ROUNDOFF[kind]
                yield at_most(f"outputs of {part} off, in roundings, {state}", off, SEVERAL)
                if not merged:
                    layer.merge()
            yield equal(f"dtype of the merged {part}, {title}", str(layer.get_param().dtype), f"torch.{dtype}")


@call(GROUP, phase=Phase.FORWARD)
def half_layers_by_method(_ctx: Context) -> Iterator[Check]:
    """Layers in bfloat16 with an adapter return bfloat16, near what the method's formula has, for every method."""
    import torch

    def story(key: str, method: Method) -> Iterator[Check]:
        plain = adapted_layers.base().to(torch.bfloat16)
        model = layers.adapted(method, plain, names=("first",))
        wanted = layers.expected(model, method, "first", plain=plain)
        for name, (_, inner) in adapted_layers.SIZES.items():
            inputs = tiny.values(f"inputs of {name}", (9, inner)).to(torch.bfloat16)
            weight, bias = wanted[name]
            with torch.no_grad():
                found = layers.module(model, name)(inputs)
            yield equal(f"dtype of {name}, {key}", str(found.dtype), "torch.bfloat16")
            off = relative(found, inputs.double() @ weight.T + bias) / UNIT_ROUNDOFF["bf16"]
            yield at_most(f"outputs of {name} off, in roundings, {key}", off, SEVERAL)

    yield from every(story)


NESTED = {"loha": 0.0, "lokr": 0.0, "ia3": 0.0, "vblora": 0.01}  # and how large their effect is at the start


@call(GROUP, phase=Phase.ADAPT, requires=("peft_VBLoRAConfig",))
def adapters_on_adapted_layers(_ctx: Context) -> Iterator[Check]:
    """A method of adapters can adapt layers that have a LoRA adapter, with a warning, and starts without an effect."""
    import peft
    import torch

    inner = adapted_layers.fill(adapted_layers.adapted(adapted_layers.base(), adapted_layers.lora()))
    ids = torch.arange(adapted_layers.WORDS)
    with torch.no_grad():
        wanted = inner(ids)
    for name, effect in NESTED.items():
        config = METHODS[name].made("first", target_modules=["wide", "tall"])
        torch.manual_seed(3)
        model = peft.get_peft_model(copy.deepcopy(inner).base_model.model, config)
        with torch.no_grad():
            found = model(ids)
        off = float((found - wanted).norm() / wanted.norm())
        yield at_most(f"outputs off those of the inner adapter, {name}", off, effect + 64 * UNIT_ROUNDOFF["fp32"])
        count = sum(any(mark in key for mark in METHODS[name].marks) for key, _ in model.named_parameters())
        yield at_least(f"parameters of the outer adapter, {name}", count, 2)
