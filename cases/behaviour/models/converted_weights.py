"""The operations that convert the weights of a checkpoint for a model, and those that turn them back to save.

https://huggingface.co/docs/transformers/weightconverter
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.model import tiny
from cases.space.verdict import Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Models"
HEADS, EXPERTS = 4, 3


def weight(name: str, *shape: int) -> Any:
    return tiny.values(name, shape)


def text_config() -> Any:
    made = SimpleNamespace(num_attention_heads=HEADS, parts=3)
    made.get_text_config = lambda: made
    return made


def interleaved(tensor: Any) -> Any:
    """Rows 0, 2, 4, ... and then 1, 3, 5, ..."""
    import torch

    return torch.cat([tensor[0::2], tensor[1::2]])


def by_head(tensor: Any) -> Any:
    """Within each head, pairs of rows become halves: the rotary layout of transformers."""
    import torch

    size = tensor.shape[0] // HEADS
    return torch.cat([interleaved(tensor[head * size : (head + 1) * size]) for head in range(HEADS)])


def operations(ops: Any) -> Iterator[tuple[str, Any, dict[str, Any], dict[str, Any]]]:
    """Name, operation, tensors of the checkpoint and those of the model, by pattern."""
    import torch

    whole, other = weight("whole", 12, 5), weight("other", 12, 5)
    experts = [weight(f"expert {n}", 4, 6) for n in range(EXPERTS)]
    yield "Chunk", ops.Chunk(0), {"a": whole}, {"x": whole[:4], "y": whole[4:8], "z": whole[8:]}
    yield "Chunk, of columns", ops.Chunk(1), {"a": whole.T}, {"x": whole.T[:, :6], "y": whole.T[:, 6:]}
    yield "Concatenate", ops.Concatenate(0), {"a": whole, "b": other}, {"x": torch.cat([whole, other])}
    joined = {"x": torch.cat([whole, other], 1)}
    yield "Concatenate, of columns", ops.Concatenate(1), {"a": whole, "b": other}, joined
    yield "Transpose", ops.Transpose(0, 1), {"a": whole}, {"x": whole.T}
    stacked = torch.stack(experts)
    yield "Transpose, of experts", ops.Transpose(1, 2), {"a": stacked}, {"x": stacked.transpose(1, 2)}
    for title, pairs in {"": weight("rope", 24, 5), ", of biases": weight("bias", 24)}.items():
        yield f"PermuteForRope{title}", ops.PermuteForRope(), {"a": pairs}, {"x": by_head(pairs)}
    yield "MergeModulelist", ops.MergeModulelist(0), {"a.*.w": experts}, {"x": stacked}
    yield "MergeModulelist, of columns", ops.MergeModulelist(1), {"a.*.w": experts}, {"x": torch.stack(experts, 1)}


def convert(operation: Any, given: Mapping[str, Any], targets: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = operation.convert(
        dict(given), source_patterns=[*given], target_patterns=targets, config=text_config()
    )
    return found


def differing(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """The names that one side lacks, and those of tensors with other bits."""
    names = {*found} ^ {*wanted} | {n for n in found.keys() & wanted.keys() if not found[n].equal(wanted[n])}
    return " ".join(sorted(names)) or "none"


@call(GROUP, phase=Phase.LOAD, requires=("converted_weights",))
def operations_on_weights(_ctx: Context) -> Iterator[Check]:
    """Each operation on a checkpoint's weights does what its name says, and its reverse gives them back bit by bit."""
    from transformers import core_model_loading as ops

    for name, operation, given, wanted in operations(ops):
        found = convert(operation, given, [*wanted])
        yield equal(f"tensors that are others, {name}", differing(found, wanted), "none")
        targets = [*given]
        back = convert(operation.reverse_op, wanted, targets)
        original = {
            pattern.replace("*", str(n)) if isinstance(tensor, list) else pattern: each
            for pattern, tensor in given.items()
            for n, each in enumerate(tensor if isinstance(tensor, list) else [tensor])
        }
        yield equal(f"tensors that are others, {name}, turned back", differing(back, original), "none")
        kept = all(each.is_contiguous() for each in found.values())
        yield equal(f"tensors are contiguous, {name}", kept or name.startswith("PermuteForRope"), bound=True)


@call(GROUP, phase=Phase.LOAD, requires=("converted_weights",))
def operations_by_name(_ctx: Context) -> Iterator[Check]:
    """Interleaved rows, and weights of as many parts as the configuration says, are converted and turned back."""
    from transformers import core_model_loading as ops

    whole = weight("whole", 12, 5)
    if hasattr(ops, "Interleave"):
        found = convert(ops.Interleave(0), {"a": whole}, ["x"])
        yield equal("tensors that are others, Interleave", differing(found, {"x": interleaved(whole)}), "none")
        back = convert(ops.Interleave(0).reverse_op, found, ["a"])
        yield equal("tensors that are others, Interleave, turned back", differing(back, {"a": whole}), "none")
    operation = ops.Chunk(0, "parts")
    parts = {f"x.{n}": whole[4 * n : 4 * n + 4] for n in range(3)}
    found = convert(operation, {"a": whole}, ["x.*"])
    yield equal("tensors that are others, Chunk of the configured number", differing(found, parts), "none")
    back = convert(operation.reverse_op, {"x.*": [*parts.values()]}, ["a"])
    title = "Chunk of the configured number, turned back"
    yield equal(f"tensors that are others, {title}", differing(back, {"a": whole}), "none")
