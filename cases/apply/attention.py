"""Attention: the requested implementation and kernel, and the kernel that ran."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from cases.space.options import Options

BACK_ENDS = {  # of scaled-dot-product attention: torch.nn.attention.SDPBackend's name, and the operator that runs
    "math": ("MATH", "_scaled_dot_product_attention_math"),
    "flash": ("FLASH_ATTENTION", "_scaled_dot_product_flash_attention"),
    "efficient": ("EFFICIENT_ATTENTION", "_scaled_dot_product_efficient_attention"),
    "cudnn": ("CUDNN_ATTENTION", "_scaled_dot_product_cudnn_attention"),
}
FLASH_ATTENTION_2 = "flash_attn"  # part of the names of that package's operators
WHOLE = "aten::scaled_dot_product_attention"  # selects between the back ends


def implementation(options: Options) -> str:
    """The ``attn_implementation`` for ``from_pretrained``; empty if transformers selects it."""
    if options.attn_implementation in BACK_ENDS:
        return "sdpa"
    return "" if options.attn_implementation == "default" else options.attn_implementation


def force_back_end(options: Options) -> AbstractContextManager[Any]:
    """A context in which scaled-dot-product attention has only the requested back end.

    Raises:
        ImportError: this torch cannot force a back end.
        AttributeError: this torch has no such back end.
    """
    if options.attn_implementation not in BACK_ENDS:
        return contextlib.nullcontext()
    from torch.nn.attention import SDPBackend, sdpa_kernel

    found: AbstractContextManager[Any] = sdpa_kernel([getattr(SDPBackend, BACK_ENDS[options.attn_implementation][0])])
    return found


class Kernels:
    """Records the operators of one pass through one attention layer with torch's profiler."""

    def __init__(self) -> None:
        self.operators: set[str] = set()
        self.profiler: Any = None

    def watch(self, layer: Any) -> None:
        self.hooks = [layer.register_forward_pre_hook(self.begin), layer.register_forward_hook(self.end)]

    def begin(self, _layer: Any, _inputs: Any) -> None:
        import torch

        self.profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
        self.profiler.__enter__()

    def end(self, _layer: Any, _inputs: Any, _output: Any) -> None:
        self.profiler.__exit__(None, None, None)
        self.operators = {event.key for event in self.profiler.key_averages()}
        for hook in self.hooks:
            hook.remove()

    @property
    def ran(self) -> str:
        """The kernels that ran, as values of the option; ``eager`` if none of them ran."""
        names = {
            **{name: operator for name, (_, operator) in BACK_ENDS.items()},
            "flash_attention_2": FLASH_ATTENTION_2,
        }
        found = [name for name, part in names.items() if any(part in each for each in self.operators)]
        return "+".join(found) or "eager"
