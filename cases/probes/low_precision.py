"""Probes of what FP8 and torchao need: a configuration, a GPU, kernels without a download, a package."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from cases.probes.data import Offer
from cases.space.verdict import LackingError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from cases.space.place import Place

    Probe = Callable[[Place, Path], None]

ADA = (8, 9)  # the first compute capability with FP8 products


def fp8_gpu(place: Place, _cache: Path) -> None:
    import torch

    if place.kind == "cpu":
        raise LackingError("the cells run on the CPU")
    found = torch.cuda.get_device_capability(place.device)
    if found < ADA:
        raise LackingError(f"this one has compute capability {'.'.join(map(str, found))}, FP8 needs 8.9")


def fp8_kernel(_place: Place, _cache: Path) -> None:
    """Look for kernels in transformers itself: later versions download them from a hub."""
    from transformers.integrations import finegrained_fp8

    if not hasattr(getattr(finegrained_fp8, "w8a8_block_fp8_matmul_triton", None), "__code__"):
        raise LackingError("they are downloaded from a hub")


def fp8_dequantize(_place: Place, _cache: Path) -> None:
    from transformers import FineGrainedFP8Config

    if "dequantize" not in inspect.signature(FineGrainedFP8Config.__init__).parameters:
        raise LackingError("FineGrainedFP8Config has no dequantize")


def torchao(_place: Place, _cache: Path) -> None:
    import torchao

    assert torchao  # noqa: S101 - the import is the probe


def torchao_int4(place: Place, _cache: Path) -> None:
    """Quantise one layer: the kernels and the package that packs them depend on the version and the device."""
    import torch
    from torchao.quantization import Int4WeightOnlyConfig, quantize_

    quantize_(torch.nn.Linear(256, 256, bias=False, device=place.device, dtype=torch.bfloat16), Int4WeightOnlyConfig())


def float8_gather(place: Place, _cache: Path) -> None:
    """Gather a float8 tensor of each rank."""
    import torch
    from torch import distributed

    part = torch.ones(16, device=place.device).to(torch.float8_e4m3fn)
    whole = torch.empty(16 * place.world_size, device=place.device, dtype=part.dtype)
    distributed.all_gather_into_tensor(whole, part)


ANYWHERE: Mapping[str, tuple[Probe, str]] = {  # requirement: probe and the reason of a skip; only calls name them
    "fp8_config": (Offer("transformers", "FineGrainedFP8Config"), "this transformers has no FineGrainedFP8Config"),
    "fp8_kernel": (fp8_kernel, "this transformers has no FP8 kernels of its own"),
    "fp8_dequantize": (fp8_dequantize, "this transformers does not dequantise FP8 checkpoints"),
    "torchao": (torchao, "the case needs torchao, which the set does not have"),
    "ao_recipe": (Offer("accelerate.utils", "AORecipeKwargs"), "this accelerate has no recipe for torchao"),
    "torchao_int4": (torchao_int4, "torchao's int4 weights need other packages or another device here"),
}
