"""The frequencies of rotary positions as published models state them, whose widths tiny models do not have.

Each scaling treats high and low frequencies differently, and narrow heads have few of either kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.models.building import Variant
from cases.reference import rotary, tolerance
from cases.space.verdict import Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Rotary positions"
WIDTH, LONGEST = 128, 131_072
SAME = 1e-6  # relative: a power and a few products in float32
THREE = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
SCALINGS: dict[str, tuple[float, dict[str, Any]]] = {  # theta, and rope_scaling
    "none": (1e6, {}),
    "linear": (1e4, {"rope_type": "linear", "factor": 4.0}),
    "Llama 3.1": (5e5, {**THREE, "factor": 8.0, "original_max_position_embeddings": 8192}),
    "Llama 3.2": (5e5, {**THREE, "factor": 32.0, "original_max_position_embeddings": 8192}),
    "three bands": (1e4, {**THREE, "factor": 3.0, "original_max_position_embeddings": 512, "high_freq_factor": 8.0}),
    "YaRN": (1e6, {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}),
    "YaRN by its betas": (
        1e4,
        {
            "rope_type": "yarn",
            "factor": 16.0,
            "original_max_position_embeddings": 4096,
            "beta_fast": 24.0,
            "beta_slow": 2.0,
        },
    ),
}


@call(GROUP, phase=Phase.LOAD, requires=("rope_scaling_llama3", "rope_scaling_yarn"))
def rotary_frequencies(ctx: Context) -> Iterator[Check]:
    """Frequencies of wide heads are those that the papers and Meta's code define: plain, interpolated and in between.

    https://huggingface.co/docs/transformers/internal/rope_utils
    """
    from transformers import AutoConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    for title, (theta, scaling) in SCALINGS.items():
        stated = {"rope_theta": theta, **({"rope_scaling": scaling} if scaling else {})}
        sizes = {"hidden_size": 2 * WIDTH, "num_attention_heads": 2, "head_dim": WIDTH}
        # Llama states the longest row after scaling, Qwen the trained length; versions read YaRN's from the latter.
        trained = scaling.get("original_max_position_embeddings", LONGEST)
        longest = trained if scaling.get("rope_type") == "yarn" else LONGEST
        variant = Variant("llama", {**sizes, "max_position_embeddings": longest, **stated})
        folder = variant.written(ctx, title)
        made = LlamaRotaryEmbedding(config=AutoConfig.from_pretrained(folder))
        wanted = rotary.frequencies(variant.settings(), length=64)
        off = ((made.inv_freq.double() - wanted).abs() / wanted).max()
        yield at_most(f"frequency off, {title}", float(off), SAME)
        yield equal(f"frequencies, {title}", made.inv_freq.numel(), WIDTH // 2)
        factor = rotary.attention_factor(variant.settings())
        yield at_most(f"attention factor off, {title}", abs(made.attention_scaling / factor - 1), SAME)
        if scaling:
            plain = rotary.frequencies({**variant.settings(), "rope_scaling": None, "rope_parameters": None}, length=64)
            changed = int(((wanted / plain - 1).abs() > tolerance.UNIT_ROUNDOFF["bf16"]).sum())
            yield at_least(f"frequencies that the scaling changes, {title}", changed, 5)
