"""Rounding to 8-bit floating-point numbers and blocks of them, in float64 and without torch's own casts.

The formats are those of https://arxiv.org/abs/2209.05433; the blocks and their scales, those of DeepSeek-V3's
checkpoints (https://arxiv.org/abs/2412.19437, section 3.3): a weight has a scale for each 128 x 128 block, and an input
one for each 128 numbers of a token. A number is its 8-bit value times the scale.
"""

from __future__ import annotations

from typing import Any

BLOCK = 128
LARGEST = {"e4m3": 448.0, "e5m2": 57344.0}
MANTISSA = {"e4m3": 3, "e5m2": 2}  # bits
SMALLEST = {"e4m3": -6, "e5m2": -14}  # the exponent of the smallest normal number


def rounded(values: Any, kind: str = "e4m3") -> Any:
    """The nearest number of a format, the even one of two, at most its largest: float64, of the same shape."""
    import torch

    exact = values.double().clamp(-LARGEST[kind], LARGEST[kind])
    exponent = (torch.frexp(exact).exponent - 1).clamp_min(SMALLEST[kind])
    spacing = torch.ldexp(torch.ones_like(exact), exponent - MANTISSA[kind])
    return (exact / spacing).round() * spacing  # torch rounds halves to even


def spread(scales: Any, block: int = BLOCK) -> Any:
    """A scale of each block as one of each number."""
    return scales.repeat_interleave(block, 0).repeat_interleave(block, 1)


def block_scales(weight: Any, block: int = BLOCK) -> Any:
    """The scale of each block of a weight (out, in), 1 for zeros: float64, shape (out / block, in / block)."""
    out, width = (size // block for size in weight.shape)
    largest = weight.double().reshape(out, block, width, block).abs().amax(dim=(1, 3))
    return (largest / LARGEST["e4m3"]).masked_fill(largest == 0, 1.0)


def blocks(weight: Any, block: int = BLOCK) -> tuple[Any, Any]:
    """A weight (out, in) as 8-bit values and scales: float64, and the scales as float32 holds them."""
    scales = block_scales(weight, block).float()
    return rounded(weight.double() / spread(scales.double(), block)), scales


def dequantised(values: Any, scales: Any, block: int = BLOCK) -> Any:
    """A weight, float64, from its 8-bit values and the scales of its blocks."""
    return values.double() * spread(scales.double(), block)


def groups(inputs: Any, block: int = BLOCK) -> Any:
    """Inputs (..., in) rounded in groups of ``block`` numbers, as a layer with 8-bit weights rounds them: float64."""
    parts = inputs.double().unflatten(-1, (-1, block))
    scales = parts.abs().amax(dim=-1, keepdim=True) / LARGEST["e4m3"]
    scales = scales.masked_fill(scales == 0, 1.0)  # a group of zeros, such as padding
    return (rounded(parts / scales) * scales).flatten(-2)
