"""The names of the checks of ``cases.behaviour.quantised``, by module; see ``cases.checks.names``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

CHECKS: Mapping[str, tuple[str, ...]] = {
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
}
