"""The names of the checks of ``cases.behaviour.quantised``, by module; see ``cases.checks.names``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

CHECKS: Mapping[str, tuple[str, ...]] = {
    "cases.behaviour.quantised.blockwise": (
        "code off, {kind}",
        "largest magnitudes off, {kind}, {name}",
        "further from its value than the nearest, {kind}, {name}",
        "values off in roundings, {kind}, {name}",
        "zero, {name}",
        "small numbers off, {name}",
        "mean off, {blocksize}",
        "largest deviations off, {blocksize}",
        "values off, {blocksize}",
        "magnitudes off, {blocksize}",
        "dtypes and shapes, {quant}, {name}",
        "code off, {quant}, {name}",
        "values off in roundings, {quant}, {name}",
        "further from its level than the nearest, {quant}, {name}",
        "outlier columns",
        "no outliers",
        "scales off, {threshold}",
        "numbers off, {threshold}",
        "share of numbers off, {threshold}",
        "dequantised off, {threshold}",
        "entries of the product that differ",
        "product off",
        "promised for found, {name}",
        "packed weights as before, {kind}",
        "dtype of the statistics, {kind}",
        "dtype of the bias, {kind}",
        "outputs off, {kind}",
    ),
    "cases.behaviour.quantised.eight_bit_layers": (
        "outputs off: {count} dimensions, {kind}",
        "gradient off: {shape}",
        "gradient of the bias off: {shape}",
        "dtype of the gradient: {shape}",
        "gradient of the weight off",
        "outputs off",
        "names {when}",
        "weight off {when}",
        "scales off {when}",
        "layout {when}",
        "outputs of the loaded layer off",
    ),
    "cases.behaviour.quantised.eight_bit_optimisers": (
        "share of weights off: {name}",
        "weights off: {name}",
        "weights off",
        "dtype of the state: {name}",
        "dtype of the state",
    ),
    "cases.behaviour.quantised.four_bit_layers": (
        "values off: {quant}{absmax}",
        "share of values off: {quant}, {name}",
        "dtype: {quant}, {name}",
        "outputs off: {kind}",
        "outputs off: {quant}, {name}",
        "gradient off: {kind}",
        "saved tensors that changed: {kind}",
    ),
    "cases.behaviour.quantised.quantised_files": (
        "packed weights, {short}",
        "dtype of packed weights, {short}",
        "packed weights that differ, {name}",
        "statistics that differ, {name}",
        "statistics, {name}",
        "other weights that differ, {name}",
        "logits off, {name}",
        "scales",
        "{name} that differ",
        "logits off",
    ),
}
