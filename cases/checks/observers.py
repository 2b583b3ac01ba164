"""Reads whole tensors from a wrapped model of any strategy. Collective: all ranks must call."""

from __future__ import annotations

import contextlib
import copy
import hashlib
from typing import TYPE_CHECKING, Any

from cases.apply import compat
from cases.model import tiny

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.space.options import Options


def whole(tensor: Any) -> Any:
    """A detached float32 copy of the whole tensor; a DTensor is gathered."""
    return raw(tensor).float()


def raw(tensor: Any) -> Any:
    """A detached copy of the whole tensor in its own dtype; a shard that was offloaded is gathered on the device."""
    if hasattr(tensor, "full_tensor"):
        tensor = tensor.detach().to(tensor.device_mesh.device_type).full_tensor()
    return tensor.detach().cpu().clone()


@contextlib.contextmanager
def unsharded(model: Any, options: Options) -> Iterator[None]:
    """A context in which FSDP1's parameters are whole, under their own names, and read-only."""
    if options.strategy != "fsdp1":
        yield
        return
    from torch.distributed.fsdp import FullyShardedDataParallel

    with FullyShardedDataParallel.summon_full_params(model, writeback=False):
        yield


@contextlib.contextmanager
def writable(model: Any, options: Options) -> Iterator[None]:
    """A context in which FSDP1's parameters are whole, and changes are written back."""
    if options.strategy != "fsdp1":
        yield
        return
    from torch.distributed.fsdp import FullyShardedDataParallel

    with FullyShardedDataParallel.summon_full_params(model):
        yield


def base_weights(model: Any) -> dict[str, Any]:
    """The weights that an adapter is merged into, float32 and dequantised, by canonical name."""
    packed = quantised_layers(model)
    plain = {n: whole(p) for n, p in tiny.named(model) if n not in packed and not tiny.is_adapter(n)}
    return plain | {name: dequantised(layer) for name, layer in packed.items()}


def gradients(model: Any, options: Options) -> dict[str, Any]:
    """Gradients of the trainable parameters as the optimiser will see them, whole, float32, by canonical name."""
    if options.strategy == "fsdp1":
        return dict(flat_gradients(model))
    return {name: whole(p.grad) for name, p in tiny.named(model) if p.requires_grad and p.grad is not None}


def flat_gradients(model: Any) -> Iterator[tuple[str, Any]]:
    """FSDP1's gradients: gather the gradient of each flat parameter and split it into parameters.

    ``summon_full_params(with_grads=True)`` supports ``use_orig_params=True`` only.
    """
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import FullyShardedDataParallel

    for unit in FullyShardedDataParallel.fsdp_modules(model):
        handle = unit._handle  # noqa: SLF001 - no public way to a flat parameter
        if handle is None or handle.flat_param.grad is None:
            continue
        flat, mine = handle.flat_param, handle.flat_param.grad.detach().to(unit.compute_device).contiguous()
        pieces = [mine]
        if handle.uses_sharded_strategy:
            pieces = [torch.empty_like(mine) for _ in range(unit.process_group.size())]
            dist.all_gather(pieces, mine, group=unit.process_group)
        prefix = next(name for name, module in model.named_modules() if module is unit)
        yield from cut(torch.cat(pieces).cpu(), flat, prefix)


def flat_parameters(model: Any) -> list[Any]:
    """FSDP1's flat parameters."""
    from torch.distributed.fsdp import FullyShardedDataParallel

    return [unit._handle.flat_param for unit in FullyShardedDataParallel.fsdp_modules(model) if unit._handle]  # noqa: SLF001 - no public way


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
        return (weight.detach().float() * row_scales(module).float()[:, None] / 127).cpu()
    # FSDP1's views of its weights have no attributes
    packed, state = weight.detach(), getattr(weight, "quant_state", None) or module.quant_state
    if hasattr(packed, "full_tensor"):
        packed = packed.full_tensor()
    if getattr(state, "packing_format_for_cpu", False):
        packed, state = unpacked(packed, state)
    return functional.dequantize_4bit(packed, state).float().cpu()


def row_scales(module: Any) -> Any:
    """The row scales of an 8-bit layer: the first forward pass moves them from the weight to the layer's state."""
    return module.state.SCB if module.state.SCB is not None else module.weight.SCB


def unpacked(packed: Any, state: Any) -> tuple[Any, Any]:
    """The usual form of a weight that CPU inference packed for AVX512-BF16 (bitsandbytes >= 0.49).

    ``dequantize_4bit`` would misread that layout. The layer itself does not change.
    """
    from bitsandbytes.functional import _convert_weight_packed_for_cpu_inverse

    plain = copy.copy(state)
    plain.original_nested = False  # the inverse must not quantise the absmaxes again
    weight, plain = _convert_weight_packed_for_cpu_inverse(packed.clone(), plain)
    plain.absmax = state.absmax.T.reshape(-1).float()  # which the inverse leaves transposed
    return weight, plain


def kind(module: Any) -> str:
    """A description of a quantised layer, e.g. ``nf4, nested False, compute bf16``."""
    if type(module).__name__ == "Linear8bitLt":
        return "int8"
    state = module.weight.quant_state
    return f"{state.quant_type}, nested {bool(state.nested)}, compute {compat.dtype_name(module.compute_dtype)}"


def products_of_4bit() -> set[str]:
    """Start recording the dtypes of inputs that are multiplied with 4-bit weights; the set fills later."""
    import bitsandbytes

    seen: set[str] = set()
    multiply = bitsandbytes.matmul_4bit

    def noted(inputs: Any, *others: Any, **named: Any) -> Any:
        seen.add(compat.dtype_name(inputs.dtype))
        return multiply(inputs, *others, **named)

    bitsandbytes.matmul_4bit = noted
    return seen


def state_digests(model: Any) -> dict[str, str]:
    """Digests of each quantised layer's state: its scales, and for 4-bit its code book and type."""
    return {name: state_digest(module) for name, module in quantised_layers(model).items()}


def state_digest(module: Any) -> str:
    if type(module).__name__ == "Linear8bitLt":
        return digest(row_scales(module))
    state = getattr(module.weight, "quant_state", None) or module.quant_state
    return f"{digest(state.absmax)} {digest(state.code)} {state.quant_type} {bool(state.nested)}"


def digest(tensor: Any) -> str:
    """Equal for bit-identical tensors."""
    import torch

    plain = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return hashlib.sha256(plain.numpy().tobytes()).hexdigest()[:16]


def local_bytes(model: Any) -> int:
    """Bytes of parameters that this rank holds; a DTensor counts its local shard."""
    return sum(map(local_bytes_of, model.parameters()))


def local_bytes_of(tensor: Any) -> int:
    local = local_part(tensor)
    return int(local.numel() * local.element_size())


def local_part(parameter: Any) -> Any:
    return parameter.to_local() if hasattr(parameter, "to_local") else parameter
