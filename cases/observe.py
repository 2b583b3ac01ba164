"""Whole tensors out of a wrapped model, whatever the strategy made of them. Collective: all ranks must call."""

from __future__ import annotations

import contextlib
import hashlib
from typing import TYPE_CHECKING, Any

from cases import stack, tiny

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.options import Options


def whole(tensor: Any) -> Any:
    """A detached float32 copy of the whole tensor; a DTensor is gathered."""
    gathered = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return gathered.detach().float().cpu().clone()


def raw(tensor: Any) -> Any:
    """A detached copy of the whole tensor in its own dtype."""
    gathered = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return gathered.detach().cpu().clone()


@contextlib.contextmanager
def unsharded(model: Any, options: Options) -> Iterator[None]:
    """Inside, FSDP1's parameters are whole and under their own names; nothing is written back."""
    if options.strategy != "fsdp1":
        yield
        return
    from torch.distributed.fsdp import FullyShardedDataParallel

    with FullyShardedDataParallel.summon_full_params(model, writeback=False):
        yield


def gradients(model: Any, options: Options) -> dict[str, Any]:
    """Gradients of the trainable parameters as the optimiser will see them, whole, float32, by canonical name."""
    if options.strategy == "fsdp1":
        return dict(flat_gradients(model))
    return {name: whole(p.grad) for name, p in tiny.named(model) if p.requires_grad and p.grad is not None}


def flat_gradients(model: Any) -> Iterator[tuple[str, Any]]:
    """FSDP1's gradients: the sharded gradient of each flat parameter, gathered and cut into its parameters.

    ``summon_full_params(with_grads=True)`` would do this for ``use_orig_params=True`` only.
    """
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import FullyShardedDataParallel

    for unit in FullyShardedDataParallel.fsdp_modules(model):
        handle = unit._handle  # noqa: SLF001 - no public way to a flat parameter
        if handle is None or handle.flat_param.grad is None:
            continue
        flat, mine = handle.flat_param, handle.flat_param.grad.detach().contiguous()
        pieces = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(pieces, mine)
        prefix = next(name for name, module in model.named_modules() if module is unit)
        yield from cut(torch.cat(pieces), flat, prefix)


def cut(values: Any, flat: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """Split a whole flat gradient by the parameters that were flattened into it, padding between them left out."""
    lengths = getattr(flat, "_numels_with_padding", flat._numels)  # noqa: SLF001 - as above
    padding = getattr(flat, "_is_padding_mask", (False,) * len(lengths))
    pieces = values[: sum(lengths)].split(list(lengths))  # behind them lies padding to a multiple of the ranks
    parts = [piece for piece, pad in zip(pieces, padding, strict=True) if not pad]
    trained = getattr(flat, "_params", None) or (flat,) * len(flat._fqns)  # noqa: SLF001 - as above
    for name, shape, part, parameter in zip(flat._fqns, flat._shapes, parts, trained, strict=True):  # noqa: SLF001 - as above
        if parameter.requires_grad:
            yield tiny.canonical(f"{prefix}.{name}".lstrip(".")), part.reshape(shape).float().clone()


def weights(model: Any, options: Options) -> dict[str, Any]:
    """Every parameter, whole, in its own dtype, by canonical name; packed ones as they are."""
    with unsharded(model, options):
        return {name: raw(p) for name, p in tiny.named(model)}


QUANTISED = ("Linear4bit", "Linear8bitLt")  # PEFT's wrappers have the same names


def quantised_layers(model: Any) -> dict[str, Any]:
    """Bitsandbytes' quantised linear layers, by the canonical name of their weight."""
    return {
        tiny.canonical(f"{name}.weight"): module
        for name, module in model.named_modules()
        if type(module).__name__ in ("Linear4bit", "Linear8bitLt")
        and type(module).__module__.startswith("bitsandbytes")
    }


def dequantised_layers(model: Any) -> dict[str, Any]:
    """Float32 weights of the quantised layers as bitsandbytes itself dequantises them, before they are wrapped."""
    return {name: dequantised(module) for name, module in quantised_layers(model).items()}


def dequantised(module: Any) -> Any:
    from bitsandbytes import functional

    weight = module.weight
    if type(module).__name__ == "Linear8bitLt":
        return (weight.detach().float() * weight.SCB.float()[:, None] / 127).cpu()
    return functional.dequantize_4bit(weight.detach(), weight.quant_state).float().cpu()


def kind(module: Any) -> str:
    """What a quantised layer is, in words."""
    if type(module).__name__ == "Linear8bitLt":
        return "int8"
    state = module.weight.quant_state
    return f"{state.quant_type}, nested {bool(state.nested)}, compute {stack.dtype_name(module.compute_dtype)}"


def state_digests(model: Any) -> dict[str, str]:
    """Of each quantised layer as it is now: its scales, and for 4-bit its code book and kind."""
    return {name: state_digest(module) for name, module in quantised_layers(model).items()}


def state_digest(module: Any) -> str:
    if type(module).__name__ == "Linear8bitLt":
        scales = module.state.SCB if module.state.SCB is not None else module.weight.SCB
        return digest(scales)
    state = getattr(module.weight, "quant_state", None) or module.quant_state
    return f"{digest(state.absmax)} {digest(state.code)} {state.quant_type} {bool(state.nested)}"


def digest(tensor: Any) -> str:
    """Equal for bit-identical tensors."""
    import torch

    plain = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return hashlib.sha256(plain.numpy().tobytes()).hexdigest()[:16]


def local_bytes(model: Any) -> int:
    """Bytes of parameters that this rank holds; a DTensor counts its local shard."""
    return sum(local.numel() * local.element_size() for local in map(local_part, model.parameters()))


def local_part(parameter: Any) -> Any:
    return parameter.to_local() if hasattr(parameter, "to_local") else parameter
