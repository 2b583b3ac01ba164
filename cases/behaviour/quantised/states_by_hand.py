"""4-bit weights that nobody quantised: their states are written by hand, so that any device and release can hold them.

A checkpoint keeps packed numbers, largest magnitudes, the levels, and a JSON object in bytes for what is no tensor:
https://huggingface.co/docs/bitsandbytes/reference/nn/linear4bit.
"""

from __future__ import annotations

import copy
import json
from itertools import product
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.accelerating.nested_tensors import refusal
from cases.behaviour.quantised import formats
from cases.reference.quantisation import LEVELS, dynamic_levels
from cases.space.verdict import Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Quantised layers"
LAYERS = ("bitsandbytes_4bit",)
BLOCK = 128  # not the default
OUTPUTS, INPUTS = 12, 2 * BLOCK
NESTED_BLOCK, MEAN = 256, 0.75
STORAGES = ("uint8", "bfloat16")
KINDS = tuple(product(LEVELS, STORAGES, (False, True)))  # format, dtype of the packed numbers, nested statistics
SETTINGS = ("blocksize", "compress_statistics", "quant_type", "quant_storage", "requires_grad")


def packed(storage: str) -> Any:
    """Packed 4-bit numbers, a column of the storage's dtype."""
    import torch

    drawn = torch.randint(0, 120, (OUTPUTS * INPUTS // 2,), generator=torch.Generator().manual_seed(0))
    return drawn.to(torch.uint8).view(getattr(torch, storage))[:, None]


def words(quant: str, *, double: bool) -> dict[str, Any]:
    """What is no tensor in the state of a weight."""
    found: dict[str, Any] = {"quant_type": quant, "blocksize": BLOCK, "dtype": "bfloat16", "shape": [OUTPUTS, INPUTS]}
    if double:
        found.update({"nested_blocksize": NESTED_BLOCK, "nested_dtype": "float32", "nested_offset": MEAN})
    return found


def tensors(quant: str, *, double: bool) -> dict[str, Any]:
    """The tensors in the state of a weight."""
    import torch

    blocks = OUTPUTS * INPUTS // BLOCK
    levels = {"quant_map": torch.tensor(LEVELS[quant])}
    if not double:
        return {**levels, "absmax": formats.numbers(blocks, seed=4).abs()}
    nested = {"nested_absmax": torch.tensor([0.5]), "nested_quant_map": dynamic_levels()}
    return {**levels, **nested, "absmax": torch.arange(blocks, dtype=torch.uint8)}


def statistics(quant: str, *, double: bool) -> dict[str, Any]:
    """What a checkpoint keeps beside the packed numbers, by name below the weight."""
    import torch

    text = json.dumps(words(quant, double=double))
    in_bytes = torch.tensor(list(text.encode()), dtype=torch.uint8)
    return {**tensors(quant, double=double), f"quant_state.bitsandbytes__{quant}": in_bytes}


def differing(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """The names that only one has, or whose tensors are not the same; JSON objects may order their keys."""
    import torch

    names = set(found.keys() ^ wanted.keys())
    for name in found.keys() & wanted.keys():
        one, other = found[name], wanted[name]
        if one is None or one.dtype != other.dtype:
            same = False
        elif "quant_state" in name:
            same = json.loads(bytes(one.tolist())) == json.loads(bytes(other.tolist()))
        else:
            same = torch.equal(one, other)
        if not same:
            names.add(name)
    return " ".join(sorted(names))


def of_weight(weight: Any) -> str:
    """The class and the settings of a 4-bit weight."""
    return " ".join([type(weight).__name__, *(str(getattr(weight, name)) for name in SETTINGS)])


def of_state(state: Any) -> str:
    """The settings of a state, of its nested one, and the mean that was taken from nested statistics."""
    own = f"{tuple(state.shape)} {state.dtype} {state.blocksize} {state.quant_type} {state.nested}"
    if not state.nested:
        return f"{own} {state.offset} {state.state2}"
    return f"{own} {float(state.offset)} {state.state2.blocksize} {state.state2.dtype}"


def four_bit_layer(quant: str, storage: str, *, double: bool) -> Any:
    """A 4-bit layer on the CPU that holds the packed numbers and the statistics."""
    import torch
    from bitsandbytes.nn import Linear4bit, Params4bit

    layer = Linear4bit(INPUTS, OUTPUTS, compute_dtype=torch.float32, quant_storage=getattr(torch, storage))
    given = statistics(quant, double=double)
    layer.weight = Params4bit.from_prequantized(packed(storage), given, device="cpu", module=layer)
    layer.bias = torch.nn.Parameter(formats.numbers(OUTPUTS, seed=3), requires_grad=False)
    return layer


@call(GROUP, phase=Phase.RELOAD, requires=(*LAYERS, "layers_of_weights"))
def four_bit_states_by_hand(_ctx: Context) -> Iterator[Check]:
    """A 4-bit weight from a checkpoint has its settings and statistics, in copies and after moves as well."""
    for quant, storage, double in KINDS:
        layer = four_bit_layer(quant, storage, double=double)
        title = f"{quant}, {storage}, nested={double}"
        weight = layer.weight
        links = (weight.bnb_quantized, weight.module is layer, layer.quant_state is weight.quant_state)
        yield equal(f"is quantised, knows its layer, shares the state: {title}", str(links), "(True, True, True)")
        nested = f"{MEAN} {NESTED_BLOCK} torch.float32" if double else "None None"
        wanted = (
            f"Params4bit {BLOCK} {double} {quant} torch.{storage} False",
            f"({OUTPUTS}, {INPUTS}) torch.bfloat16 {BLOCK} {quant} {double} {nested}",
        )
        copied = copy.deepcopy(layer).weight
        for how, each in {
            "loaded": weight,
            "shallow copy": copy.copy(weight),
            "deep copy": copied,
            "moved": copy.deepcopy(layer).to("cpu").weight,
        }.items():
            where = f"{title}, {how}"
            yield equal(f"settings of the weight, {where}", of_weight(each), wanted[0])
            yield equal(f"settings of the state, {where}", of_state(each.quant_state), wanted[1])
            found = {**each.quant_state.as_dict(packed=True), "packed": each.data}
            differ = differing(found, {**statistics(quant, double=double), "packed": packed(storage)})
            yield equal(f"tensors that differ, {where}", differ, "")
        shallow = copy.copy(weight)
        links = (shallow.bnb_quantized, shallow.module is layer, shallow.quant_state is weight.quant_state)
        yield equal(f"a shallow copy does, too: {title}", str(links), "(True, True, True)")
        shared = (copied.quant_state is weight.quant_state, copied.data_ptr() == weight.data_ptr())
        yield equal(f"deep copy shares the state, the numbers: {title}", str(shared), "(False, False)")
        yield from on_meta(title, copied, wanted[0])


@call(GROUP, phase=Phase.ADAPT, requires=(*LAYERS, "layers_of_weights"))
def four_bit_weights_that_train(_ctx: Context) -> Iterator[Check]:
    """A packed weight in a dtype of floating-point numbers may train, as FSDP has it, and so do its copies."""
    from bitsandbytes.nn import Params4bit

    for trains in (False, True):
        given = statistics("nf4", double=False)
        weight = Params4bit.from_prequantized(packed("bfloat16"), given, requires_grad=trains, device="cpu")
        for how, each in {
            "loaded": weight,
            "shallow copy": copy.copy(weight),
            "deep copy": copy.deepcopy(weight),
            "moved": weight.to("cpu"),
            "on meta": copy.deepcopy(weight).to("meta"),
        }.items():
            yield equal(f"trains, {trains}, {how}", each.requires_grad, trains)
    yield equal("numbers of a weight without any", Params4bit().numel(), 0)


def on_meta(title: str, weight: Any, settings: str) -> Iterator[Check]:
    """Move a weight, with its statistics, to the meta device."""
    shape = tuple(weight.shape)
    moved = weight.to("meta")
    state = moved.quant_state
    held = [moved, state.absmax, *((state.offset, state.state2.absmax, state.state2.code) if state.nested else ())]
    yield equal(f"settings of the weight, {title}, on meta", of_weight(moved), settings)
    yield equal(f"shape, {title}, on meta", str(tuple(moved.shape)), str(shape))
    yield equal(f"devices, {title}, on meta", str({each.device.type for each in held}), "{'meta'}")


@call(GROUP, phase=Phase.SAVE, requires=LAYERS)
def four_bit_state_dicts_by_hand(_ctx: Context) -> Iterator[Check]:
    """A 4-bit layer saves the names and bytes of its checkpoint, and its state as a dictionary comes back equal."""
    from bitsandbytes.functional import QuantState

    for quant, storage, double in KINDS:
        layer = four_bit_layer(quant, storage, double=double)
        title = f"{quant}, {storage}, nested={double}"
        stored = {f"weight.{name}": each for name, each in statistics(quant, double=double).items()}
        stored = {**stored, "weight": packed(storage), "bias": formats.numbers(OUTPUTS, seed=3)}
        yield equal(f"saved tensors that differ, {title}", differing(layer.state_dict(), stored), "")
        state = layer.weight.quant_state
        itself = [layer.state_dict(keep_vars=keep)["weight.absmax"] is state.absmax for keep in (False, True)]
        yield equal(f"saves the tensor itself without and with keep_vars, {title}", str(itself), "[False, True]")
        plain = state.as_dict()
        others = {name: plain.pop(name, None) for name in words(quant, double=double)}
        expected = {**words(quant, double=double), "shape": (OUTPUTS, INPUTS)}
        yield equal(f"words of the state, {title}", str(others), str(expected))
        yield equal(f"tensors of the state that differ, {title}", differing(plain, tensors(quant, double=double)), "")
        prefixed = {f"model.layer.weight.{name}": each for name, each in statistics(quant, double=double).items()}
        for how, given in (("packed", statistics(quant, double=double)), ("with prefixes", prefixed)):
            again = QuantState.from_dict(given, device="cpu")
            yield equal(f"equal to the state, {how}, {title}", again == state, bound=True)


@call(GROUP, phase=Phase.RELOAD, requires=LAYERS)
def four_bit_states_compared(_ctx: Context) -> Iterator[Check]:
    """States of 4-bit weights are equal only with the same settings and tensors, and incomplete ones are refused."""
    import torch
    from bitsandbytes.functional import QuantState

    def made(*, double: bool = True) -> Any:
        return QuantState.from_dict(statistics("nf4", double=double), device="cpu")

    changes = {
        "absmax": made().absmax + 1,
        "shape": torch.Size([INPUTS, OUTPUTS]),
        "code": made().code / 2,
        "dtype": torch.float16,
        "blocksize": 2 * BLOCK,
        "quant_type": "fp4",
        "offset": made().offset + 1,
        "state2": made(double=False),
    }
    for name, value in changes.items():  # of two means, the comparison gives a tensor
        other = made()
        setattr(other, name, value)
        yield equal(f"equal with another {name}", bool(other == made()), bound=False)
    for name in ("offset", "state2"):
        other = made()
        setattr(other, name, None)
        yield equal(f"equal without {name}", str((bool(other == made()), bool(made() == other))), "(False, False)")
    yield equal("equal to what is no state", made() == "nf4", bound=False)
    complete = statistics("nf4", double=True)
    key = "quant_state.bitsandbytes__nf4"
    for title, given in {
        "no words": {name: each for name, each in complete.items() if name != key},
        "words of two formats": {**complete, "quant_state.bitsandbytes__fp4": complete[key]},
        "words of an unknown format": {"quant_state.bitsandbytes__nf3": complete[key], "absmax": complete["absmax"]},
    }.items():
        yield equal(f"refused: {title}", refusal(QuantState.from_dict, given, "cpu"), "ValueError")
    unknown = {**complete, "scales": complete["absmax"]}
    yield equal("refused: an unknown tensor", refusal(QuantState.from_dict, unknown, "cpu"), "AssertionError")


@call(GROUP, phase=Phase.WRAP, requires=(*LAYERS, "states_of_layers"))
def four_bit_weights_that_lost_their_state(_ctx: Context) -> Iterator[Check]:
    """A layer gives its packed weight the state back that a wrapper such as FSDP took, and leaves a whole one alone."""
    import torch
    from bitsandbytes.nn import Params4bit
    from bitsandbytes.nn.modules import fix_4bit_weight_quant_state_from_module

    for quant, storage, double in KINDS:
        title = f"{quant}, {storage}, nested={double}"
        for how in ("a plain parameter", "a 4-bit one without state"):
            layer = four_bit_layer(quant, storage, double=double)
            state = layer.quant_state
            plain = how == "a plain parameter"
            kind = torch.nn.Parameter if plain else Params4bit
            layer.weight = kind(layer.weight.data, requires_grad=False)
            fix_4bit_weight_quant_state_from_module(layer)
            found = layer.weight
            where = f"{title}, {how}"
            yield equal(f"class of the weight, {where}", type(found).__name__, "Params4bit")
            yield equal(f"has the state of the layer, {where}", found.quant_state is state, bound=True)
            yield equal(f"bytes are the same, {where}", torch.equal(found.data, packed(storage)), bound=True)
            if plain:
                given = f"{found.quant_storage} {found.bnb_quantized} {found.requires_grad}"
                yield equal(f"settings, {where}", given, f"torch.{storage} True False")
        layer = four_bit_layer(quant, storage, double=double)
        before, layer.quant_state = layer.weight, None
        fix_4bit_weight_quant_state_from_module(layer)
        yield equal(f"a whole weight stays, {title}", layer.weight is before, bound=True)
