"""Faults of training on several ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.injection.patching import (
    around,
    before_each_step,
    change_adapted_model,
    change_wrapped_model,
    fault,
    skip_optimiser_step,
)
from cases.model import architectures, data

if TYPE_CHECKING:
    from cases.injection.patching import InjectionPoint


@fault("train-full-ddp-fp32", "train-lora-ddp-bf16", "train-lora-nf4-ddp-bf16", located="weight gradient *")
def gradients_not_reduced(_point: InjectionPoint) -> None:
    """DDP does not reduce gradients: every rank keeps its own."""

    def alone(model: Any) -> None:
        model.require_backward_grad_sync = False

    change_wrapped_model(alone)


@fault("train-full-ddp-fp32", "train-lora-ddp-bf16", "train-lora-int8-ddp-bf16", located="weight gradient *")
def sum_instead_of_mean(_point: InjectionPoint) -> None:
    """Gradients are summed over the ranks instead of averaged."""
    change_wrapped_model(lambda model: scale_reduction(model, 2.0))


@fault("train-full-ddp-fp32", "train-lora-ddp-fp32-adamw", located="weight gradient *")
def mean_slightly_off(_point: InjectionPoint) -> None:
    """The mean over ranks is five per cent too large."""
    change_wrapped_model(lambda model: scale_reduction(model, 1.05))


def scale_reduction(model: Any, factor: float) -> None:
    """Multiply the averaged gradients of a DDP model by a factor."""
    import torch.distributed as dist

    def hook(bucket: Any) -> Any:
        work = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
        return work.then(lambda done: done.value()[0] * factor / dist.get_world_size())

    model.register_comm_hook(None, lambda _state, bucket: hook(bucket))  # no annotation: torch would read it


@fault("train-lora-ddp-bf16", "train-lora-fsdp1-fp32", "train-lora-fsdp2-fp32", located="batch input_ids")
def every_rank_the_same_data(_point: InjectionPoint) -> None:
    """The sampler gives every rank the first rank's rows."""
    around(data, "shard", lambda original, step, _rank, options: original(step, 0, options))


# A case of DDP sets the other ranks' weights to zero, and without DDP nobody broadcasts those of rank 0.
@fault("train-full-ddp-fp32", "train-lora-ddp-bf16", located="output model.embed_tokens")
def strategy_ignored(_point: InjectionPoint) -> None:
    """The model is not wrapped, so that every rank trains alone."""
    from cases.apply import build

    around(build, "wrap", lambda _original, model, *_: model)


@fault("train-lora-ddp-bf16", "train-full-ddp-fp32")
def one_rank_drifts(point: InjectionPoint) -> None:
    """One rank's weights change slightly between steps."""

    def drift(parameters: list[Any]) -> None:
        if point.rank == 1:
            parameters[0].data.mul_(1 + 2**-7)

    before_each_step(drift)


@fault("train-lora-ddp-fp32-adamw", "train-lora-ddp-bf16")
def one_rank_misses_a_step(point: InjectionPoint) -> None:
    """One rank's optimiser skips its second step."""
    skip_optimiser_step(2, only=point.rank == 1)


@fault(
    "train-lora-ddp-bf16",
    "train-lora-fsdp2-fp32",
    "train-lora-fsdp1-fp32",
    located="* model.layers.0.self_attn.q_proj*",
)
def dropout_on_one_rank(point: InjectionPoint) -> None:
    """One rank drops activations of an adapter."""
    if point.rank == 1:
        import torch

        def dropping(model: Any) -> None:
            layer = next(m for name, m in model.named_modules() if name.endswith("lora_A.default"))
            layer.register_forward_pre_hook(lambda _m, inputs: torch.nn.functional.dropout(inputs[0], 0.1))

        change_adapted_model(dropping)


@fault("train-full-fsdp1-fp32", "train-full-fsdp1-fp32-adamw", "api-peak_memory_fsdp1")
def fsdp1_not_sharded(_point: InjectionPoint) -> None:
    """FSDP1 replicates instead of sharding."""
    from torch.distributed import fsdp

    def replicating(original: Any, *arguments: Any, **named: Any) -> Any:
        return original(*arguments, **{**named, "sharding_strategy": fsdp.ShardingStrategy.NO_SHARD})

    around(fsdp, "FullyShardedDataParallel", replicating)


@fault("train-lora-fsdp2-fp32", "train-full-fsdp2-fp32", "api-peak_memory_fsdp2")
def fsdp2_ignored(_point: InjectionPoint) -> None:
    """fully_shard does nothing."""
    from cases.apply import compat

    def nothing(module: Any, **_: Any) -> Any:
        module.set_requires_gradient_sync = lambda _last: None  # users call it to accumulate gradients
        return module

    around(compat, "fully_shard", lambda _original: nothing)


@fault("train-lora-fsdp2-fp32", "train-full-fsdp2-fp32")
def fsdp2_layers_not_sharded(_point: InjectionPoint) -> None:
    """fully_shard shards the root module only: one unit instead of one per layer."""
    around(architectures, "decoder_layers", lambda _original, *_: [])


@fault("train-full-fsdp2-fp32", "train-lora-fsdp2-fp32", "train-lora-fsdp1-fp32", located="weight gradient *")
def gradients_off_under_fsdp(_point: InjectionPoint) -> None:
    """The sharded gradient is five per cent too large."""
    import torch.distributed as dist

    def larger(original: Any, output: Any, *arguments: Any, **named: Any) -> Any:
        found = original(output, *arguments, **named)
        output.mul_(1.05)
        return found

    for name in ("reduce_scatter_tensor", "reduce_scatter_single"):
        if hasattr(dist, name):
            around(dist, name, larger)
