"""Probes of bitsandbytes: its binary, its quantised layers, its optimisers."""

from __future__ import annotations

import re
from importlib.metadata import version
from typing import TYPE_CHECKING

from cases.probes import arithmetic
from cases.space.verdict import LackingError

if TYPE_CHECKING:
    from pathlib import Path

    from cases.space.place import Place


BINARY = re.compile(r"libbitsandbytes_cuda(\d+)(\d)")


def bitsandbytes_binary(_place: Place, _cache: Path) -> None:
    """Apply bitsandbytes' own rule, which respects its environment variable and, later, near versions."""
    import torch

    try:
        from bitsandbytes.cextension import get_cuda_bnb_library_path
        from bitsandbytes.cuda_specs import get_cuda_specs
    except ImportError:  # before 0.43; if the import itself fails, the case shows it
        return
    specs = get_cuda_specs()
    path = specs and get_cuda_bnb_library_path(specs)
    if path and not path.exists():
        known = {found.groups() for each in path.parent.iterdir() if (found := BINARY.match(each.name))}
        there = ", ".join(".".join(each) for each in sorted(known)) or "none for any"
        raise LackingError(f"{version('bitsandbytes')} has none for {torch.version.cuda}, it has {there}")


def four_bit_class(_place: Place, _cache: Path) -> None:
    from bitsandbytes.nn import Linear4bit

    assert Linear4bit  # noqa: S101 - the import is the probe


def four_bit(place: Place, _cache: Path) -> None:
    import torch
    from bitsandbytes.nn import Linear4bit

    layer = Linear4bit(64, 64, bias=False, quant_type="nf4", compute_dtype=torch.bfloat16).to(place.device)
    arithmetic.differentiate(layer, torch.bfloat16, place)


def eight_bit(place: Place, _cache: Path) -> None:
    import torch
    from bitsandbytes.nn import Linear8bitLt

    layer = Linear8bitLt(64, 64, bias=False, has_fp16_weights=False).to(place.device)
    arithmetic.differentiate(layer, torch.bfloat16, place)


def quantised_loading(place: Place, cache: Path, quant: str) -> None:
    """Load the tiny model quantised: some versions of transformers refuse to without a GPU."""
    from cases.apply import build
    from cases.space.options import Options

    try:
        build.load(Options().but(flow="load", method="full", quant=quant, torch_dtype="bf16"), place, cache)
    except Exception as error:
        if any(word in str(error) for word in ("GPU", "CUDA", "cuda")):
            raise
        # any other error is a finding that the case shows


def adamw_8bit_step(place: Place, _cache: Path) -> None:
    import torch
    from bitsandbytes.optim import AdamW8bit

    weight = torch.nn.Parameter(torch.ones(64, 64, device=place.device))
    weight.sum().backward()
    AdamW8bit([weight], min_8bit_size=16).step()


def eight_bit_state(place: Place, _cache: Path) -> None:
    import bitsandbytes

    arithmetic.step_once(place, lambda trained: bitsandbytes.optim.AdamW8bit(trained, lr=0.1, min_8bit_size=1))


def paged_state(place: Place, _cache: Path) -> None:
    """Step a weight of 262,144 numbers, as bitsandbytes pages no state of less than 100,000."""
    import bitsandbytes

    if place.kind == "cpu":
        raise LackingError("paged state needs memory that a GPU and its host share")
    arithmetic.step_once(
        place, lambda trained: bitsandbytes.optim.PagedAdamW8bit(trained, lr=0.1, min_8bit_size=1), 512
    )


def small_blocks(place: Place, _cache: Path) -> None:
    """Quantise a tensor in blocks of 32."""
    import torch
    from bitsandbytes import functional

    functional.quantize_4bit(torch.ones(64, device=place.device), blocksize=32)


def four_bit_parts(_place: Place, _cache: Path) -> None:
    from bitsandbytes.nn import Params4bit

    if "__torch_function__" not in vars(Params4bit):
        raise LackingError("torch.chunk and torch.split of a 4-bit weight lose its settings")


def fake_kernels(_place: Place, _cache: Path) -> None:
    """Look for the operations that are registered with torch."""
    import bitsandbytes
    import torch

    if not hasattr(getattr(torch.ops, bitsandbytes.__name__), "quantize_4bit"):
        raise LackingError("bitsandbytes registers no operations with torch")
