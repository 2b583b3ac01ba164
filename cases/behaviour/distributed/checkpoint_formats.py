"""Distributed checkpoints in the format of safetensors, and optimisers' states under flat names.

https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.parallel import networks
from cases.behaviour.parallel.networks import network
from cases.space.verdict import Check, Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "Distributed checkpoints"
STEPS = 2


def adam(model: Any) -> Any:
    import torch

    return torch.optim.AdamW(
        [
            {"params": [p for n, p in model.named_parameters() if n.endswith("weight")], "lr": 0.02},
            {"params": [p for n, p in model.named_parameters() if n.endswith("bias")], "lr": 0.03, "weight_decay": 0.0},
        ],
        weight_decay=0.1,
    )


@call(GROUP, phase=Phase.RELOAD)
def dcp_flat_optimiser_states(_ctx: Context) -> Iterator[Check]:
    """With flatten_optimizer_state_dict, each moment and each setting has a name of its own, and loads again.

    "state.NAME.exp_avg" and "param_groups.NAME.lr": a training goes on from them as it would have gone on.
    """
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions,
        get_optimizer_state_dict,
        set_optimizer_state_dict,
    )

    model = network()
    optimiser = adam(model)
    networks.train(model, optimiser, range(STEPS))
    options = StateDictOptions(flatten_optimizer_state_dict=True)
    state = get_optimizer_state_dict(model, optimiser, options=options)
    for name, parameter in model.named_parameters():
        for kind in ("exp_avg", "exp_avg_sq"):
            found, wanted = state[f"state.{name}.{kind}"], optimiser.state[parameter][kind]
            yield equal(f"{kind} by its name is that of {name}", bool(found.equal(wanted)), bound=True)
        rate, decay = (0.02, 0.1) if name.endswith("weight") else (0.03, 0.0)
        yield equal(f"rate of {name}", state[f"param_groups.{name}.lr"], rate)
        yield equal(f"decay of {name}", state[f"param_groups.{name}.weight_decay"], decay)
        yield equal(f"step of {name}", float(state[f"state.{name}.step"]), float(STEPS))
    other = network()
    other.load_state_dict(model.state_dict())
    resumed = adam(other)
    for group in resumed.param_groups:
        group["lr"] = 9.0
    set_optimizer_state_dict(other, resumed, copy.deepcopy(state), options=options)  # as a file has it
    for each, one in ((model, optimiser), (other, resumed)):
        networks.train(each, one, range(STEPS, 2 * STEPS))
    yield networks.off("weights off after loading", networks.weights(other), networks.weights(model), 0.0)


def tensors() -> dict[str, Any]:
    import torch

    generator = torch.Generator().manual_seed(3)
    return {
        "one.weight": torch.randn(7, 5, generator=generator),
        "two.weight": torch.randn(6, 3, generator=generator).to(torch.bfloat16),
        "three": torch.randn(9, generator=generator),
    }


def stored(ctx: Context, whole: dict[str, Any], numbers: dict[str, int]) -> Iterator[Check]:
    """Save tensors in shards; compare what the consolidated files have, and what other shards read of them."""
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from safetensors.torch import load_file
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh(ctx.place.kind, (ctx.place.world_size,))
    placements = (Shard(0), Shard(1), Replicate())
    placed = zip(whole.items(), placements, strict=False)
    state = {name: distribute_tensor(each, mesh, [placement]) for (name, each), placement in placed}
    folder = ctx.kept / "safetensors"
    writer = dcp.HuggingFaceStorageWriter(
        str(folder), fqn_to_index_mapping=numbers, save_distributed=True, enable_consolidation=True
    )
    dcp.save(state, storage_writer=writer)
    dist.barrier()
    held = [load_file(each) for each in sorted(folder.glob("*.safetensors"))]
    wanted = [sorted(name for name in whole if numbers[name] == number) for number in sorted(set(numbers.values()))]
    yield equal("names in files", str([sorted(each) for each in held]), str(wanted))
    for name, exact in whole.items():
        found = next(each[name] for each in held if name in each)
        yield equal(f"dtype of {name}", str(found.dtype), str(exact.dtype))
        yield equal(f"values of {name}", bool(found.equal(exact)), bound=True)
    other = {name: distribute_tensor(torch.zeros_like(each), mesh, [Shard(0)]) for name, each in whole.items()}
    dcp.load(other, storage_reader=dcp.HuggingFaceStorageReader(str(folder)))
    for name, exact in whole.items():
        yield equal(f"values of {name} read in other shards", bool(other[name].full_tensor().equal(exact)), bound=True)


@call(GROUP, phase=Phase.RELOAD, ranks=2, requires=("safetensors_checkpoints",))
def dcp_safetensors_files(ctx: Context) -> Iterator[Check]:
    """HuggingFaceStorageWriter writes safetensors that safetensors itself and HuggingFaceStorageReader read.

    Tensors that ranks hold in shards are whole in the consolidated files, which have the numbers that a script gives.
    """
    yield from stored(ctx, tensors(), {"one.weight": 1, "two.weight": 2, "three": 2})


@call(GROUP, phase=Phase.RELOAD, ranks=2, requires=("safetensors_checkpoints",))
def dcp_safetensors_of_whole_numbers(ctx: Context) -> Iterator[Check]:
    """HuggingFaceStorageWriter consolidates tensors of whole numbers, such as buffers with positions or counts."""
    import torch

    yield from stored(ctx, {"positions": torch.arange(8)}, {"positions": 1})
