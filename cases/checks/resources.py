"""Measures the gradients and optimiser state that a rank holds against what the strategy promises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.checks import observers
from cases.space.options import SHARDED
from cases.space.verdict import at_least, at_most

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.space.options import Options
    from cases.space.place import Place
    from cases.space.verdict import Check

PADDING = 1.1  # flat parameters are padded, and every shard of 8-bit state begins a block of its own
EIGHT_BIT_BLOCK = 256  # values of 8-bit state that share one float32 scale


def gradient_bytes(wrapped: Any, options: Options) -> tuple[int, int]:
    """The bytes of gradients that this rank holds, and the bytes of one whole copy.

    FSDP1 keeps one gradient per flat parameter, which includes the space of frozen weights.
    """
    if options.strategy == "fsdp1":
        flats = [flat for flat in observers.flat_parameters(wrapped) if flat.grad is not None]
        held = sum(flat.grad.numel() * flat.grad.element_size() for flat in flats)
        return held, sum(flat._unpadded_unsharded_size.numel() * flat.grad.element_size() for flat in flats)  # noqa: SLF001 - no public way
    trained = [p for p in wrapped.parameters() if p.grad is not None]
    held = sum(observers.local_bytes_of(p.grad) for p in trained)
    return held, sum(p.numel() * p.element_size() for p in trained)  # a DTensor counts as a whole


def state_bytes(optimiser: Any) -> int:
    """The bytes of optimiser state that this rank holds, without step counts and shared code books."""
    held = 0
    for state in optimiser.state.values():
        tensors = [value for name, value in state.items() if hasattr(value, "dim") and not name.startswith("qmap")]
        held += sum(observers.local_bytes_of(tensor) for tensor in tensors if tensor.dim() > 0)
    return held


def whole_state_bytes(numbers: dict[str, int], itemsizes: dict[str, int], options: Options) -> int:
    """The bytes of one whole copy of the optimiser state: two moments for each parameter, or none."""
    if options.optim == "sgd":
        return 0
    if options.optim == "adamw":
        return sum(2 * count * itemsizes[name] for name, count in numbers.items())
    return sum(2 * (count + 4 * -(-count // EIGHT_BIT_BLOCK)) for count in numbers.values())


def copies(options: Options) -> int:
    """The number of whole copies that all ranks hold together."""
    if options.strategy not in SHARDED or options.sharding_strategy == "no_shard":
        return options.world_size
    return options.world_size // 2 if options.device_mesh == "hsdp" else 1


def promised(name: str, held: int, whole: int, options: Options, place: Place) -> Iterator[Check]:
    """Check that all ranks together hold exactly the strategy's number of copies. Collective."""
    together = sum_over_ranks(held, place)
    if whole == 0:
        yield at_most(f"{name} bytes of all ranks", together, 0)
        return
    yield at_most(f"{name} bytes of all ranks / whole", together / whole, PADDING * copies(options))
    yield at_least(f"{name} bytes held of all ranks / whole", together / whole, copies(options))


def sum_over_ranks(number: int, place: Place) -> int:
    if place.world_size == 1:
        return number
    import torch.distributed as dist

    everyone: list[Any] = [None] * place.world_size
    dist.all_gather_object(everyone, number)
    return sum(everyone)
