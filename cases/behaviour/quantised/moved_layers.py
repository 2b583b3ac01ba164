"""Quantised tensors and layers that are moved, split or copied, or made under another default dtype."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.quantised import formats
from cases.behaviour.quantised.eight_bit_layers import EIGHT
from cases.reference.tolerance import relative
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "Quantised layers that move"
FOUR = ("4bit",)
SETTINGS = ("blocksize", "compress_statistics", "quant_type", "quant_storage", "bnb_quantized")


def settings(weight: Any) -> str:
    return " ".join(f"{name}={getattr(weight, name)}" for name in SETTINGS)


def made(ctx: Context, quant: str, storage: str, blocksize: int, *, double: bool) -> Any:
    import torch
    from bitsandbytes.nn import Params4bit

    return Params4bit(
        formats.numbers(64, 256, seed=2),
        requires_grad=False,
        blocksize=blocksize,
        compress_statistics=double,
        quant_type=quant,
        quant_storage=getattr(torch, storage),
    ).to(ctx.place.device)


def statistics(weight: Any) -> dict[str, Any]:
    """The tensors of a quantised weight's state."""
    state = weight.quant_state
    found = {"absmax": state.absmax, "code": state.code}
    if state.nested:
        found |= {"offset": state.offset, "inner absmax": state.state2.absmax, "inner code": state.state2.code}
    return found


@call(GROUP, phase=Phase.LOAD, requires=FOUR)
def four_bit_weights_move(ctx: Context) -> Iterator[Check]:
    """A 4-bit weight is quantised as its settings say, and keeps them and moves its statistics when it moves.

    PEFT quantises a merged weight by the settings of the one that it replaces.
    """
    for quant, storage, blocksize, double in (
        ("nf4", "uint8", 64, True),
        ("nf4", "bfloat16", 128, False),
        ("fp4", "float32", 256, True),
    ):
        weight = made(ctx, quant, storage, blocksize, double=double)
        kind = f"{quant} in {storage}"
        wanted = f"blocksize={blocksize} compress_statistics={double} quant_type={quant} quant_storage=torch.{storage}"
        state = weight.quant_state
        used = f"blocksize={state.blocksize} compress_statistics={state.nested} quant_type={state.quant_type}"
        yield equal(f"settings: {kind}", settings(weight), f"{wanted} bnb_quantized=True")
        yield equal(f"settings of the state: {kind}", f"{used} quant_storage={weight.dtype}", wanted)
        before = {name: each.cpu() for name, each in statistics(weight).items()}
        for device in (ctx.place.device, "cpu", "meta"):
            moved = copy.deepcopy(weight).to(device)
            where = f"{kind}, {'here' if device == ctx.place.device else device}"
            yield equal(f"settings after a move: {where}", settings(moved), settings(weight))
            kept = statistics(moved)
            away = [name for name in before if kept[name].device.type != moved.device.type]
            yield equal(f"statistics left behind: {where}", "+".join(away) or "none", "none")
            other = [name for name in before if device != "meta" and not kept[name].cpu().equal(before[name])]
            yield equal(f"statistics that changed: {where}", "+".join(other) or "none", "none")


@call(GROUP, phase=Phase.WRAP, requires=(*FOUR, "four_bit_parts"))
def four_bit_weights_in_parts(ctx: Context) -> Iterator[Check]:
    """Parts of a 4-bit weight by torch.chunk and torch.split, as FSDP2 takes them, keep its settings and its bytes."""
    import torch

    weight = made(ctx, "nf4", "bfloat16", 128, double=True)
    for name, parts in (("chunk", torch.chunk(weight, 3)), ("split", torch.split(weight, 700))):
        wrong = [number for number, each in enumerate(parts) if settings(each) != settings(weight)]
        yield equal(f"parts with other settings: {name}", str(wrong), "[]")
        foreign = [number for number, each in enumerate(parts) if each.quant_state is not weight.quant_state]
        yield equal(f"parts with another state: {name}", str(foreign), "[]")
        plain = torch.cat([each.data.view(torch.uint8).flatten() for each in parts])
        yield equal(f"same bytes: {name}", plain.equal(weight.data.view(torch.uint8).flatten()), bound=True)


@call(GROUP, phase=Phase.RELOAD, requires=EIGHT)
def int8_copies(ctx: Context) -> Iterator[Check]:
    """A copy of an 8-bit layer, by deepcopy or pickle or a move, before or after a forward, gives its outputs."""
    import torch

    weight, bias = formats.numbers(48, 64, seed=2, short=True), formats.numbers(48, seed=3, short=True)
    inputs = formats.numbers(5, 64, short=True).half().to(ctx.place.device)
    for trains in (False, True):
        layer = formats.eight_bit_layer(ctx, weight, bias).train(trains)
        with torch.no_grad():
            wanted = formats.eight_bit_layer(ctx, weight, bias).train(trains)(inputs)
            for when in ("before a forward", "after a forward"):
                copies = {
                    "deepcopy": copy.deepcopy(layer),
                    "pickle": pickle.loads(pickle.dumps(layer)),  # noqa: S301 - of this process
                    "move": copy.deepcopy(layer).to(ctx.place.device),
                }
                for name, each in copies.items():
                    kind = f"{name} {when}, training={trains}"
                    yield at_most(f"outputs off: {kind}", relative(each(inputs), wanted), 0.0)
                layer(inputs)


@call(GROUP, phase=Phase.LOAD, requires=(*FOUR, *EIGHT))
def quantised_under_default_dtypes(ctx: Context) -> Iterator[Check]:
    """torch.set_default_dtype changes neither how bitsandbytes quantises tensors nor how it brings them back."""
    import torch

    before = torch.get_default_dtype()
    numbers = formats.numbers(64, 128, seed=5).to(ctx.place.device)
    wanted = through_formats(numbers)
    for kind in (torch.bfloat16, torch.float16, torch.float64):
        torch.set_default_dtype(kind)
        try:
            found = through_formats(numbers)
        finally:
            torch.set_default_dtype(before)
        for name, each in wanted.items():
            alike = found[name].dtype == each.dtype and found[name].equal(each)
            yield equal(f"as under float32, default {kind}: {name}", alike, bound=True)


def through_formats(numbers: Any) -> dict[str, Any]:
    """A tensor through each format, with what bitsandbytes keeps of it."""
    import torch
    from bitsandbytes import functional

    code = torch.linspace(-1, 1, 256, dtype=torch.float32, device=numbers.device)
    packed, state = functional.quantize_blockwise(numbers, code=code, blocksize=256)
    found = {"8 bits": functional.dequantize_blockwise(packed, state), "8 bits, absmax": state.absmax}
    for quant, double in (("nf4", False), ("fp4", True)):
        packed, state = functional.quantize_4bit(numbers, quant_type=quant, compress_statistics=double)
        found |= {quant: functional.dequantize_4bit(packed, state), f"{quant}, packed": packed}
        found |= {f"{quant}, absmax": state.absmax}
    rows, scales, _ = functional.int8_vectorwise_quant(numbers.half(), threshold=2.5)
    return {**found, "int8": rows, "int8, scales": scales}
