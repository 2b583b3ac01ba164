"""Expected values for calls of quantised layers: blocks of any size, 8-bit products with outliers, random inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.reference import quantisation
from cases.reference.quantisation import LEVELS, nearest

if TYPE_CHECKING:
    from cases.apply.context import Context

THRESHOLD = 6.0  # from this magnitude on, LLM.int8 treats a feature as an outlier
LARGEST = 127


def numbers(*shape: int, seed: int = 0, short: bool = False) -> Any:
    """Normally distributed numbers, float32, the same in every process; ``short`` ones fit into half precision too.

    Some of the short ones lie halfway between two levels of FP4, so that either is right.
    """
    import torch

    found = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return found.bfloat16().float() if short else found


def four_bit(weight: Any, quant: str, blocksize: int, *, double: bool = False) -> Any:
    """Quantise and dequantise a tensor of any shape; the last block may be incomplete."""
    import torch

    flat = weight.flatten()
    blocks = torch.nn.functional.pad(flat, (0, -len(flat) % blocksize)).reshape(-1, blocksize)
    absmax = blocks.abs().amax(dim=1, keepdim=True)
    kept = quantisation.eight_bit(absmax.flatten())[:, None] if double else absmax
    levels = nearest(blocks / absmax, torch.tensor(LEVELS[quant]))
    return (levels * kept).flatten()[: len(flat)].reshape(weight.shape)


def int8(weight: Any) -> tuple[Any, Any]:
    """A weight (out, in) in 8 bits, and the absmax of each output row, float64."""
    absmax = weight.double().abs().amax(dim=1, keepdim=True)
    return (weight.double() * (LARGEST / absmax)).round(), absmax


def int8_weight(weight: Any) -> Any:
    quantised, absmax = int8(weight)
    return quantised * absmax / LARGEST


def int8_product(inputs: Any, weight: Any, threshold: float = THRESHOLD) -> Any:
    """LLM.int8 (https://arxiv.org/abs/2208.07339, section 3.2): 8-bit products, and outlier features in full.

    ``inputs`` (..., in) and ``weight`` (out, in); the result (..., out) is float64. No feature is an outlier with a
    threshold of 0.
    """
    rows = inputs.reshape(-1, inputs.shape[-1]).double()
    outlier = (rows.abs() >= (threshold or float("inf"))).any(dim=0)
    quantised, scale = int8(rows.masked_fill(outlier, 0.0))
    plain = (quantised * scale / LARGEST) @ int8_weight(weight).T
    full = rows[:, outlier] @ int8_weight(weight)[:, outlier].T
    return (plain + full).reshape(*inputs.shape[:-1], -1)


def eight_bit_layer(
    ctx: Context, weight: Any, bias: Any, *, trained: bool = False, threshold: float = THRESHOLD
) -> Any:
    """The 8-bit layer with these values; ``trained`` keeps the weight in full and quantises it in each forward."""
    from bitsandbytes.nn import Linear8bitLt

    made = Linear8bitLt(weight.shape[1], weight.shape[0], has_fp16_weights=trained, threshold=threshold)
    made.load_state_dict({"weight": weight, "bias": bias})
    return made.to(ctx.place.device)


def four_bit_layer(ctx: Context, weight: Any, bias: Any, quant: str, **more: Any) -> Any:
    """The 4-bit layer with these values, which computes in float32."""
    import torch
    from bitsandbytes.nn import Linear4bit

    made = Linear4bit(weight.shape[1], weight.shape[0], quant_type=quant, compute_dtype=torch.float32, **more)
    made.load_state_dict({"weight": weight, "bias": bias})
    return made.to(ctx.place.device)
