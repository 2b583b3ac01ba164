"""The way from a loss to the optimiser's step: micro-batches, gradient scaler, clipping, and a trace."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cases.checks import observers
from cases.reference.quantisation import MAX_NORM
from cases.space.options import SHARDED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.model.data import Rows
    from cases.space.options import Options
    from cases.space.place import Place

FIRST_SCALE = 2.0**12  # torch starts with 2**16 and skips steps that overflow; here no step may be skipped


@dataclass
class Trace:
    """The measurements between loss and optimiser, step by step, on this rank."""

    scales: list[float] = field(default_factory=list)  # of the loss, by the gradient scaler
    unscaled_by: list[float] = field(
        default_factory=list
    )  # the norm of the gradients before unscaling, divided by the norm after
    norms: list[float] = field(default_factory=list)  # of all gradients, as clipping measured it
    clipped_norms: list[float] = field(default_factory=list)  # of the gradients that the optimiser receives
    operations: set[str] = field(default_factory=set)  # of torch, inside the optimiser's step
    gradient_bytes: tuple[int, int] | None = None  # held by this rank, and of one whole copy
    micro_batches: int = 0
    kept_local: list[bool] = field(default_factory=list)  # for each micro-batch except a step's last


def micro_batches(rows: Rows, options: Options) -> Iterator[tuple[Rows, bool]]:
    """Split this rank's rows into equal parts; yields each with a flag for the last part of the step."""
    parts = rows.parts(options.gradient_accumulation_steps)
    for number, part in enumerate(parts, 1):
        yield part, number == len(parts)


@contextlib.contextmanager
def synchronise(wrapped: Any, options: Options, *, last: bool) -> Iterator[None]:
    """A context that exchanges gradients only for a step's last micro-batch."""
    if options.strategy == "fsdp2":
        wrapped.set_requires_gradient_sync(last)
        yield
    elif last or options.strategy == "single":
        yield
    else:
        with wrapped.no_sync():
            yield


def gradients_are_local(wrapped: Any, options: Options, place: Place) -> bool:
    """Return whether gradients are still local: neither reduced nor sharded. Collective."""
    if options.strategy == "fsdp2":
        return all(p.grad is None for p in wrapped.parameters())  # the unsharded parameters have them
    if options.strategy == "fsdp1":
        flats = [flat for flat in observers.flat_parameters(wrapped) if flat.grad is not None]
        return bool(flats) and all(flat.grad.numel() > flat._local_shard.numel() for flat in flats)  # noqa: SLF001 - no public way
    import torch.distributed as dist

    mine = [observers.digest(p.grad) for p in wrapped.parameters() if p.grad is not None]
    everyone: list[Any] = [None] * place.world_size
    dist.all_gather_object(everyone, mine)
    return bool(mine) and all(each != everyone[0] for each in everyone[1:])


def scaler(options: Options, place: Place) -> Any:
    """A gradient scaler for autocast to float16; FSDP1 has its own, which shares overflows across ranks."""
    if options.autocast != "fp16":
        return None
    if options.strategy == "fsdp1":
        from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

        return ShardedGradScaler(device=place.kind, init_scale=FIRST_SCALE)
    from torch.amp import GradScaler

    return GradScaler(place.kind, init_scale=FIRST_SCALE)


def unscale(scaler: Any, optimiser: Any, wrapped: Any, trace: Trace) -> None:
    if scaler is None:
        return
    before = local_norm(wrapped)
    trace.scales.append(scaler.get_scale())
    scaler.unscale_(optimiser)
    trace.unscaled_by.append(before / max(local_norm(wrapped), 1e-30))


def clip(wrapped: Any, options: Options, trace: Trace) -> None:
    """Clip the norm of all gradients over all ranks: FSDP1 has a method for it, torch handles FSDP2's tensors."""
    if not options.clip_grad_norm:
        return
    import torch

    if options.strategy == "fsdp1":
        norm = wrapped.clip_grad_norm_(MAX_NORM)
    else:
        trained = [p for p in wrapped.parameters() if p.requires_grad]
        norm = torch.nn.utils.clip_grad_norm_(trained, MAX_NORM)
    trace.norms.append(float(observers.whole(norm)))


def step(scaler: Any, optimiser: Any, options: Options, trace: Trace) -> None:
    with (
        contextlib.nullcontext()
        if options.optim_implementation == "default"
        else recording_operations(trace.operations)
    ):
        if scaler is None:
            optimiser.step()
        else:
            scaler.step(optimiser)
            scaler.update()


def recording_operations(names: set[str]) -> Any:
    """A context that records the names of torch's operations, e.g. ``aten._fused_adamw_.default``."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class OperationRecorder(TorchDispatchMode):  # type: ignore[misc]  # torch is typed as Any
        def __torch_dispatch__(self, function: Any, _types: Any, given: Any = (), named: Any = None) -> Any:
            names.add(str(function))
            return function(*given, **(named or {}))

    return OperationRecorder()


def record_gradients(gradients: dict[str, Any], trace: Trace) -> None:
    """Record the norm of the whole gradients that the optimiser receives."""
    trace.clipped_norms.append(sum(float(g.double().square().sum()) for g in gradients.values()) ** 0.5)


def local_norm(wrapped: Any) -> float:
    """The norm of the gradients that this rank holds."""
    held = [observers.local_part(p.grad) for p in wrapped.parameters() if p.grad is not None]
    return float(sum(float(each.double().square().sum()) for each in held) ** 0.5)


def exchanges_gradients(options: Options) -> bool:
    """Return whether ranks exchange gradients under this strategy."""
    return options.strategy in ("ddp", *SHARDED)
