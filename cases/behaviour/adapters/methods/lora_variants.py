"""Variants of LoRA by their formulas: KaSA, BD-LoRA, replicated layers, and LoRA on convolutions and attention."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.adapters import lora_reference as reference
from cases.behaviour.starts import adapted_layers
from cases.behaviour.starts.adapted_layers import ALPHA, RANK, SAME, SIZES, TARGETS
from cases.behaviour.starts.data_layers import spectral
from cases.model import tiny
from cases.reference import tolerance
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cases.apply.context import Context
    from cases.space.verdict import Check

    Tensors = dict[str, Any]

GROUP = "Variants of LoRA"
SCALING = ALPHA / RANK


def off(name: str, found: Mapping[str, Any], wanted: Mapping[str, Any], within: float = SAME) -> Check:
    return at_most(name, tolerance.worst_tensor(dict(found), dict(wanted)), within)


def merged_and_back(model: Any, weights: Tensors, plain: Tensors) -> Iterator[Check]:
    """Check what the layers apply, plainly and merged, and that unmerging restores the base."""
    yield off("applied weights off", adapted_layers.applied(model), weights)
    merged, unmerged = ([names] * len(TARGETS) for names in (["default"], []))
    for safe in (False, True):
        model.merge_adapter(safe_merge=safe)
        yield off(f"merged weights off, safe_merge={safe}", adapted_layers.bases(model), weights)
        yield equal(f"merged adapters, safe_merge={safe}", str(merged_adapters(model)), str(merged))
        model.unmerge_adapter()
        yield off(f"unmerged weights off, safe_merge={safe}", adapted_layers.bases(model), plain)
        yield equal(f"unmerged adapters, safe_merge={safe}", str(merged_adapters(model)), str(unmerged))


def merged_adapters(model: Any) -> list[list[str]]:
    return [adapted_layers.layer(model, name).merged_adapters for name in TARGETS]


@call(GROUP, phase=Phase.MERGE, requires=("kasa",))
def kasa_layers(ctx: Context) -> Iterator[Check]:
    """KaSA drops the r smallest singular values of a weight, and adds s B diag(d) A, also merged.

    https://arxiv.org/abs/2412.06071
    """
    import torch
    from peft import KasaConfig

    del ctx
    original = spectral()
    model = adapted_layers.adapted(original, adapted_layers.lora(kasa_config=KasaConfig()))
    kept, within = {}, SAME
    for name, weight in adapted_layers.originals(original).items():
        left, values, right = torch.linalg.svd(weight, full_matrices=False)
        kept[name] = left[:, :-RANK] * values[:-RANK] @ right[:-RANK]
        lost = tolerance.UNIT_ROUNDOFF["fp32"] * float(values[0] / (values[-RANK - 1] - values[-RANK]))
        within = max(within, tolerance.SENSITIVITY_UNITS * lost)
    yield off("base weights off", adapted_layers.bases(model), kept, within)
    yield off("applied weights off at the start", adapted_layers.applied(model), kept, within)
    sizes = sum(RANK * (out + into + 1) for out, into in SIZES.values())
    yield from adapted_layers.trained(model, ("lora_A.", "lora_B.", "lora_diag."), sizes)
    adapted_layers.fill(model)
    base, full = adapted_layers.bases(model), {}
    for name in TARGETS:
        a, b, d = (adapted_layers.parts(model, name, part) for part in ("lora_A", "lora_B", "lora_diag"))
        full[name] = base[name] + SCALING * b @ torch.diag(d) @ a
    yield from merged_and_back(model, full, base)


@call(GROUP, phase=Phase.MERGE, requires=("bdlora",))
def block_diagonal_layers(ctx: Context) -> Iterator[Check]:
    """BD-LoRA has A of one layer and B of another as blocks on a diagonal, also merged.

    https://openreview.net/forum?id=1cjLvtFOmL
    """
    import torch
    from peft import BdLoraConfig

    del ctx
    blocks = 4
    chosen = BdLoraConfig(target_modules_bd_a=["wide"], target_modules_bd_b=["tall"], nblocks=blocks)
    model = adapted_layers.adapted(adapted_layers.base(), adapted_layers.lora(use_bdlora=chosen))
    yield adapted_layers.unchanged(model, adapted_layers.base())
    sizes = RANK * (160 // blocks + 96 + 96 + 224 // blocks)
    yield from adapted_layers.trained(model, ("lora_A.", "lora_B."), sizes)
    adapted_layers.fill(model)
    base, full = adapted_layers.bases(model), {}
    for name, side in zip(TARGETS, ("lora_A", "lora_B"), strict=True):
        parts = {part: adapted_layers.parts(model, name, part) for part in ("lora_A", "lora_B")}
        parts[side] = torch.block_diag(*parts[side].chunk(blocks))
        full[name] = base[name] + SCALING * parts["lora_B"] @ parts["lora_A"]
    yield from merged_and_back(model, full, base)


PARTS = (5, 1, 4)  # of the tokens that a cache gets one after the other, before the rest


def in_parts(model: Any) -> Any:
    """The logits of the first batch, of which each part follows the cache of those before it."""
    import torch

    rows, cache, found = tiny.batch(0), None, []
    for part in rows.split((*PARTS, rows.shape[1] - sum(PARTS)), dim=1):
        with torch.no_grad():
            output = model(input_ids=part.to(model.device), past_key_values=cache, use_cache=True)
        cache = output.past_key_values
        found.append(output.logits.float().cpu())
    return torch.cat(found, dim=1)


@call(GROUP, phase=Phase.FORWARD, requires=("layer_replication",))
def replicated_layers(ctx: Context) -> Iterator[Check]:
    """layer_replication repeats layers that share their weights, each with an adapter and a place in caches of its own.

    https://huggingface.co/docs/peft/developer_guides/lora, "Memory efficient layer replication with LoRA"
    """
    yield from replicated(ctx, "", (0, 2), (0, 2))
    yield from replicated(ctx, ", one layer three times", (1, 2), (0, 2), (1, 2))


def replicated(ctx: Context, title: str, *layer_map: tuple[int, int]) -> Iterator[Check]:
    from peft import get_peft_model

    base = reference.read(ctx)
    places = [source for begin, end in layer_map for source in range(begin, end)]
    more = {"layer_replication": [list(each) for each in layer_map]}
    adapter = reference.Adapter(name="first", rank=4, alpha=12, more=more)
    model = get_peft_model(reference.loaded(ctx), adapter.config(), adapter_name="first").eval()
    tensors = {name: tensor for name, tensor in base.tensors.items() if ".layers." not in name}
    for place, source in enumerate(places):
        mark = f".layers.{source}."
        copies = {name.replace(mark, f".layers.{place}."): each for name, each in base.tensors.items() if mark in name}
        tensors |= copies
    deeper = reference.Base({**base.config, "num_hidden_layers": len(places)}, tensors)
    start = tolerance.relative(reference.logits(model), deeper.logits())
    yield at_most(f"logits off at the start{title}", start, reference.NEAR)
    reference.fill(model)
    wanted = deeper.logits(deeper.of(adapter))
    yield at_most(f"logits off{title}", tolerance.relative(reference.logits(model), wanted), reference.NEAR)
    off = tolerance.relative(in_parts(model), wanted)
    yield at_most(f"logits off in parts{title}", off, reference.NEAR)
    layers = model.get_base_model().model.layers
    stored = {layer.self_attn.q_proj.get_base_layer().weight.data_ptr() for layer in layers}
    yield equal(f"different base weights{title}", len(stored), len(set(places)))


def convolved(layer: Any, inputs: Any, weight: Any) -> Any:
    """The layer's convolution with another weight, in float64."""
    made = copy.deepcopy(layer).double()
    made.weight.data.copy_(weight)
    return made(inputs.double()).detach()


def outputs_off(title: str, model: Any, inputs: Any, wanted: Any) -> Check:
    found = model(inputs).detach()
    off = tolerance.relative(found, wanted) if found.shape == wanted.shape else float("inf")
    return at_most(f"outputs off, {title}", off, SAME)


def convolution_checks(layer: Any, shape: tuple[int, ...], *, dora: bool) -> Iterator[Check]:
    """Compare outputs and merged kernels with those of the summed kernel."""
    import torch
    from peft import LoraConfig, get_peft_model

    title = f"{type(layer).__name__}{', DoRA' if dora else ''}"
    tiny.fill(layer)
    inputs, original = tiny.values(title, shape), layer.weight.detach().double().clone()
    config = LoraConfig(r=4, lora_alpha=6, target_modules=["0"], use_dora=dora)
    model = get_peft_model(torch.nn.Sequential(copy.deepcopy(layer)), config).eval()
    yield outputs_off(f"{title}, at the start", model, inputs, convolved(layer, inputs, original))
    adapted_layers.fill(model)
    made = model.base_model.model[0]
    a, b = (part["default"].weight.detach().double() for part in (made.lora_A, made.lora_B))
    weight = original + 1.5 * torch.einsum("or...,ri...->oi...", b, a)
    if dora:
        magnitude = made.lora_magnitude_vector["default"].weight.detach().double().flatten()
        weight = weight * (magnitude / weight.flatten(1).norm(dim=1)).view(-1, *[1] * (weight.dim() - 1))
    yield outputs_off(title, model, inputs, convolved(layer, inputs, weight))
    for safe in (False, True):
        made.merge(safe_merge=safe)
        kernel = made.get_base_layer().weight.detach()
        yield at_most(f"merged kernel off, {title}, {safe}", tolerance.relative(kernel, weight), SAME)
        made.unmerge()
        kernel = made.get_base_layer().weight.detach()
        yield at_most(f"unmerged kernel off, {title}, {safe}", tolerance.relative(kernel, original), SAME)


@call(GROUP, phase=Phase.MERGE, requires=("dora", "convolutions_of_three_dimensions"))
def lora_on_convolutions(ctx: Context) -> Iterator[Check]:
    """LoRA on a convolution adds the product of both sides over channels to its kernel, also merged and with DoRA."""
    import torch

    del ctx
    flat = torch.nn.Conv2d(6, 10, (3, 2), stride=(1, 2), padding=(1, 0))
    deep = torch.nn.Conv3d(6, 10, 2, bias=False)
    for dora in (False, True):
        yield from convolution_checks(flat, (2, 6, 7, 9), dora=dora)
        yield from convolution_checks(deep, (2, 6, 4, 5, 3), dora=dora)


@call(GROUP, phase=Phase.MERGE, requires=("dora", "convolutions_of_one_dimension"))
def lora_on_convolved_sequences(ctx: Context) -> Iterator[Check]:
    """LoRA on a convolution of one dimension adds to its kernel, also merged and with DoRA."""
    import torch

    del ctx
    for dora in (False, True):
        layer = torch.nn.Conv1d(6, 10, 3, stride=2, padding=1)
        yield from convolution_checks(layer, (2, 6, 11), dora=dora)


@call(GROUP, phase=Phase.FORWARD, requires=("convolutions_of_three_dimensions",))
def lora_on_dilated_convolutions(ctx: Context) -> Iterator[Check]:
    """LoRA on a convolution with dilation, or padding by reflection, adds to the kernel of the same convolution."""
    import torch

    del ctx
    for more in ({"dilation": (1, 2)}, {"padding_mode": "reflect", "padding": 1}):
        layer = torch.nn.Conv2d(6, 10, (3, 2), stride=(1, 2), **more)
        yield from convolution_checks(layer, (2, 6, 7, 9), dora=False)


WIDTH = 24


def attention_update(adapted: Any) -> tuple[Any, Any]:
    """The updates s B A of the stacked input projection and of the output projection, float64."""
    layer = adapted.base_model.model.attention
    pairs = [(part.lora_A, part.lora_B) for part in (layer, layer.base_layer.out_proj)]
    first, second = (1.5 * (b["default"].weight @ a["default"].weight).detach().double() for a, b in pairs)
    return first, second


def attention_checks(mark: str) -> Iterator[Check]:
    """Adapt torch's attention, fill the parameters with a mark in their names, and compare outputs and merges."""
    import torch
    from peft import LoraConfig, get_peft_model

    wanted = torch.nn.MultiheadAttention(WIDTH, 4, batch_first=True)
    tiny.fill(wanted)
    inputs = [tiny.values(name, (2, 5, WIDTH)) for name in ("query", "key", "value")]
    model = torch.nn.Sequential()
    model.add_module("attention", copy.deepcopy(wanted))
    adapted = get_peft_model(model, LoraConfig(r=4, lora_alpha=6, target_modules=["attention"])).eval()
    layer, wanted = adapted.base_model.model.attention, wanted.double()
    yield attention_off("at the start", layer, wanted, inputs)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if mark in name and parameter.requires_grad:
                parameter.copy_(tiny.values(name, tuple(parameter.shape)))
    first, second = attention_update(adapted)
    wanted.in_proj_weight.data += first
    wanted.out_proj.weight.data += second
    for title in ("adapted", "adapted again"):
        yield attention_off(title, layer, wanted, inputs)
    for safe in (False, True):
        adapted.merge_adapter(safe_merge=safe)
        yield attention_off(f"merged, safe_merge={safe}", layer, wanted, inputs)
        adapted.unmerge_adapter()
        yield attention_off(f"unmerged, safe_merge={safe}", layer, wanted, inputs)
    unloaded = adapted.merge_and_unload().attention
    yield equal("class after unloading", type(unloaded).__name__, "MultiheadAttention")
    yield attention_off("unloaded", unloaded, wanted, inputs)


def attention_off(title: str, layer: Any, wanted: Any, inputs: list[Any]) -> Check:
    found, expected = layer(*inputs)[0].detach(), wanted(*(each.double() for each in inputs))[0].detach()
    return at_most(f"outputs off, {title}", tolerance.relative(found, expected), SAME)


@call(GROUP, phase=Phase.MERGE, requires=("attention_adapters",))
def lora_on_attention_inputs(ctx: Context) -> Iterator[Check]:
    """LoRA on torch's MultiheadAttention adds s B A to its stacked input projection, also merged and unloaded."""
    del ctx
    yield from attention_checks("attention.lora_")


@call(GROUP, phase=Phase.MERGE, requires=("attention_adapters",))
def lora_on_attention_outputs(ctx: Context) -> Iterator[Check]:
    """LoRA on torch's MultiheadAttention adds s B A to its output projection, also merged and unloaded."""
    del ctx
    yield from attention_checks("out_proj.lora_")
