"""The angles of rotary position embedding, with the scalings for contexts longer than the trained one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from cases.reference.attention import head_width
from cases.space.verdict import UnknownModelError

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
    """The rotations of pairs of entries, as complex numbers: complex128, (batch, length, width / 2).

    Their angles belong to ``positions`` (batch, length), their absolute value is the attention factor.

    Raises:
        UnknownModelError: the reference does not implement this scaling.
    """
    import torch

    found = positions[..., None].double() * frequencies(config, length=int(positions.max()) + 1)
    return torch.polar(torch.full_like(found, attention_factor(config)), found)


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
    if rope["rope_type"] == "yarn":
        return by_parts(plain, rope, width, config["max_position_embeddings"])
    if rope["rope_type"] == "longrope":
        return plain / rescaled(config, rope, length)
    raise UnknownModelError(f"no reference implementation for rope_type {rope['rope_type']!r}")


def attention_factor(config: Mapping[str, Any]) -> float:
    """The factor of rotated queries and of rotated keys, so that scores grow by its square.

    YaRN (section 3.3) divides scores by the temperature t, with sqrt(1 / t) = 0.1 ln(factor) + 1. DeepSeek's
    ``mscale`` and ``mscale_all_dim`` weigh the logarithm (https://arxiv.org/abs/2412.19437, its reference code).
    LongRoPE (https://arxiv.org/abs/2402.13753, as Phi-3 publishes it) uses sqrt(1 + ln(factor) / ln(trained length)).
    """
    rope = settings(config)
    if "attention_factor" in rope:
        return float(rope["attention_factor"])
    if rope["rope_type"] == "longrope":
        trained = trained_length(config, rope)
        factor = rope.get("factor") or config["max_position_embeddings"] / trained
        return math.sqrt(1 + math.log(factor) / math.log(trained)) if factor > 1 else 1.0
    if rope["rope_type"] != "yarn" or rope["factor"] <= 1:
        return 1.0
    log = 0.1 * math.log(rope["factor"])
    queries, keys = rope.get("mscale") or 0.0, rope.get("mscale_all_dim") or 0.0
    return float((queries * log + 1) / (keys * log + 1)) if queries and keys else log + 1


def trained_length(config: Mapping[str, Any], rope: Mapping[str, Any]) -> int:
    """The length before scaling; Phi-3 states it beside the settings of the scaling."""
    stated = rope.get("original_max_position_embeddings") or config.get("original_max_position_embeddings")
    return int(stated or config["max_position_embeddings"])


def by_parts(plain: Any, rope: Mapping[str, Any], width: int, longest: int) -> Any:
    """YaRN (https://arxiv.org/abs/2309.00071): keep fast entries, slow those with long wavelengths by ``factor``.

    Section 3.2 keeps entries with more than ``beta_fast`` turns over the trained length, slows those with fewer than
    ``beta_slow``, and mixes those between. The mix is linear in the index of the entry, between the indices of the two
    bounds, which are rounded outwards unless ``truncate`` is false, as in the reference code that the published models
    were trained with (https://github.com/jquesnelle/yarn, ``LlamaYaRNScaledRotaryEmbedding``).
    """
    import torch

    trained = rope.get("original_max_position_embeddings") or longest

    def index(turns: float) -> float:
        return float(width * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(rope["rope_theta"])))

    first, last = index(rope.get("beta_fast") or 32), index(rope.get("beta_slow") or 1)
    if rope.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, width - 1)
    place = torch.arange(width // 2, dtype=torch.float64)
    slowed = ((place - first) / (last - first if last > first else 0.001)).clamp(0, 1)
    return torch.lerp(plain, plain / rope["factor"], slowed)


def rescaled(config: Mapping[str, Any], rope: Mapping[str, Any], length: int) -> Any:
    """LongRoPE's factors of each wavelength (https://arxiv.org/abs/2402.13753), by the length of the text."""
    import torch

    name = "long_factor" if length > trained_length(config, rope) else "short_factor"
    return torch.tensor(rope[name], dtype=torch.float64)


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
