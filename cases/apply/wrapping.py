"""Wraps a model for its strategy with the strategy's options, as a user would."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from cases.apply import compat
from cases.model import architectures

if TYPE_CHECKING:
    from cases.space.options import Options
    from cases.space.place import Place

MIN_NUM_PARAMS = 20_000  # wrap=size: more than an attention block of the tiny model has, less than its MLP


def wrap(model: Any, options: Options, place: Place) -> Any:
    return {"single": alone, "ddp": ddp, "fsdp1": fsdp1, "fsdp2": fsdp2}[options.strategy](model, options, place)


def alone(model: Any, _options: Options, _place: Place) -> Any:
    return model


def ddp(model: Any, options: Options, place: Place) -> Any:
    from torch.nn.parallel import DistributedDataParallel

    return DistributedDataParallel(
        model,
        device_ids=None if place.kind == "cpu" else [place.device],
        find_unused_parameters=options.find_unused_parameters,
        static_graph=options.static_graph,
        gradient_as_bucket_view=options.gradient_as_bucket_view,
    )


def fsdp1(model: Any, options: Options, place: Place) -> Any:
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel

    device = torch.device("cpu") if place.kind == "cpu" else torch.device("cuda", place.device)
    return FullyShardedDataParallel(
        model,
        auto_wrap_policy=policy(model, options),
        use_orig_params=options.use_orig_params,
        sync_module_states=options.sync_module_states,
        device_id=device,
        **fsdp1_arguments(options, place),
        **({"param_init_fn": functools.partial(allocate, device=device)} if options.cpu_ram_efficient_loading else {}),
    )


def fsdp1_arguments(options: Options, place: Place) -> dict[str, Any]:
    """The arguments of FSDP1 that options set; others keep their defaults, as in user scripts."""
    import torch
    from torch.distributed.fsdp import CPUOffload, MixedPrecision, ShardingStrategy

    sharding = {"full_shard": "FULL_SHARD", "shard_grad_op": "SHARD_GRAD_OP", "no_shard": "NO_SHARD"}[
        options.sharding_strategy
    ]
    arguments: dict[str, Any] = {"sharding_strategy": ShardingStrategy[sharding]}
    if options.device_mesh == "hsdp":
        arguments = {"sharding_strategy": ShardingStrategy.HYBRID_SHARD, "device_mesh": mesh(options, place)}
    if options.mixed_precision == "bf16":  # as accelerate translates mixed_precision=bf16
        half = torch.bfloat16
        arguments["mixed_precision"] = MixedPrecision(param_dtype=half, reduce_dtype=half, buffer_dtype=half)
    if options.mixed_precision == "bf16_reduce_fp32":
        arguments["mixed_precision"] = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    if options.cpu_offload:
        arguments["cpu_offload"] = CPUOffload(offload_params=True)
    return arguments


def allocate(module: Any, *, device: Any) -> None:
    """Memory for a module that was built without; what it holds comes from rank 0."""
    module.to_empty(device=device, recurse=False)


def policy(model: Any, options: Options) -> Any:
    """FSDP1's wrap policy: decoder layers, PEFT's own (these, and each adapter weight alone), by size, or none."""
    if options.auto_wrap_policy == "none":
        return None
    if options.auto_wrap_policy == "peft":
        from peft.utils.other import fsdp_auto_wrap_policy

        return fsdp_auto_wrap_policy(model)
    if options.auto_wrap_policy == "size":
        from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy

        return functools.partial(size_based_auto_wrap_policy, min_num_params=MIN_NUM_PARAMS)
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

    classes = {type(layer) for layer in architectures.decoder_layers(model, options)}
    return functools.partial(transformer_auto_wrap_policy, transformer_layer_cls=classes)


def mesh(options: Options, place: Place) -> Any:
    """A mesh of all ranks, or for hybrid sharding of pairs that shard and replicate across pairs."""
    from torch.distributed.device_mesh import init_device_mesh

    if options.device_mesh == "hsdp":
        return init_device_mesh(place.kind, (place.world_size // 2, 2), mesh_dim_names=("replicate", "shard"))
    return compat.mesh(place)


def fsdp2(model: Any, options: Options, place: Place) -> Any:
    fully_shard = compat.fully_shard()
    arguments = {"mesh": mesh(options, place), "reshard_after_forward": options.reshard_after_forward}
    arguments |= fsdp2_policies(options)
    weights = model.state_dict() if options.cpu_ram_efficient_loading and place.rank == 0 else {}
    if options.cpu_ram_efficient_loading:
        empty(model)
    if options.auto_wrap_policy == "transformer":
        for layer in architectures.decoder_layers(model, options):
            fully_shard(layer, **arguments)
    fully_shard(model, **arguments)
    if options.cpu_ram_efficient_loading:
        send(weights, model)
    return model


def fsdp2_policies(options: Options) -> dict[str, Any]:
    import torch

    policies: dict[str, Any] = {}
    if options.mixed_precision != "off":
        reduction = torch.bfloat16 if options.mixed_precision == "bf16" else torch.float32
        chosen = compat.fsdp2().MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=reduction)
        policies["mp_policy"] = chosen
    if options.cpu_offload:
        policies["offload_policy"] = compat.fsdp2().CPUOffloadPolicy()
    return policies


def empty(model: Any) -> None:
    """Move every parameter to the meta device; buffers stay, as no checkpoint restores all of them."""
    import torch

    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            bare = torch.nn.Parameter(parameter.detach().to("meta"), requires_grad=parameter.requires_grad)
            module.register_parameter(name, bare)


def send(weights: dict[str, Any], model: Any) -> None:
    """Broadcast rank 0's weights to the shards of all ranks."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

    wanted = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(model, weights, options=wanted)
