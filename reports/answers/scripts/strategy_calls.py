"""The calls that a strategy needs: wrap a model for DDP or FSDP, and gather, save and load its state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cases.apply.wrapping import MIN_NUM_PARAMS
from cases.model import architectures
from cases.space.options import MESH_RANKS
from reports.answers.scripts.calls import TORCH, ddp_flags
from reports.answers.scripts.python_text import Code, CodeCall

if TYPE_CHECKING:
    from cases.space.options import Options

SHARDING: Final = {"full_shard": "FULL_SHARD", "shard_grad_op": "SHARD_GRAD_OP", "no_shard": "NO_SHARD"}


@dataclass(frozen=True)
class DeviceNames:
    """Expressions of a script for its device: its kind, a ``torch.device``, DDP's ``device_ids``; number of ranks."""

    kind: str = "device.type"
    device: str = "device"
    device_ids: str = '[device] if device.type == "cuda" else None'
    ranks: str = ""


PLAIN: Final = DeviceNames()


def ddp(options: Options, names: DeviceNames = PLAIN) -> CodeCall:
    return CodeCall("DistributedDataParallel", ("model",), {"device_ids": Code(names.device_ids), **ddp_flags(options)})


def fsdp1(options: Options, names: DeviceNames = PLAIN) -> CodeCall:
    hsdp = options.device_mesh == "hsdp"
    sharding = "HYBRID_SHARD" if hsdp else SHARDING[options.sharding_strategy]
    arguments: dict[str, Any] = {
        "auto_wrap_policy": wrap_policy(options),
        "sharding_strategy": Code(f"ShardingStrategy.{sharding}"),
        **({"device_mesh": mesh(options, names)} if hsdp else {}),
        "use_orig_params": options.use_orig_params,
        "sync_module_states": options.sync_module_states,
        "device_id": Code(names.device),
    }
    if options.mixed_precision != "off":
        arguments["mixed_precision"] = mixed_precision(options)
    if options.cpu_offload:
        arguments["cpu_offload"] = CodeCall("CPUOffload", named={"offload_params": True})
    if options.cpu_ram_efficient_loading:
        arguments["param_init_fn"] = Code(f"lambda module: module.to_empty(device={names.device}, recurse=False)")
    return CodeCall("FullyShardedDataParallel", ("model",), arguments)


def wrap_policy(options: Options) -> CodeCall | None:
    """FSDP1's ``auto_wrap_policy``."""
    if options.auto_wrap_policy == "none":
        return None
    if options.auto_wrap_policy == "peft":
        return CodeCall("fsdp_auto_wrap_policy", ("model",))
    if options.auto_wrap_policy == "size":
        return CodeCall("functools.partial", ("size_based_auto_wrap_policy",), {"min_num_params": MIN_NUM_PARAMS})
    classes = Code(f"{{{', '.join(architectures.spec(options).block)}}}")
    return CodeCall("functools.partial", ("transformer_auto_wrap_policy",), {"transformer_layer_cls": classes})


def mixed_precision(options: Options) -> CodeCall:
    """The policy of FSDP1 or FSDP2; only FSDP1's has buffers, which follow as accelerate translates bf16."""
    half, is_first = TORCH["bf16"], options.strategy == "fsdp1"
    arguments = {"param_dtype": half, "reduce_dtype": half if options.mixed_precision == "bf16" else TORCH["fp32"]}
    if is_first and options.mixed_precision == "bf16":
        arguments["buffer_dtype"] = half
    return CodeCall("MixedPrecision" if is_first else "MixedPrecisionPolicy", named=arguments)


def mesh(options: Options, names: DeviceNames = PLAIN) -> CodeCall:
    """All ranks in a row, or pairs of ranks that shard, replicated across the pairs."""
    if options.device_mesh != "hsdp":
        return CodeCall("init_device_mesh", (names.kind, f"({names.ranks or options.world_size},)"))
    shape = f"({names.ranks} // 2, 2)" if names.ranks else f"({MESH_RANKS // 2}, 2)"
    return CodeCall("init_device_mesh", (names.kind, shape), {"mesh_dim_names": ("replicate", "shard")})


def fully_shard(module: str, options: Options, names: DeviceNames = PLAIN) -> CodeCall:
    """FSDP2, of a layer or the whole model."""
    arguments: dict[str, Any] = {
        "mesh": mesh(options, names),
        "reshard_after_forward": options.reshard_after_forward,
    }
    if options.mixed_precision != "off":
        arguments["mp_policy"] = mixed_precision(options)
    if options.cpu_offload:
        arguments["offload_policy"] = CodeCall("CPUOffloadPolicy")
    return CodeCall("fully_shard", (module,), arguments)


def receive_weights() -> CodeCall:
    """The call of FSDP2 that sends the weights, which only rank 0 loaded, to the shards of all ranks."""
    options = CodeCall("StateDictOptions", named={"full_state_dict": True, "broadcast_from_rank0": True})
    return CodeCall("set_model_state_dict", ("model", "weights"), {"options": options})


def is_gathered_by_fsdp1(options: Options) -> bool:
    """FSDP1's own methods gather the whole state, as in accelerate and most scripts."""
    return options.strategy == "fsdp1" and options.state_dict_type in ("full", "full_on_device")


def whole_state(options: Options, model: str = "model", *, everywhere: bool = False) -> CodeCall:
    """The context in which FSDP1 gathers whole states: into rank 0's memory, every rank's, or every device's."""
    offload = options.state_dict_type != "full_on_device"
    where = {"offload_to_cpu": offload, "rank0_only": offload and not everywhere}
    configurations = (CodeCall(name, named=where) for name in ("FullStateDictConfig", "FullOptimStateDictConfig"))
    arguments = (model, "StateDictType.FULL_STATE_DICT", *map(repr, configurations))
    return CodeCall("FullyShardedDataParallel.state_dict_type", arguments)


def state_options(options: Options) -> CodeCall:
    """The options of ``torch.distributed.checkpoint.state_dict``: shards, or whole tensors."""
    full = options.state_dict_type != "sharded"
    offload = full and options.state_dict_type != "full_on_device"
    return CodeCall("StateDictOptions", named={"full_state_dict": full, "cpu_offload": offload})


def model_state(options: Options, model: str = "model") -> CodeCall:
    return CodeCall("get_model_state_dict", (model,), {"options": state_options(options)})


def optimizer_state(options: Options, model: str = "model", optimizer: str = "optimizer") -> CodeCall:
    if is_gathered_by_fsdp1(options):
        return CodeCall("FullyShardedDataParallel.optim_state_dict", (model, optimizer))
    return CodeCall("get_optimizer_state_dict", (model, optimizer), {"options": state_options(options)})


def summon_full_params() -> CodeCall:
    arguments = {"writeback": False, "recurse": False}
    return CodeCall("FullyShardedDataParallel.summon_full_params", ("model",), arguments)
