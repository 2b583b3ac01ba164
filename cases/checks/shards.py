"""Measures how weights, gradients and optimiser state are distributed over ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.checks import observers
from cases.model import tiny

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from cases.space.options import Options
    from cases.space.place import Place

SLACK = 1.1  # flat parameters are padded; a tenth more than 1/N is padding, not replication


def copies(options: Options) -> int:
    """The number of whole copies of a sharded model that its ranks hold together."""
    if options.device_mesh == "hsdp":
        return options.world_size // 2
    return options.world_size if options.strategy == "fsdp1" and options.sharding_strategy == "no_shard" else 1


def units(model: Any) -> list[Any]:
    """FSDP1's units that hold weights, the root first."""
    from torch.distributed.fsdp import FullyShardedDataParallel

    return [unit for unit in FullyShardedDataParallel.fsdp_modules(model) if unit._handle is not None]  # noqa: SLF001 - no public way to a flat parameter


def inner_units(model: Any) -> tuple[list[int], int]:
    """The sizes of the units below the root, and the number of them that are decoder layers."""
    found = [unit for unit in units(model) if unit is not model]
    sizes = [sum(shape.numel() for shape in unit._handle.flat_param._shapes) for unit in found]  # noqa: SLF001 - as above
    return sizes, sum(type(unit.module).__name__.endswith("DecoderLayer") for unit in found)


def inner_units_sharded(model: Any) -> set[bool]:
    """Return whether the units below the root have freed their whole weights."""
    return {is_freed(unit._handle.flat_param) for unit in units(model) if unit is not model}  # noqa: SLF001 - as above


def is_freed(flat: Any) -> bool:
    whole = getattr(flat, "_full_param_padded", None)  # none where nothing is sharded
    return whole is not None and whole.untyped_storage().size() == 0


def mesh_shape(model: Any) -> str:
    """Copies of the model times shards of each, as the wrapped model works."""
    weight = next(model.parameters())
    if hasattr(weight, "device_mesh"):
        sizes = tuple(weight.device_mesh.mesh.shape)
        return f"{sizes[0]} x {sizes[1]}" if len(sizes) > 1 else f"1 x {sizes[0]}"
    import torch.distributed as dist

    root = units(model)[0]
    shards = root.process_group.size() if root._handle.uses_sharded_strategy else 1  # noqa: SLF001 - as above
    return f"{dist.get_world_size() // shards} x {shards}"


def held_gradients(model: Any) -> list[Any]:
    """The gradients on this rank; for shards, the local part."""
    gradients = [observers.local_part(p.grad) for p in model.parameters() if p.grad is not None]
    return [gradient for gradient in gradients if gradient.numel()]


def held_state(optimiser: Any) -> dict[str, int]:
    """Entries that this rank holds of each of Adam's moments."""
    held: dict[str, int] = {}
    for name, tensor in state_tensors(optimiser):
        held[name] = held.get(name, 0) + tensor.numel()
    return held


def state_tensors(optimiser: Any) -> Iterator[tuple[str, Any]]:
    for state in optimiser.state.values():
        for name, value in state.items():
            if name.startswith("exp_avg"):
                yield name, observers.local_part(value)


def trained_entries(model: Any) -> int:
    """Entries of all trainable parameters, whole."""
    if hasattr(next(model.parameters()), "device_mesh"):
        return sum(p.numel() for p in model.parameters() if p.requires_grad)
    return sum(trained_of(unit._handle.flat_param) for unit in units(model))  # noqa: SLF001 - as above


def trained_of(flat: Any) -> int:
    own = getattr(flat, "_params", None) or (flat,) * len(flat._shapes)  # noqa: SLF001 - as above
    return sum(s.numel() for s, p in zip(flat._shapes, own, strict=True) if p.requires_grad)  # noqa: SLF001 - as above


def over_all_ranks(entries: dict[str, int], place: Place) -> dict[str, int]:
    """The sums over all ranks; a rank without a shard of anything may lack a name. Collective."""
    import torch.distributed as dist

    everyone: list[Any] = [None] * place.world_size
    dist.all_gather_object(everyone, entries)
    return {name: sum(each.get(name, 0) for each in everyone) for name in sorted(set().union(*everyone))}


def entries(state: dict[str, Any], names: Container[str]) -> int:
    """The number of values that this rank holds of the named parameters in a state dict."""
    return sum(part.numel() for name, value in state.items() if tiny.canonical(name) in names for part in parts(value))


def parts(value: Any) -> list[Any]:
    """The tensors of a state dict's entry on this rank; FSDP1's shards are ShardedTensors."""
    if hasattr(value, "local_shards"):
        return [shard.tensor for shard in value.local_shards()]
    return [observers.local_part(value)]


def root_is_whole(model: Any) -> bool:
    """Return whether the root unit's weights, such as the embedding, are whole on this rank now."""
    embedding = next(p for name, p in model.named_parameters() if "embed_tokens" in name)
    return embedding.dim() == 2 and not hasattr(embedding, "device_mesh")  # noqa: PLR2004 - a matrix


def resting(model: Any, optimiser: Any) -> list[Any]:
    """The parameters and the optimiser state between two steps."""
    return [*map(observers.local_part, model.parameters()), *(tensor for _, tensor in state_tensors(optimiser))]


def coarse_share(gradients: dict[str, Any]) -> float:
    """The share of float32 numbers, zeros left out, that bfloat16 holds exactly."""
    import torch

    entries = torch.cat([each.reshape(-1) for each in gradients.values()])
    entries = entries[entries != 0]
    return float((entries.bfloat16().float() == entries).float().mean())


def reducer(model: Any) -> dict[str, Any]:
    """The statistics of DDP's reducer; some are available only after a few steps."""
    found: dict[str, Any] = model._get_ddp_logging_data()  # noqa: SLF001 - no public way
    return found
