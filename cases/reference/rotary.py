"""The angles of rotary position embedding, with the scalings for contexts longer than the trained one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from cases.reference.attention import head_width
from cases.reference.models import UnknownModelError

if TYPE_CHECKING:
    from collections.abc import Mapping


def settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The rotary settings of a configuration: ``rope_theta``, ``rope_type``, and those of the type.

    transformers before 5 wrote ``rope_theta`` and ``rope_scaling``, newer ones ``rope_parameters``.
    """
    stated = config.get("rope_parameters") or config.get("rope_scaling") or {}
    return {
        "rope_theta": config.get("rope_theta", 10000.0),
        "rope_type": stated.get("type", "default"),  # its former name
        **{name: value for name, value in stated.items() if value is not None},
    }


def angles(positions: Any, config: Mapping[str, Any]) -> Any:
    """The angles by which pairs of entries turn: float64, (batch, length, width / 2), for positions (batch, length).

    Raises:
        UnknownModelError: the reference does not implement this scaling.
    """
    return positions[..., None].double() * frequencies(config, length=int(positions.max()) + 1)


def frequencies(config: Mapping[str, Any], length: int) -> Any:
    """Theta ** (-2 i / width), scaled: float64, (width / 2,)."""
    import torch

    rope = settings(config)
    width = head_width(config)
    exponents = torch.arange(0, width, 2, dtype=torch.float64) / width
    plain = rope["rope_theta"] ** -exponents
    if rope["rope_type"] == "default":
        return plain
    if rope["rope_type"] == "linear":  # position interpolation, https://arxiv.org/abs/2306.15595
        return plain / rope["factor"]
    if rope["rope_type"] == "dynamic":
        return dynamic(config, rope, length, exponents)
    if rope["rope_type"] == "llama3":
        return by_wavelength(plain, rope)
    raise UnknownModelError(f"no reference implementation for rope_type {rope['rope_type']!r}")


def dynamic(config: Mapping[str, Any], rope: Mapping[str, Any], length: int, exponents: Any) -> Any:
    """NTK-aware scaling that starts beyond the trained length (https://arxiv.org/abs/2309.00071, appendix A.2)."""
    width, trained = head_width(config), config["max_position_embeddings"]
    reach = max(length, trained) / trained
    base = rope["rope_theta"] * (rope["factor"] * reach - (rope["factor"] - 1)) ** (width / (width - 2))
    return base**-exponents


def by_wavelength(plain: Any, rope: Mapping[str, Any]) -> Any:
    """Llama 3.1's scaling (https://arxiv.org/abs/2407.21783; its reference code): slow only long wavelengths.

    Wavelengths beyond the trained length over ``low_freq_factor`` are slowed by ``factor``, those shorter than it over
    ``high_freq_factor`` are kept, and those between are mixed linearly in the number of turns.
    """
    import torch

    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    turns = rope["original_max_position_embeddings"] * plain / (2 * math.pi)
    share = ((turns - low) / (high - low)).clamp(0, 1)
    return torch.lerp(plain / rope["factor"], plain, share)
