"""Quantised layers by their arguments: every threshold of LLM.int8, and 4-bit layers without a compute dtype."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.quantised import formats
from cases.reference import quantisation
from cases.reference.tolerance import UNIT_ROUNDOFF, relative
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Quantised layers"
EIGHT, FOUR = ("8bit",), ("4bit",)
THRESHOLDS = (0.0, 0.05, 0.5, 0.8, 1.0, 1.5, 2.5, 100.0)
HALF = 4 * UNIT_ROUNDOFF["fp16"]
KINDS = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


@call(GROUP, phase=Phase.FORWARD, requires=EIGHT)
def int8_thresholds(ctx: Context) -> Iterator[Check]:
    """llm_int8_threshold decides from which magnitude on an 8-bit layer takes a feature in full; 0 takes none.

    https://huggingface.co/docs/transformers/main_classes/quantization#transformers.BitsAndBytesConfig
    """
    import torch

    weight, bias = formats.numbers(48, 64, seed=2, short=True), formats.numbers(48, seed=3, short=True)
    for threshold, rows in product(THRESHOLDS, (1, 5)):
        layer = formats.eight_bit_layer(ctx, weight, bias, threshold=threshold).eval()
        # Features of sizes around all thresholds, so that each threshold has outliers and others.
        inputs = (formats.numbers(rows, 64, seed=5) * torch.linspace(0.01, 1.5, 64)).half().float()
        with torch.no_grad():
            found = layer(inputs.half().to(ctx.place.device)).double().cpu()
        expected = formats.int8_product(inputs, weight, threshold) + bias
        yield at_most(f"outputs off: threshold {threshold}, {rows} rows", relative(found, expected), 2 * HALF)


@call(GROUP, phase=Phase.FORWARD, requires=FOUR)
def four_bit_dtype_of_first_inputs(ctx: Context) -> Iterator[Check]:
    """A 4-bit layer without compute_dtype computes later inputs in the dtype of its first ones, if they are no float16.

    float16 inputs set none: each such call computes in the dtype of its inputs.
    https://huggingface.co/docs/bitsandbytes/reference/nn/linear4bit
    """
    import torch
    from bitsandbytes.nn import Linear4bit

    weight, bias = formats.numbers(48, 64, seed=2), formats.numbers(48, seed=3, short=True)
    dense = formats.four_bit(weight, "nf4", quantisation.BLOCK)
    for (first, one), (second, other) in product(KINDS.items(), KINDS.items()):
        layer = Linear4bit(64, 48, quant_type="nf4", compress_statistics=False)
        layer.load_state_dict({"weight": weight, "bias": bias})
        layer = layer.to(ctx.place.device).train()
        with torch.no_grad():
            layer(formats.numbers(5, 64, short=True).to(getattr(torch, one)).to(ctx.place.device))
            inputs = formats.numbers(5, 64, seed=7, short=True).to(getattr(torch, other)).to(ctx.place.device)
            found = layer(inputs).cpu()
        computed = second if first == "fp16" else first
        within = 4 * max(UNIT_ROUNDOFF[computed], UNIT_ROUNDOFF[second])
        title = f"{first} first, then {second}"
        yield equal(f"dtype of the outputs: {title}", str(found.dtype), f"torch.{other}")
        wanted: Any = inputs.double().cpu() @ dense.double().T + bias
        yield at_most(f"outputs off: {title}", relative(found, wanted), within)
        held = found.to(getattr(torch, KINDS[computed])).to(found.dtype)
        yield equal(f"outputs that {computed} does not hold: {title}", int((held != found).sum()), 0)
