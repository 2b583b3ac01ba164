"""What a case needs of a version or of a machine, found by looking: a probe runs, what it raises is the reason.

A version that lacks an option, or a machine that cannot run a strategy at all, makes a ``skip``. A probe exercises the
bare thing (one linear layer), never the combination that a case is about, so it cannot hide what a case would find.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cases import stack

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cases.build import Place
    from cases.options import Options

    Probe = Callable[[Place, Path], None]


@dataclass(frozen=True)
class Need:
    """``because`` begins the sentence of the skip; ``cpu_only`` for what only a machine without GPUs can lack."""

    name: str
    when: Callable[[Options], bool]
    probe: Probe
    because: str
    ranks: int = 1
    cpu_only: bool = False


class LackingError(Exception):
    """The version has no such option."""


def applicable(options: Options, device: str) -> list[Need]:
    return [need for need in NEEDS if need.when(options) and (device == "cpu" or not need.cpu_only)]


def dora_option(_place: Place, _cache: Path) -> None:
    from peft import LoraConfig

    if "use_dora" not in inspect.signature(LoraConfig).parameters:
        raise LackingError("LoraConfig has no use_dora")


def adapter_dtype_option(_place: Place, _cache: Path) -> None:
    if not stack.has_adapter_autocast():
        raise LackingError("get_peft_model has no autocast_adapter_dtype")


def storage_option(_place: Place, _cache: Path) -> None:
    from transformers import BitsAndBytesConfig

    if "bnb_4bit_quant_storage" not in inspect.signature(BitsAndBytesConfig.__init__).parameters:
        raise LackingError("BitsAndBytesConfig has no bnb_4bit_quant_storage")


def peft_policy(_place: Place, _cache: Path) -> None:
    from peft.utils.other import fsdp_auto_wrap_policy

    assert callable(fsdp_auto_wrap_policy)  # noqa: S101 - the import is the probe


def four_bit(place: Place, _cache: Path) -> None:
    import torch
    from bitsandbytes.nn import Linear4bit

    layer = Linear4bit(64, 64, bias=False, quant_type="nf4", compute_dtype=torch.bfloat16).to(place.device)
    differentiate(layer, torch.bfloat16, place)


def eight_bit(place: Place, _cache: Path) -> None:
    import torch
    from bitsandbytes.nn import Linear8bitLt

    layer = Linear8bitLt(64, 64, bias=False, has_fp16_weights=False).to(place.device)
    differentiate(layer, torch.bfloat16, place)


def differentiate(layer: Any, dtype: Any, place: Place) -> None:
    """One forward and backward through a layer with frozen weights."""
    import torch

    inputs = torch.ones(2, 64, dtype=dtype, device=place.device, requires_grad=True)
    layer(inputs).float().sum().backward()


def quantised_loading(place: Place, cache: Path, quant: str) -> None:
    """Transformers of some years refuses to quantise without a GPU, whatever bitsandbytes could do."""
    from cases import build
    from cases.options import Options

    try:
        build.load(Options().but(flow="load", method="full", quant=quant, load_dtype="bf16"), place, cache)
    except Exception as error:
        if any(word in str(error) for word in ("GPU", "CUDA", "cuda")):
            raise
        # anything else is a finding, and the case's to show


def half_arithmetic(place: Place, _cache: Path) -> None:
    import torch

    layer = torch.nn.Linear(64, 64, dtype=torch.float16, device=place.device)
    differentiate(layer, torch.float16, place)
    torch.nn.functional.silu(layer.weight).softmax(-1).mean().backward()


def half_autocast(place: Place, _cache: Path) -> None:
    import torch

    layer = torch.nn.Linear(64, 64, device=place.device)
    with torch.autocast(place.kind, dtype=torch.float16):
        found = layer(torch.ones(2, 64, device=place.device)).dtype
    if found is not torch.float16:
        raise LackingError(f"torch {torch.__version__} leaves {found} under float16 autocast on the CPU")


def bare_fsdp1(place: Place, _cache: Path, **arguments: Any) -> None:
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel

    device = torch.device("cpu") if place.kind == "cpu" else place.device
    layer = torch.nn.Linear(64, 64, device=place.device)
    differentiate(FullyShardedDataParallel(layer, device_id=device, **arguments), torch.float32, place)


def synced_fsdp1(place: Place, cache: Path) -> None:
    bare_fsdp1(place, cache, sync_module_states=True)


def bare_fsdp2(place: Place, _cache: Path) -> None:
    import torch
    from torch.distributed.device_mesh import init_device_mesh

    fully_shard = stack.fully_shard()
    layer = torch.nn.Linear(64, 64, device=place.device)
    fully_shard(layer, mesh=init_device_mesh(place.kind, (place.world_size,)))
    differentiate(layer, torch.float32, place)


def fsdp2_exists(_place: Place, _cache: Path) -> None:
    stack.fully_shard()


NEEDS = (
    Need("dora", lambda o: o.method == "dora", dora_option, "this peft has no DoRA"),
    Need(
        "adapter_dtype",
        lambda o: "adapter_fp32" in o.stated and not o.adapter_fp32,
        adapter_dtype_option,
        "this peft does not let the adapters' dtype be chosen",
    ),
    Need(
        "storage", lambda o: o.quant_storage != "uint8", storage_option, "this transformers cannot choose the storage"
    ),
    Need("peft_policy", lambda o: o.wrap == "peft", peft_policy, "this peft has no wrap policy"),
    Need("fsdp2_exists", lambda o: o.strategy == "fsdp2", fsdp2_exists, "this torch has no FSDP2"),
    Need("4bit", lambda o: o.quant == "nf4", four_bit, "4-bit layers need a GPU in this bitsandbytes", cpu_only=True),
    Need("8bit", lambda o: o.quant == "int8", eight_bit, "8-bit layers need a GPU in this bitsandbytes", cpu_only=True),
    Need(
        "4bit_loading",
        lambda o: o.quant == "nf4",
        lambda place, cache: quantised_loading(place, cache, "nf4"),
        "4-bit loading needs a GPU in this transformers",
        cpu_only=True,
    ),
    Need(
        "8bit_loading",
        lambda o: o.quant == "int8",
        lambda place, cache: quantised_loading(place, cache, "int8"),
        "8-bit loading needs a GPU in this transformers",
        cpu_only=True,
    ),
    Need(
        "half_arithmetic",
        lambda o: o.load_dtype == "fp16",
        half_arithmetic,
        "this torch has no float16 arithmetic on the CPU",
        cpu_only=True,
    ),
    Need(
        "half_autocast",
        lambda o: o.autocast == "fp16",
        half_autocast,
        "this torch has no float16 autocast on the CPU",
        cpu_only=True,
    ),
    Need("fsdp1", lambda o: o.strategy == "fsdp1", bare_fsdp1, "FSDP1 needs a GPU in this torch", 2, cpu_only=True),
    Need(
        "fsdp1_sync",
        lambda o: o.strategy == "fsdp1" and o.sync_module_states,
        synced_fsdp1,
        "sync_module_states needs a GPU in this torch",
        2,
        cpu_only=True,
    ),
    Need("fsdp2", lambda o: o.strategy == "fsdp2", bare_fsdp2, "FSDP2 needs a GPU in this torch", 2, cpu_only=True),
)
PROBES: dict[str, Probe] = {need.name: need.probe for need in NEEDS}
