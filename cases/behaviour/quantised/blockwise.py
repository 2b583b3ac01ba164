"""bitsandbytes' functions for tensors in blocks and rows of 8 and 4 bits, each by its definition in float64.

https://huggingface.co/docs/bitsandbytes/reference/functional
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.quantised import formats
from cases.behaviour.quantised.eight_bit_optimisers import unsigned_levels
from cases.reference.quantisation import LEVELS, dynamic_levels
from cases.reference.tolerance import UNIT_ROUNDOFF, relative, worst
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Quantised tensors"
FOUR, EIGHT = ("4bit",), ("8bit",)
SINGLE = 8 * UNIT_ROUNDOFF["fp32"]
BLOCKSIZES = (64, 128, 256, 512, 1024, 2048, 4096)
OUTLIERS, THRESHOLD = (3, 40, 41), 6.0
LARGEST = 127


def dtypes() -> dict[str, Any]:
    import torch

    return {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def per_number(absmax: Any, blocksize: int, count: int) -> Any:
    """The largest magnitude of the block of each number."""
    return absmax.double().repeat_interleave(blocksize)[:count]


def blocks_of(numbers: Any, blocksize: int) -> Any:
    """The largest magnitude of each block, the last one included: float64."""
    import torch

    flat = numbers.double().flatten()
    return torch.nn.functional.pad(flat, (0, -len(flat) % blocksize)).reshape(-1, blocksize).abs().amax(1)


def further(numbers: Any, chosen: Any, levels: Any) -> float:
    """By how much the furthest number is further from its level than from the nearest one."""
    import torch

    sorted_levels = levels.double().sort().values
    place = torch.searchsorted(sorted_levels, numbers).clamp(1, len(levels) - 1)
    nearest = torch.minimum((numbers - sorted_levels[place - 1]).abs(), (numbers - sorted_levels[place]).abs())
    return float(((numbers - chosen).abs() - nearest).max())


def rounded(found: Any, wanted: Any, name: str) -> float:
    """The largest error in units of the rounding to a dtype."""
    unit = UNIT_ROUNDOFF[name] * wanted.abs().clamp_min(2.0**-14)
    return float(((found.double() - wanted).abs() / unit).max())


@call(GROUP, phase=Phase.FORWARD, requires=EIGHT)
def blockwise_eight_bits(ctx: Context) -> Iterator[Check]:
    """quantize_blockwise chooses the nearest value of its code for each share of a block's largest magnitude."""
    import torch
    from bitsandbytes import functional

    zero = torch.zeros(1)  # a second one fills the code
    maps = {
        "dynamic": (functional.create_dynamic_map(), dynamic_levels()),
        "unsigned": (functional.create_dynamic_map(signed=False), unsigned_levels()),
        "linear": (functional.create_linear_map(), torch.cat([torch.linspace(-1, 1, 255), zero]).sort().values),
        "given": (torch.linspace(-1, 1, 256), torch.linspace(-1, 1, 256)),
    }
    for kind, (code, levels) in maps.items():
        yield at_most(f"code off, {kind}", float((code.cpu() - levels).abs().max()), SINGLE)
        for name, dtype in dtypes().items():
            steps, values, absmaxes = [], [], []
            for blocksize in BLOCKSIZES:
                numbers = formats.numbers(3, blocksize // 2 + 3, seed=blocksize).to(dtype)
                numbers = numbers.abs() if kind == "unsigned" else numbers
                packed, state = functional.quantize_blockwise(
                    numbers.to(ctx.place.device), code=code, blocksize=blocksize
                )
                found = functional.dequantize_blockwise(packed, state)
                largest = blocks_of(numbers, blocksize)
                absmaxes.append(relative(state.absmax.cpu(), largest))
                scale = per_number(largest, blocksize, numbers.numel())
                chosen = code.cpu().double()[packed.cpu().flatten().long()]
                steps.append(further(numbers.double().flatten() / scale, chosen, code.cpu()))
                values.append(rounded(found.cpu().flatten(), chosen * scale, name))
                if found.dtype != dtype or found.shape != numbers.shape:
                    values.append(float("inf"))
            yield at_most(f"largest magnitudes off, {kind}, {name}", worst(absmaxes), SINGLE)
            yield at_most(f"further from its value than the nearest, {kind}, {name}", worst(steps), LOOKED_UP)
            yield at_most(f"values off in roundings, {kind}, {name}", worst(values), 1.5)


LOOKED_UP = 2.0**-15  # on CPUs, 16 bits of a share choose its value; blockwise_small_numbers shows what that loses


@call(GROUP, phase=Phase.FORWARD, requires=EIGHT)
def blockwise_small_numbers(ctx: Context) -> Iterator[Check]:
    """quantize_blockwise keeps zero, and numbers that are small beside the largest one of their block.

    The dynamic code has 0 and values from 5.5e-7 on, as its paper asks for: https://arxiv.org/abs/2110.02861, section
    2.2. On CPUs, bitsandbytes 0.50 looks up places by shares that it rounds to 16 bits, and zero becomes 2.1e-5.
    """
    import torch
    from bitsandbytes import functional

    code = dynamic_levels().double()
    shares = torch.tensor([1.0, 0.0, *(factor * 10.0**-size for size in range(2, 8) for factor in (1, -3, 6))])
    for name, dtype in dtypes().items():
        numbers = (shares * 8).to(dtype)
        found = functional.dequantize_blockwise(
            *functional.quantize_blockwise(numbers.to(ctx.place.device), blocksize=64)
        ).cpu()
        exact = numbers.double() / 8
        wanted = code[(exact[:, None] - code).abs().argmin(1)] * 8
        yield equal(f"zero, {name}", float(found[1]), 0.0)
        yield at_most(f"small numbers off, {name}", rounded(found, wanted, name), 1.5)  # in roundings


@call(GROUP, phase=Phase.FORWARD, requires=EIGHT)
def blockwise_nested(ctx: Context) -> Iterator[Check]:
    """With nested=True, the largest magnitudes less their mean are quantised in blocks, and come back with it."""
    from bitsandbytes import functional

    for blocksize in (64, 256):
        numbers = formats.numbers(40, blocksize * 3, seed=blocksize)
        packed, state = functional.quantize_blockwise(numbers.to(ctx.place.device), blocksize=blocksize, nested=True)
        largest = blocks_of(numbers, blocksize)
        offset = largest.mean()
        yield at_most(f"mean off, {blocksize}", relative(state.offset.cpu(), offset), SINGLE)
        inner = blocks_of(largest - offset, state.state2.blocksize)
        yield at_most(f"largest deviations off, {blocksize}", relative(state.state2.absmax.cpu(), inner), 1e-5)
        scale = per_number(inner, state.state2.blocksize, len(largest))
        chosen = dynamic_levels().double()[state.absmax.cpu().flatten().long()]
        magnitudes = chosen * scale + offset
        wanted = dynamic_levels().double()[packed.cpu().long()] * magnitudes.repeat_interleave(blocksize).reshape(
            numbers.shape
        )
        found = functional.dequantize_blockwise(packed, state).cpu()
        yield at_most(f"values off, {blocksize}", relative(found, wanted), 1e-5)
        most = float((magnitudes - largest).abs().max() / scale.max())
        yield at_most(f"magnitudes off, {blocksize}", most, 0.05)  # the widest step of the code is 0.0141 * 2


@call(GROUP, phase=Phase.FORWARD, requires=FOUR)
def four_bit_codes(ctx: Context) -> Iterator[Check]:
    """quantize_4bit packs the first of two numbers into the high bits, each as its place in the code."""
    yield from of_codes(ctx, BLOCKSIZES)


@call(GROUP, phase=Phase.FORWARD, requires=(*FOUR, "blocks_of_32"))
def four_bit_codes_of_small_blocks(ctx: Context) -> Iterator[Check]:
    """As four_bit_codes, in blocks of 32."""
    yield from of_codes(ctx, (32,))


def of_codes(ctx: Context, sizes: Sequence[int]) -> Iterator[Check]:
    import torch
    from bitsandbytes import functional

    for quant in ("nf4", "fp4"):
        for name, dtype in dtypes().items():
            codes, values, steps, kinds = [], [], [], set()
            levels = torch.tensor(LEVELS[quant]).double().sort().values
            for blocksize in sizes:
                numbers = formats.numbers(2, 2 * blocksize, seed=blocksize).to(dtype)
                for storage in (torch.uint8, torch.bfloat16, torch.float32):
                    packed, state = functional.quantize_4bit(
                        numbers.to(ctx.place.device), blocksize=blocksize, quant_type=quant, quant_storage=storage
                    )
                    found = functional.dequantize_4bit(packed, state).cpu()
                    kinds |= {packed.dtype == storage, found.dtype == dtype, found.shape == numbers.shape}
                    raw = packed.cpu().flatten().view(torch.uint8)
                    places = torch.stack([raw >> 4, raw & 15], dim=1).flatten().long()
                    code = state.code.cpu().double()
                    codes.append(float((code.sort().values - levels).abs().max()))
                    scale = per_number(state.absmax.cpu(), blocksize, numbers.numel())
                    values.append(rounded(found.flatten(), code[places] * scale, name))
                    shares = numbers.double().flatten() / per_number(
                        blocks_of(numbers, blocksize), blocksize, len(scale)
                    )
                    steps.append(further(shares, code[places], code))
            yield equal(f"dtypes and shapes, {quant}, {name}", kinds == {True}, bound=True)
            yield at_most(f"code off, {quant}, {name}", worst(codes), 1e-6)
            yield at_most(f"values off in roundings, {quant}, {name}", worst(values), 1.5)
            yield at_most(f"further from its level than the nearest, {quant}, {name}", worst(steps), HALFWAY)


HALFWAY = 2e-3  # decisions in float32 or half precision near the middle of two levels


@call(GROUP, phase=Phase.FORWARD, requires=EIGHT)
def int8_vectors(ctx: Context) -> Iterator[Check]:
    """int8_vectorwise_quant scales rows to 127 without outliers, and the product comes back by both scales.

    https://arxiv.org/abs/2208.07339, section 3
    """
    import torch
    from bitsandbytes import functional

    for rows, threshold in product((7, 2), (0.0, THRESHOLD)):
        numbers = formats.numbers(rows, 64, seed=1, short=True).clamp(-4, 4)
        numbers[1, list(OUTLIERS)] = torch.tensor([9.0, -8.0, THRESHOLD])
        half = numbers.half().to(ctx.place.device)
        found, scale, columns = functional.int8_vectorwise_quant(half, threshold=threshold)
        kept, kind = numbers.double().clone(), f"{rows} rows, {threshold}"
        if threshold:
            kept[kept.abs() >= threshold] = 0
            yield equal(f"outlier columns, {kind}", str(sorted(columns.tolist())), str(list(OUTLIERS)))
        else:
            yield equal(f"no outliers, {kind}", columns is None, bound=True)
        largest = kept.abs().amax(1)
        yield at_most(f"scales off, {kind}", relative(scale.cpu(), largest), SINGLE)
        wanted = (kept * (LARGEST / largest[:, None])).round()
        if threshold:
            wanted[:, list(OUTLIERS)] = 0  # the product in full precision has them
        off = (found.cpu().double() - wanted).abs()
        yield at_most(f"numbers off, {kind}", float(off.max()), 1.0)
        yield at_most(f"share of numbers off, {kind}", float((off > 0).double().mean()), TIES)
        back = functional.int8_vectorwise_dequant(found, scale).cpu()
        exact = found.cpu().double() * scale.cpu().double()[:, None] / LARGEST
        yield at_most(f"dequantised off, {kind}", relative(back, exact), SINGLE)
    weight = formats.numbers(5, 64, seed=2, short=True).half().to(ctx.place.device)
    left, left_scale, _ = functional.int8_vectorwise_quant(half)
    right, right_scale, _ = functional.int8_vectorwise_quant(weight)
    sums = functional.int8_linear_matmul(left, right)
    whole = left.cpu().long() @ right.cpu().long().T
    yield equal("entries of the product that differ", int((sums.cpu().long() != whole).sum()), 0)
    bias = formats.numbers(5, seed=3, short=True).half().to(ctx.place.device)
    found = functional.int8_mm_dequant(sums, left_scale, right_scale, bias=bias).cpu()
    scales = left_scale.cpu().double()[:, None] * right_scale.cpu().double() / LARGEST**2
    yield at_most("product off", relative(found, whole * scales + bias.cpu().double()), 4 * UNIT_ROUNDOFF["fp16"])


TIES = 0.01  # the share of numbers halfway between two steps


@call(GROUP, phase=Phase.FORWARD, requires=(*FOUR, "fake_kernels", "blocks_of_32"))
def four_bit_shapes_for_the_compiler(ctx: Context) -> Iterator[Check]:
    """The compiler accepts every documented block size of 4 bits, and gets the shapes and dtypes of the results."""
    import bitsandbytes  # noqa: F401 - registers the operations
    import torch

    ops, place = torch.ops.bitsandbytes, ctx.place.device
    for quant, (name, dtype) in product(("nf4", "fp4"), dtypes().items()):
        wrong: list[str] = []
        for blocksize in (32, *BLOCKSIZES):
            weight, bias = formats.numbers(6, blocksize).to(dtype).to(place), torch.zeros(6, dtype=dtype, device=place)
            packed, absmax = ops.quantize_4bit.default(weight, blocksize, quant, torch.uint8)
            back = (packed, absmax, blocksize, quant, (6, blocksize), dtype)
            wrong += differences(ops.quantize_4bit.default, weight, blocksize, quant, torch.uint8)
            wrong += differences(ops.dequantize_4bit.default, *back)
            if not hasattr(ops, "gemm_4bit"):
                continue
            for shape, given in product(((5, blocksize), (2, 3, blocksize)), (None, bias)):
                inputs = formats.numbers(*shape).to(dtype).to(place)
                layer = (packed, (6, blocksize), absmax, blocksize, quant, given)
                wrong += differences(ops.gemm_4bit.default, inputs, *layer)
        yield equal(f"promised for found, {quant}, {name}", "; ".join(wrong[:2]) or "none", "none")


def differences(operation: Any, *arguments: Any) -> list[str]:
    """What an operation gives the compiler and what it gives, if they are not the same."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode()
    fakes = [mode.from_tensor(each) if isinstance(each, torch.Tensor) else each for each in arguments]
    try:
        with mode:
            promised = described(operation(*fakes))
    except RuntimeError as error:  # what torch._check raises
        promised = str(error)
    found = described(operation(*arguments))
    return [f"{promised} for {found}"] if promised != found else []


@call(GROUP, phase=Phase.FORWARD, requires=(*FOUR, *EIGHT, "fake_kernels"))
def shapes_for_the_compiler(ctx: Context) -> Iterator[Check]:
    """The shapes and dtypes that bitsandbytes gives the compiler are those of the results, for all sizes."""
    import bitsandbytes  # noqa: F401 - registers the operations
    import torch

    ops = torch.ops.bitsandbytes
    code, place = dynamic_levels().to(ctx.place.device), ctx.place.device
    wrong: dict[str, list[str]] = {}

    def compare(name: str, operation: Any, *arguments: Any) -> None:
        wrong.setdefault(name, []).extend(differences(operation, *arguments))

    for name, dtype in dtypes().items():
        for shape in ((64, 64), (3, 5, 128), (1, 256), (7, 33), (129,)):
            numbers = formats.numbers(*shape).to(dtype).to(place)
            for blocksize in (64, 256, 4096):
                compare(f"quantize_blockwise, {name}", ops.quantize_blockwise.default, numbers, code, blocksize)
                packed, absmax = ops.quantize_blockwise.default(numbers, code, blocksize)
                blockwise = ops.dequantize_blockwise.default
                compare(f"dequantize_blockwise, {name}", blockwise, packed, absmax, code, blocksize, dtype)
                for storage in (torch.uint8, torch.bfloat16):
                    if numbers.numel() % 4:
                        continue
                    quantize = ops.quantize_4bit.default
                    compare(f"quantize_4bit, {name}", quantize, numbers, blocksize, "nf4", storage)
                    packed, absmax = quantize(numbers, blocksize, "nf4", storage)
                    dequantize = ops.dequantize_4bit.default
                    compare(f"dequantize_4bit, {name}", dequantize, packed, absmax, blocksize, "nf4", shape, dtype)
    half = formats.numbers(6, 64).half().to(place)
    compare("int8_vectorwise_quant", ops.int8_vectorwise_quant.default, half)
    left, scale, _ = ops.int8_vectorwise_quant.default(half)
    compare("int8_linear_matmul", ops.int8_linear_matmul.default, left, left)
    compare("int8_mm_dequant", ops.int8_mm_dequant.default, ops.int8_linear_matmul.default(left, left), scale, scale)
    for name, dtype in dtypes().items():
        compare(f"int8_scaled_mm, {name}", ops.int8_scaled_mm.default, left, left, scale, scale, None, dtype)
    for name, lines in wrong.items():
        yield equal(f"promised for found, {name}", "; ".join(lines[:2]) or "none", "none")


def described(found: Any) -> str:
    parts = found if isinstance(found, tuple) else (found,)
    return " ".join(f"{tuple(each.shape)} {each.dtype}" if each is not None else "None" for each in parts)


@call(GROUP, phase=Phase.LOAD, requires=FOUR)
def four_bit_casts(ctx: Context) -> Iterator[Check]:
    """Casting a quantised layer casts its bias alone: packed weights, statistics and outputs stay."""
    import copy

    import torch

    weight, bias = formats.numbers(48, 64, seed=2), formats.numbers(48, seed=3, short=True)
    inputs = formats.numbers(5, 64).to(ctx.place.device)
    for double in (False, True):
        layer = formats.four_bit_layer(ctx, weight, bias, "nf4", compress_statistics=double)
        with torch.no_grad():
            wanted = layer.train()(inputs)
            for name, dtype in dtypes().items():
                moved = copy.deepcopy(layer).to(dtype).train()
                same = torch.equal(moved.weight.view(torch.uint8), layer.weight.view(torch.uint8))
                kind = f"{name}, absmax in {'8 bits' if double else 'full'}"
                yield equal(f"packed weights as before, {kind}", same, bound=True)
                yield equal(f"dtype of the statistics, {kind}", kinds_of(moved), kinds_of(layer))
                yield equal(f"dtype of the bias, {kind}", moved.bias.dtype == dtype, bound=True)
                yield at_most(f"outputs off, {kind}", relative(moved(inputs), wanted), SINGLE)


def kinds_of(layer: Any) -> str:
    state = layer.weight.quant_state
    kinds = [state.absmax.dtype, state.code.dtype, layer.weight.dtype]
    return " ".join(map(str, kinds + ([state.state2.absmax.dtype, state.offset.dtype] if state.nested else [])))
