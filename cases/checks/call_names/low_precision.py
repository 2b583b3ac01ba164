"""The names of the checks of ``cases.behaviour.low_precision``, by module; see ``cases.checks.names``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

CHECKS: Mapping[str, tuple[str, ...]] = {
    "cases.behaviour.low_precision.float8_numbers": (
        "numbers that differ, {name}",
        "numbers that differ after another cast, {name}",
        "numbers that differ, bfloat16 to {name}",
        "dtype, {name}, {how}",
        "bytes that differ, {name}, {how}",
        "dtype and rows of a shard",
        "what the steps change",
        "outputs off",
        "bytes that differ, {name}",
        "weights off, {name}",
    ),
    "cases.behaviour.low_precision.fp8_adapters": (
        "adapters",
        "dtypes of adapters",
        "output is differentiable, {name}",
        "gradient off, {name}",
        "gradient, {name}",
        "refused",
        "merged change off, {name}",
    ),
    "cases.behaviour.low_precision.fp8_checkpoints": (
        "layers with 8-bit weights",
        "dtype of the head",
        "shape of scales, {name}",
        "scales off, {name}",
        "share of weights that differ, {name}",
        "largest difference, {name}",
        "weights off, {name}",
        "numbers that are not finite",
        "weights off",
        "layers reloaded",
        "dtype in the file, {name}",
        "weights in the file that differ, {name}",
        "scales in the file that differ, {name}",
        "weights that differ, {name}",
        "scales that differ, {name}",
        "a scale is a number",
        "what rounding the input changes, {name}",
        "product off, {name}",
        "logits off",
        "class, {name}",
    ),
    "cases.behaviour.low_precision.fp8_training": (
        "layers converted",
        "what rounding changes",
        "output off",
        "gradient of the input off",
        "gradient of the weight off",
        "loss off, step {number}",
        "what the steps change",
        "gradient off, {name}",
        "outputs off",
        "weight is sharded, {name}",
    ),
    "cases.behaviour.low_precision.torchao_weights": (
        "quantised layers, {config}",
        "steps off, {name}, {config}",
        "what quantising changes, {config}",
        "logits off, {config}",
        "quantised layers",
        "weights that differ, {name}",
        "logits off",
        "gradient, {name}, {config}",
        "gradient off, {name}, {config}",
        "refused with its reason",
        "adapted layers",
        "steps off, {name}",
        "steps off after unmerging, {name}",
        "gradient off, {name}",
    ),
}
