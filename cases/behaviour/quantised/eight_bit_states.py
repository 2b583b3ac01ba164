"""8-bit weights whose numbers and scales are written by hand, and what makes a layer quantise its weight.

https://huggingface.co/docs/bitsandbytes/reference/nn/linear8bit
"""

from __future__ import annotations

import copy
from itertools import product
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.accelerating.nested_tensors import refusal
from cases.behaviour.quantised import formats
from cases.behaviour.quantised.states_by_hand import LAYERS, differing
from cases.space.verdict import Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Quantised layers"
OUTPUTS, INPUTS = 12, 20
ROW_MAJOR = 0  # the format that a state dict names; 1 to 3 are older ones
UNKNOWN = 7


def numbers(seed: int) -> Any:
    import torch

    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-127, 128, (OUTPUTS, INPUTS), generator=generator, dtype=torch.int8)


def scales(seed: int) -> Any:
    return formats.numbers(OUTPUTS, seed=seed).abs()


def bias(seed: int) -> Any:
    return formats.numbers(OUTPUTS, seed=seed + 50)


def stored(seed: int) -> dict[str, Any]:
    """The state dict of a quantised layer: rows of numbers, and the largest magnitude of each."""
    import torch

    return {
        "weight": numbers(seed),
        "SCB": scales(seed),
        "weight_format": torch.tensor(ROW_MAJOR, dtype=torch.uint8),
        "bias": bias(seed),
    }


def layer_of(seed: int) -> Any:
    """A quantised layer on the CPU."""
    import torch
    from bitsandbytes.nn import Int8Params, Linear8bitLt

    layer = Linear8bitLt(INPUTS, OUTPUTS, has_fp16_weights=False, threshold=6.0)
    rows = numbers(seed)
    layer.weight = Int8Params(rows, requires_grad=False, has_fp16_weights=False)
    layer.weight.CB, layer.weight.SCB = rows, scales(seed)
    layer.bias = torch.nn.Parameter(bias(seed), requires_grad=False)
    return layer


def holds(how: str, layer: Any) -> Iterator[Check]:
    """Compare what a layer holds and saves with what it was made of, and again after a pass took the statistics."""
    weight = layer.weight
    settings = f"{type(weight).__name__} {weight.requires_grad} {weight.has_fp16_weights} {layer.state.threshold}"
    yield equal(f"settings, {how}", settings, "Int8Params False False 6.0")
    held = {"weight": weight.CB, "SCB": weight.SCB}
    yield equal(f"statistics that differ, {how}", differing(held, {"weight": numbers(1), "SCB": scales(1)}), "")
    yield equal(f"saved tensors that differ, {how}", differing(layer.state_dict(), stored(1)), "")
    itself = [layer.state_dict(keep_vars=keep).get("SCB") is weight.SCB for keep in (False, True)]
    yield equal(f"saves the scales themselves without and with keep_vars, {how}", str(itself), "[False, True]")
    layer.init_8bit_state()
    itself = [layer.state_dict(keep_vars=keep).get("SCB") is layer.state.SCB for keep in (False, True)]
    yield equal(f"saves the taken scales themselves without and with keep_vars, {how}", str(itself), "[False, True]")
    yield equal(f"statistics left at the weight, {how}", str((weight.CB, weight.SCB)), "(None, None)")
    held = {"weight": layer.state.CB, "SCB": layer.state.SCB}
    yield equal(f"statistics taken that differ, {how}", differing(held, {"weight": numbers(1), "SCB": scales(1)}), "")
    yield equal(f"saved tensors that differ after it, {how}", differing(layer.state_dict(), stored(1)), "")


@call(GROUP, phase=Phase.RELOAD, requires=LAYERS)
def eight_bit_states_by_hand(_ctx: Context) -> Iterator[Check]:
    """An 8-bit layer saves its numbers, scales and format, before and after a pass took them; so do its copies."""
    layer = layer_of(1)
    for how, each in {"as made": layer, "deep copy": copy.deepcopy(layer)}.items():
        yield from holds(how, each)
    again = layer_of(1)
    copied = copy.deepcopy(again)
    shared = [
        getattr(copied.weight, name).data_ptr() == getattr(again.weight, name).data_ptr() for name in ("CB", "SCB")
    ]
    yield equal("deep copy shares its statistics", str(shared), "[False, False]")
    on_meta = layer_of(1).weight.to("meta")
    yield equal(
        "on meta",
        f"{type(on_meta).__name__} {tuple(on_meta.shape)} {on_meta.dtype} {on_meta.device}",
        f"Int8Params {(OUTPUTS, INPUTS)} torch.int8 meta",
    )


@call(GROUP, phase=Phase.LOAD, requires=LAYERS)
def eight_bit_layers_moved(_ctx: Context) -> Iterator[Check]:
    """Moving a quantised 8-bit layer, or its weight, to where it is keeps its numbers and scales."""
    yield from holds("moved", layer_of(1).to("cpu"))
    layer = layer_of(1)
    layer.weight = layer.weight.to("cpu")
    yield from holds("moved weight", layer)


@call(GROUP, phase=Phase.LOAD, requires=LAYERS)
def eight_bit_layers_cast(_ctx: Context) -> Iterator[Check]:
    """Casting a quantised 8-bit layer casts its bias alone, before and after a pass took the statistics."""
    import torch

    for taken in (False, True):
        layer = layer_of(1)
        if taken:
            layer.init_8bit_state()
        cast = layer.to(torch.float16)
        wanted = {**stored(1), "bias": bias(1).half()}
        yield equal(f"saved tensors that differ, taken={taken}", differing(cast.state_dict(), wanted), "")


@call(GROUP, phase=Phase.LOAD, requires=LAYERS)
def eight_bit_state_dicts_loaded(_ctx: Context) -> Iterator[Check]:
    """A quantised layer loads the state dict of another, with any mark of row-major rows; others are refused."""
    import torch
    from bitsandbytes.nn import Linear8bitLt

    for how, mark in {
        "a number": torch.tensor(ROW_MAJOR, dtype=torch.uint8),
        "a plain number": ROW_MAJOR,
        "a word": "row",
        "no format": None,
    }.items():
        layer = layer_of(2)
        given = {**stored(1), "weight_format": mark}
        if mark is None:
            del given["weight_format"]
        result = layer.load_state_dict(given)
        yield equal(f"names missing, unexpected: {how}", str((result.missing_keys, result.unexpected_keys)), "([], [])")
        yield equal(f"loaded tensors that differ: {how}", differing(layer.state_dict(), stored(1)), "")
        yield equal(f"scales that differ: {how}", int((layer.weight.SCB - scales(1)).count_nonzero()), 0)
        yield equal(
            f"the file's own scales: {how}", layer.weight.SCB.data_ptr() == given["SCB"].data_ptr(), bound=False
        )
    holder = torch.nn.ModuleDict({"one": layer_of(2), "other": layer_of(3)})
    part = {f"one.{name}": each for name, each in stored(1).items()}
    result = holder.load_state_dict(part, strict=False)
    yield equal("names missing, one of two", str(sorted(result.missing_keys)), "['other.bias', 'other.weight']")
    yield equal("names unexpected, one of two", str(result.unexpected_keys), "[]")
    kept = {
        name: differing(each.state_dict(), stored(seed))
        for (name, each), seed in zip(holder.items(), (1, 3), strict=True)
    }
    yield equal("tensors that differ, one of two", str(kept), "{'one': '', 'other': ''}")
    mark = torch.tensor(UNKNOWN, dtype=torch.uint8)
    unknown = {**stored(1), "weight_format": mark}
    yield equal("refused: an unknown format", refusal(layer_of(2).load_state_dict, unknown), "ValueError")
    plain = Linear8bitLt(INPUTS, OUTPUTS, has_fp16_weights=True)
    yield equal("refused: a layer that is not quantised", refusal(plain.load_state_dict, stored(1)), "RuntimeError")
    names = str(sorted(Linear8bitLt(INPUTS, OUTPUTS, has_fp16_weights=False).state_dict()))
    yield equal("names saved before quantising", names, "['bias', 'weight']")


@call(GROUP, phase=Phase.LOAD, requires=LAYERS)
def moves_that_quantise(_ctx: Context) -> Iterator[Check]:
    """A weight quantises when it first moves to a GPU; casts and moves to meta do not, and no weight does so twice.

    The part that quantises is replaced, because a machine without a GPU cannot run it on one.
    """
    import torch
    from bitsandbytes.nn import Int8Params, Params4bit

    moved: list[str] = []

    def note(self: Any, device: Any = None, **_: Any) -> Any:
        moved.append(str(device))
        return self

    four = type("Watched4bit", (Params4bit,), {"_quantize": note})
    eight = type("Watched8bit", (Int8Params,), {"_quantize": note, "cuda": note})
    plain, rows = formats.numbers(OUTPUTS, INPUTS), numbers(1)

    def four_bit() -> Any:
        return four(plain.clone(), requires_grad=False)

    def eight_bit() -> Any:
        return eight(plain.clone(), requires_grad=False)

    weights = {
        "4 bits": (four_bit, True),
        "4 bits, quantised": (lambda: four(rows.to(torch.uint8), requires_grad=False, bnb_quantized=True), False),
        "8 bits": (eight_bit, True),
    }
    ways: dict[str, tuple[tuple[Any, ...], bool]] = {
        "a GPU": (("cuda:0",), True),
        "a GPU in half precision": (("cuda:1", torch.float16), True),
        "meta": (("meta",), False),
        "another dtype": ((torch.float16,), False),
    }
    for (title, (make, quantises)), (how, (where, to_gpu)) in product(weights.items(), ways.items()):
        moved.clear()
        refusal(make().to, *where)  # a quantised weight cannot reach a GPU that is not there
        yield equal(f"quantises, {title}, to {how}", str(moved), str([where[0]] if quantises and to_gpu else []))
