"""Probes of torch on this machine: dtypes, attention kernels, optimisers, compilation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.apply.attention import force_back_end
from cases.space.verdict import LackingError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cases.space.place import Place


def differentiate(layer: Any, dtype: Any, place: Place) -> None:
    """Run one forward and backward pass through a layer with frozen weights."""
    import torch

    inputs = torch.ones(2, 64, dtype=dtype, device=place.device, requires_grad=True)
    layer(inputs).float().sum().backward()


def step_once(place: Place, make: Callable[[list[Any]], Any], size: int = 64) -> None:
    import torch

    layer = torch.nn.Linear(size, size, device=place.device)
    optimiser = make(list(layer.parameters()))
    layer(torch.ones(2, size, device=place.device)).sum().backward()
    optimiser.step()


def cpu_scaler(_place: Place, _cache: Path) -> None:
    from torch.amp import GradScaler

    if not GradScaler("cpu").is_enabled():
        raise LackingError("GradScaler disables itself on a CPU")


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


def gradient_scaler(place: Place, _cache: Path) -> None:
    """Run one step of one layer. FSDP1 brings its own scaler."""
    import torch
    from torch.amp import GradScaler

    layer = torch.nn.Linear(64, 64, device=place.device)
    optimiser = torch.optim.SGD(layer.parameters(), lr=0.1)
    scaler = GradScaler(place.kind)
    scaler.scale(layer(torch.ones(2, 64, device=place.device)).sum()).backward()
    scaler.step(optimiser)


def fused_step(place: Place, _cache: Path, rule: str) -> None:
    import torch

    step_once(place, lambda trained: getattr(torch.optim, rule)(trained, lr=0.1, fused=True))


def torch_optimiser(_place: Place, _cache: Path, name: str) -> None:
    import torch

    if not hasattr(torch.optim, name):
        raise LackingError(f"torch.optim has no {name}")


def plateaus_of_new_groups(_place: Place, _cache: Path) -> None:
    """Earlier versions index the least rates by groups that came later."""
    import torch

    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    if not hasattr(torch.optim.lr_scheduler.ReduceLROnPlateau(optimiser), "default_min_lr"):
        raise LackingError("ReduceLROnPlateau keeps no default of min_lr")


def compiling(place: Place, _cache: Path) -> None:
    """Compile a layer with an activation, so that Triton compiles a launcher in C."""
    import torch

    layer = torch.nn.Sequential(torch.nn.Linear(64, 64, device=place.device), torch.nn.GELU())
    layer.compile(backend="aot_eager" if place.kind == "cpu" else "inductor")
    differentiate(layer, torch.float32, place)


def forced_attention(place: Place, _cache: Path, attention: str) -> None:
    """Run scaled-dot-product attention with one back end, in a dtype that the back end supports."""
    import torch

    from cases.space.options import Options

    dtype = torch.float32 if place.kind == "cpu" else torch.bfloat16
    one = torch.ones(1, 4, 16, 16, dtype=dtype, device=place.device, requires_grad=True)
    with force_back_end(Options().but(attn_implementation=attention)):
        torch.nn.functional.scaled_dot_product_attention(one, one, one, is_causal=True).float().sum().backward()


def flash_attention_package(place: Place, _cache: Path) -> None:
    if place.kind == "cpu":
        raise LackingError("flash-attn runs on GPUs only")
    import flash_attn

    assert flash_attn  # noqa: S101 - the import is the probe


def another_device(place: Place, _cache: Path) -> None:
    if place.kind == "cpu":
        raise LackingError("the cells run on the CPU, the only device")


def gpu_of_each_rank(place: Place, _cache: Path) -> None:
    if place.shares_gpu:
        raise LackingError("all ranks share one GPU")


def gpu_memory(place: Place, _cache: Path) -> None:
    if place.kind == "cpu":
        raise LackingError("torch counts the memory of GPUs only")


def offload(_place: Place, _cache: Path) -> None:
    raise LackingError("without a GPU, all weights are in CPU memory anyway")
