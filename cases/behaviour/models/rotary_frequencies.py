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
    "YaRN whose ramp is longer than the head": (  # both of its ends are moved to the head's
        10.0,
        {
            "rope_type": "yarn",
            "factor": 16.0,
            "original_max_position_embeddings": 4096,
            "beta_fast": 1e4,
            "beta_slow": 1e-60,
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


PARTS, SHORT_ROW, LONG_ROW = (0.5, 0.75), 16, 4096  # shares of a head that are rotated, and lengths of rows
KINDS: dict[str, dict[str, Any]] = {
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 2.0},
    "longrope": {"factor": 8.0, "original_max_position_embeddings": 512},
}


@call(GROUP, phase=Phase.LOAD, requires=("rope_parameters",))
def rotary_frequencies_of_parts(_ctx: Context) -> Iterator[Check]:
    """Of heads that are rotated in part, as Phi's, each scaling gives the frequencies of as many numbers as that part.

    LongRoPE divides by its short factors for short rows and by its long ones for long rows.
    """
    from transformers import Phi3Config
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    for part in PARTS:
        width = int(WIDTH * part)
        exponents = [place / width for place in range(0, width, 2)]
        lists = {
            name: [1.0 + share * place for place in range(width // 2)]
            for name, share in (("short", 0.01), ("long", 0.05))
        }
        for kind, settings in KINDS.items():
            stated = {"rope_type": kind, "rope_theta": 1e4, "partial_rotary_factor": part, **settings}
            if kind == "longrope":
                stated |= {f"{name}_factor": values for name, values in lists.items()}
            config = Phi3Config(
                hidden_size=2 * WIDTH,
                num_attention_heads=2,
                max_position_embeddings=512,
                original_max_position_embeddings=512,
                partial_rotary_factor=part,
            )
            config.rope_parameters = stated
            for length in (SHORT_ROW, LONG_ROW):
                found, _ = ROPE_INIT_FUNCTIONS[kind](config, "cpu", seq_len=length)
                base, divisors = 1e4, [1.0] * len(exponents)
                if kind == "linear":
                    divisors = [4.0] * len(exponents)
                elif kind == "longrope":
                    divisors = lists["long" if length > settings["original_max_position_embeddings"] else "short"]
                else:
                    base *= max(1.0, 2.0 * length / 512 - 1.0) ** (width / (width - 2))
                wanted = [1 / (divisor * base**each) for divisor, each in zip(divisors, exponents, strict=True)]
                title = f"{kind}, {part} of a head, {length} tokens"
                yield equal(f"frequencies, {title}", found.numel(), width // 2)
                off = max(abs(float(one) / other - 1) for one, other in zip(found, wanted, strict=False))
                yield at_most(f"frequency off, {title}", off, 10 * SAME)
