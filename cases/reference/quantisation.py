"""Reference implementation of quantised formats and gradient clipping, without bitsandbytes or torch.nn.utils.

NF4 and double quantisation follow QLoRA (https://arxiv.org/abs/2305.14314, section 3 and appendix E), 8-bit weights
LLM.int8 (https://arxiv.org/abs/2208.07339), the 8-bit format of double quantisation dynamic tree quantisation
(https://arxiv.org/abs/2110.02861, section 2.2), with bitsandbytes' seven decades. FP4 has no paper: its levels are
those of the table in bitsandbytes' ``csrc/kernels.cu`` (``dQuantizeFP4``), twelfths.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cases.space.options import Quant

BLOCK = 64  # weights that share one absmax in 4 bits
ABSMAX_BLOCK = 256  # absmaxes that share one in double quantisation
MAX_NORM = 0.5  # of clipped gradients; those of the tiny model are larger in every step

# The 16 levels of NormalFloat 4: quantiles of a normal distribution, scaled to [-1, 1].
NF4 = (
    -1.0,
    -0.6961928009986877,
    -0.5250730514526367,
    -0.39491748809814453,
    -0.28444138169288635,
    -0.18477343022823334,
    -0.09105003625154495,
    0.0,
    0.07958029955625534,
    0.16093020141124725,
    0.24611230194568634,
    0.33791524171829224,
    0.44070982933044434,
    0.5626170039176941,
    0.7229568362236023,
    1.0,
)
FP4_MAGNITUDES = (0.0, 0.0625 / 12, 2 / 12, 3 / 12, 4 / 12, 6 / 12, 8 / 12, 1.0)
LEVELS = {"nf4": NF4, "fp4": (*FP4_MAGNITUDES, *(-level for level in FP4_MAGNITUDES))}


def dequantised(weight: Any, quant: Quant, *, double: bool = False) -> Any:
    """Quantise and dequantise a weight matrix (out, in), float32."""
    if quant == "none":
        return weight
    return int8(weight) if quant == "int8" else four_bit(weight, LEVELS[quant], double=double)


def four_bit(weight: Any, levels: tuple[float, ...], *, double: bool) -> Any:
    """Blockwise quantisation: 64 consecutive values share their absmax; each takes the nearest level.

    Double quantisation keeps the absmaxes in 8 bits; the exact ones select the levels before that.
    """
    import torch

    blocks = weight.reshape(-1, BLOCK)
    absmax = blocks.abs().amax(dim=1, keepdim=True)
    kept = eight_bit(absmax.flatten())[:, None] if double else absmax
    return (nearest(blocks / absmax, torch.tensor(levels)) * kept).reshape(weight.shape)


def eight_bit(absmaxes: Any) -> Any:
    """Absmaxes (blocks,) after double quantisation: their mean separately, the rest blockwise in 8 bits."""
    import torch

    mean = absmaxes.mean()
    padded = torch.nn.functional.pad(absmaxes - mean, (0, -len(absmaxes) % ABSMAX_BLOCK)).reshape(-1, ABSMAX_BLOCK)
    largest = padded.abs().amax(dim=1, keepdim=True)
    return (nearest(padded / largest, dynamic_levels()) * largest).flatten()[: len(absmaxes)] + mean


def nearest(values: Any, levels: Any) -> Any:
    """The nearest level to each value; values (rows, columns), levels (count,)."""
    return levels[values[:, :, None].sub(levels).abs().argmin(dim=2)]


def dynamic_levels(decades: int = 7) -> Any:
    """Dynamic tree quantisation with a sign: 1, 2, 4, ... 64 levels in decades up to 1, each a mean of two bounds."""
    import torch

    found = [torch.tensor([0.0, 1.0])]
    for decade in range(decades):
        bounds = torch.linspace(0.1, 1, 2**decade + 1)
        means = 10.0 ** (decade - decades + 1) * (bounds[:-1] + bounds[1:]) / 2
        found += [means, -means]
    return torch.cat(found).sort().values


def int8(weight: Any) -> Any:
    """Row-wise 8-bit quantisation: scale every output row to an absmax of 127, then round."""
    absmax = weight.abs().amax(dim=1, keepdim=True)
    return (weight * (127 / absmax)).round() * absmax / 127


def roundoff(quant: Quant) -> float:
    """The relative error (root mean square) of quantising normally distributed weights."""
    import torch

    weights = torch.randn(256, BLOCK, generator=torch.Generator().manual_seed(0))
    return float((dequantised(weights, quant) - weights).norm() / weights.norm())


def moment_roundoff() -> float:
    """The relative error of a moment in 8 bits: blocks of 256, dynamic tree quantisation."""
    import torch

    moments = torch.randn(64, ABSMAX_BLOCK, generator=torch.Generator().manual_seed(0))
    largest = moments.abs().amax(dim=1, keepdim=True)
    return float((nearest(moments / largest, dynamic_levels()) * largest - moments).norm() / moments.norm())


def clip(gradients: list[Any]) -> None:
    """Scale all gradients so that their norm, as one vector, is at most MAX_NORM."""
    norm = sum(float(each.double().square().sum()) for each in gradients) ** 0.5
    for each in gradients:
        each.mul_(min(1.0, MAX_NORM / norm))
