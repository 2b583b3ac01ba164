"""Names and reads the checkpoints that the version under test saved quantised."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from cases.space.options import Options

WHAT = (
    "model",
    "rope_scaling",
    "embeddings",
    "quant",
    "bnb_4bit_quant_storage",
    "bnb_4bit_use_double_quant",
    "llm_int8_skip_modules",
    "torch_dtype",
    "bnb_4bit_compute_dtype",
)


def folder(cache: Path, options: Options) -> Path:
    stated = options.stated
    return cache / "-".join(["prequantised", *(str(stated[name]) for name in WHAT if name in stated)])


def packed_on_disk(made: Path) -> int:
    """The number of quantised weights in a checkpoint, by their code books (4-bit) and scales (8-bit)."""
    from safetensors import safe_open

    found = 0
    for path in made.glob("*.safetensors"):
        with safe_open(str(path), framework="pt") as held:
            found += sum(name.endswith((".quant_map", ".SCB")) for name in held.keys())  # noqa: SIM118 - no mapping
    return found
