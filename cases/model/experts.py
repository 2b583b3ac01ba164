"""The names of a mixture of experts: those of published checkpoints, whatever a version calls them in memory.

transformers 5 stacks the matrices of all experts of a layer in one parameter, and converts them when it loads and
saves.
"""

from __future__ import annotations

from typing import Any

STACKED = ".mlp.experts."
ROUTER = ".mlp.gate.weight"
PUBLISHED = ".block_sparse_moe"


def published_name(name: str) -> str:
    """The published name of a parameter that is not stacked."""
    return name.replace(ROUTER, f"{PUBLISHED}.gate.weight")


def published(tensors: dict[str, Any]) -> dict[str, Any]:
    """Tensors by their published names, with stacked ones taken apart."""
    found: dict[str, Any] = {}
    for name, tensor in tensors.items():
        before, stacked, part = name.partition(STACKED)
        if stacked and part in ("gate_up_proj", "down_proj"):
            found.update(apart(f"{before}{PUBLISHED}.experts", part, tensor))
        else:
            found[published_name(name)] = tensor
    return found


def apart(experts: str, part: str, tensor: Any) -> dict[str, Any]:
    """The matrices of each expert; ``gate_up_proj`` holds w1 above w3, ``down_proj`` is w2."""
    found = {}
    for number, matrix in enumerate(tensor):
        if part == "down_proj":
            found[f"{experts}.{number}.w2.weight"] = matrix
        else:
            found[f"{experts}.{number}.w1.weight"], found[f"{experts}.{number}.w3.weight"] = matrix.chunk(2)
    return found
