"""FSDP in user scripts: the order of wrapping, fused losses, clipping, and generation."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from cases.api import call, jobs
from cases.api.jobs import FSDP1, FSDP2
from cases.apply import build, compat
from cases.checks import observers
from cases.model import adapter_start, architectures, tiny
from cases.reference import tolerance
from cases.space.options import Options
from cases.space.verdict import Check, Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

SHARDING = "FSDP in a user's script"
ADAPTER = tiny.LAYERS * len(tiny.TARGETS) * 2  # tensors


@call(SHARDING, phase=Phase.ADAPT, ranks=2, requires=FSDP2)
def fsdp2_adapter_on_sharded_base(ctx: Context) -> Iterator[Check]:
    """An adapter that is added after fully_shard has the layers' whole sizes."""
    from peft import get_peft_model

    adapted = get_peft_model(jobs.wrapped(ctx, jobs.base(ctx), strategy="fsdp2"), jobs.lora_config())
    grown = adapted.base_model.model.model.layers[0].mlp.up_proj
    yield equal("rows of lora_B", grown.lora_B["default"].weight.shape[0], 2 * tiny.HIDDEN)
    yield equal("columns of lora_A", grown.lora_A["default"].weight.shape[1], tiny.HIDDEN)


@call(SHARDING, phase=Phase.FORWARD, ranks=2, requires=FSDP2)
def fsdp2_training_adapter_on_sharded_base(ctx: Context) -> Iterator[Check]:
    """An adapter that is added after fully_shard can be trained."""
    from peft import get_peft_model

    adapted = get_peft_model(jobs.wrapped(ctx, jobs.base(ctx), strategy="fsdp2"), jobs.lora_config())
    jobs.loss(adapted, ctx).backward()
    yield equal("gradients", sum(p.grad is not None for p in jobs.trained_parameters(adapted)), ADAPTER)


@call(SHARDING, phase=Phase.WRAP, ranks=2, requires=FSDP1)
def fsdp1_policy_taken_before_adapter(ctx: Context) -> Iterator[Check]:
    """A PEFT wrap policy that was created from the base model also wraps adapters that are added later."""
    from peft.utils.other import fsdp_auto_wrap_policy

    base = jobs.base(ctx)
    policy = fsdp_auto_wrap_policy(base)
    model = fsdp1(build.adapt(base, Options()), ctx, auto_wrap_policy=policy, use_orig_params=False)
    jobs.loss(model, ctx).backward()
    yield jobs.as_in_one_process(jobs.gradients(model, strategy="fsdp1"), ctx)


def fsdp1(model: Any, ctx: Context, **arguments: Any) -> Any:
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel

    device = torch.device("cpu") if ctx.place.kind == "cpu" else ctx.place.device
    return FullyShardedDataParallel(model, device_id=device, **arguments)


def decoder_policy(model: Any) -> Any:
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

    classes = {type(layer) for layer in architectures.decoder_layers(model, Options())}
    return functools.partial(transformer_auto_wrap_policy, transformer_layer_cls=classes)


@call(SHARDING, phase=Phase.WRAP, ranks=2, requires=FSDP1)
def fsdp1_frozen_second_adapter(ctx: Context) -> Iterator[Check]:
    """PEFT's wrap policy allows a second, frozen adapter, as DPO's reference uses it."""
    yield from second_adapter(ctx, trained=False)


@call(SHARDING, phase=Phase.WRAP, ranks=2, requires=FSDP1)
def fsdp1_trained_second_adapter(ctx: Context) -> Iterator[Check]:
    """PEFT's wrap policy allows a second trainable adapter."""
    yield from second_adapter(ctx, trained=True)


def second_adapter(ctx: Context, *, trained: bool) -> Iterator[Check]:
    model = jobs.adapted(ctx)
    if ctx.place.rank == 0:
        model.save_pretrained(ctx.kept / "first")
    wait()
    model.load_adapter(ctx.kept / "first", adapter_name="reference", is_trainable=trained)
    sharded = jobs.wrapped(ctx, model, strategy="fsdp1", use_orig_params=False, auto_wrap_policy="peft")
    jobs.loss(sharded, ctx).backward()
    found = {n: g for n, g in jobs.gradients(sharded, strategy="fsdp1").items() if ".reference" not in n}
    yield jobs.as_in_one_process(found, ctx)


def wait() -> None:
    import torch.distributed as dist

    dist.barrier()


@call(SHARDING, phase=Phase.BACKWARD, ranks=2, requires=FSDP1)
def fsdp1_gradient_bytes_own_names(ctx: Context) -> Iterator[Check]:
    """With use_orig_params=True and decoder layers wrapped, frozen weights cost no gradient memory."""
    yield from gradient_bytes(ctx, use_orig_params=True, auto_wrap_policy="transformer")


@call(SHARDING, phase=Phase.BACKWARD, ranks=2, requires=FSDP1)
def fsdp1_gradient_bytes_peft_policy(ctx: Context) -> Iterator[Check]:
    """With PEFT's wrap policy, frozen weights cost no gradient memory."""
    yield from gradient_bytes(ctx, use_orig_params=False, auto_wrap_policy="peft")


def gradient_bytes(ctx: Context, **chosen: Any) -> Iterator[Check]:
    """Compare the size of the flat gradients with the adapter's; up to a tenth more is padding."""
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = jobs.adapted(ctx)
    needed = sum(p.numel() for p in jobs.trained_parameters(model)) / ctx.place.world_size
    sharded = jobs.wrapped(ctx, model, strategy="fsdp1", **chosen)
    jobs.loss(sharded, ctx).backward()
    flats = [unit._handle.flat_param for unit in FullyShardedDataParallel.fsdp_modules(sharded) if unit._handle]  # noqa: SLF001 - no public way
    held = sum(flat.grad.numel() for flat in flats if flat.grad is not None)
    yield at_least("gradient elements held / of the adapter", held / needed, 1.0)
    yield at_most("gradient elements held / of the adapter", held / needed, 1.1)


@call(SHARDING, phase=Phase.FORWARD, ranks=2, requires=FSDP1)
def fsdp1_fused_loss(ctx: Context) -> Iterator[Check]:
    """A fused loss that reads lm_head.weight directly, as Liger's does, works under FSDP1."""
    model = with_fused_loss(jobs.adapted(ctx))
    yield from fused_loss(ctx, jobs.wrapped(ctx, model, strategy="fsdp1"), "fsdp1")


@call(SHARDING, phase=Phase.FORWARD, ranks=2, requires=FSDP1)
def fsdp1_fused_loss_head_apart(ctx: Context) -> Iterator[Check]:
    """A fused loss that reads lm_head.weight works if PEFT's policy wraps the trained head as a separate unit."""
    from peft import get_peft_model

    model = get_peft_model(jobs.base(ctx), jobs.lora_config(modules_to_save=["lm_head"]))
    adapter_start.start(model, Options())
    sharded = jobs.wrapped(
        ctx, with_fused_loss(model), strategy="fsdp1", use_orig_params=False, auto_wrap_policy="peft"
    )
    yield from fused_loss(ctx, sharded, "fsdp1")


@call(SHARDING, phase=Phase.FORWARD, ranks=2, requires=FSDP2)
def fsdp2_fused_loss(ctx: Context) -> Iterator[Check]:
    """A fused loss that reads lm_head.weight directly works under FSDP2 with the head in the root."""
    model = with_fused_loss(jobs.adapted(ctx))
    yield from fused_loss(ctx, jobs.wrapped(ctx, model, strategy="fsdp2"), "fsdp2")


@call(SHARDING, phase=Phase.FORWARD, ranks=2, requires=FSDP2)
def fsdp2_fused_loss_head_apart(ctx: Context) -> Iterator[Check]:
    """A fused loss that reads lm_head.weight works under FSDP2 with the head as a separate unit."""
    model = with_fused_loss(jobs.adapted(ctx))
    compat.fully_shard()(model.base_model.model.lm_head)
    yield from fused_loss(ctx, jobs.wrapped(ctx, model, strategy="fsdp2"), "fsdp2")


def with_fused_loss(model: Any) -> Any:
    """The model with a forward like the ones that kernels patch in: hidden states times the head's weight."""
    import torch
    from transformers.modeling_outputs import CausalLMOutput

    inner = model.base_model.model

    def forward(input_ids: Any, labels: Any, **_: Any) -> Any:
        hidden = inner.model(input_ids=input_ids).last_hidden_state
        logits = hidden[:, :-1].reshape(-1, tiny.HIDDEN) @ inner.lm_head.weight.t()
        return CausalLMOutput(loss=torch.nn.functional.cross_entropy(logits, labels[:, 1:].reshape(-1)))

    inner.forward = forward
    return model


def fused_loss(ctx: Context, model: Any, strategy: str) -> Iterator[Check]:
    jobs.loss(model, ctx).backward()
    adapters = {n: g for n, g in jobs.gradients(model, strategy=strategy).items() if tiny.is_adapter(n)}
    yield jobs.as_in_one_process(adapters, ctx)


@call(SHARDING, phase=Phase.BACKWARD, ranks=2, requires=FSDP2)
def fsdp2_two_forwards_one_backward(ctx: Context) -> Iterator[Check]:
    """Two forwards before one backward, as DPO does, with nested units inside torch's checkpoint wrapper."""
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

    model = jobs.adapted(ctx)
    layers = architectures.decoder_layers(model, Options())
    apply_activation_checkpointing(model, check_fn=lambda module: module in layers)
    yield from two_forwards(ctx, model)


@call(SHARDING, phase=Phase.BACKWARD, ranks=2, requires=FSDP2)
def fsdp2_two_forwards_transformers_checkpointing(ctx: Context) -> Iterator[Check]:
    """Two forwards before one backward, as DPO does, with nested units and transformers' checkpointing."""
    yield from two_forwards(ctx, jobs.adapted(ctx, gradient_checkpointing="non_reentrant"))


@call(SHARDING, phase=Phase.BACKWARD, ranks=2, requires=FSDP2)
def fsdp2_two_forwards_without_checkpointing(ctx: Context) -> Iterator[Check]:
    """Two forwards before one backward, as DPO does, with nested units and no checkpointing."""
    yield from two_forwards(ctx, jobs.adapted(ctx))


def two_forwards(ctx: Context, model: Any) -> Iterator[Check]:
    fully_shard = compat.fully_shard()
    for layer in architectures.decoder_layers(model, Options()):
        fully_shard(layer.mlp)
    for name, module in list(model.named_modules()):
        if name.rpartition(".")[2].isdigit():
            fully_shard(module)  # a decoder layer, or the checkpoint wrapper around it
    fully_shard(model)
    model.train()
    (jobs.loss(model, ctx) + jobs.loss(model, ctx)).backward()
    found = {name: gradient / 2 for name, gradient in jobs.gradients(model, strategy="fsdp2").items()}
    yield jobs.as_in_one_process(found, ctx)


@call(SHARDING, phase=Phase.BACKWARD, ranks=2, requires=FSDP1)
def fsdp1_checkpoint_wrapper_with_cache(ctx: Context) -> Iterator[Check]:
    """FSDP's activation checkpointing of a model whose use_cache was left on."""
    yield from checkpoint_wrapper(ctx, use_cache=True)


@call(SHARDING, phase=Phase.BACKWARD, ranks=2, requires=FSDP1)
def fsdp1_checkpoint_wrapper(ctx: Context) -> Iterator[Check]:
    """FSDP's activation checkpointing, use_cache off."""
    yield from checkpoint_wrapper(ctx, use_cache=False)


def checkpoint_wrapper(ctx: Context, *, use_cache: bool) -> Iterator[Check]:
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
        CheckpointImpl,
        apply_activation_checkpointing,
    )
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper as wrapper

    model = jobs.wrapped(ctx, strategy="fsdp1")
    model.config.use_cache = use_cache
    apply_activation_checkpointing(
        model,
        checkpoint_wrapper_fn=functools.partial(wrapper, checkpoint_impl=CheckpointImpl.NO_REENTRANT),
        auto_wrap_policy=decoder_policy(model),
    )
    jobs.loss(model, ctx).backward()
    yield jobs.as_in_one_process(jobs.gradients(model, strategy="fsdp1"), ctx)


@call(SHARDING, phase=Phase.OPTIMIZER, ranks=2, requires=FSDP2)
def fsdp2_clip_beside_ignored_parameters(ctx: Context) -> Iterator[Check]:
    """Accelerate clips gradients if some trained parameters are excluded from sharding."""
    import torch
    from accelerate import FullyShardedDataParallelPlugin

    model = jobs.adapted(ctx)
    ignored = [model.base_model.model.model.layers[0].mlp.up_proj.lora_B]
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2, ignored_modules=ignored, auto_wrap_policy=decoder_policy(model), cpu_ram_efficient_loading=False
    )
    given = jobs.accelerator(ctx, plugin)
    sharded, optimiser = given.prepare(model, torch.optim.SGD(jobs.trained_parameters(model), lr=0.1))
    plain = [p for p in jobs.trained_parameters(sharded) if not hasattr(p, "full_tensor")]
    yield equal("parameters left whole", len(plain), 1)
    jobs.loss(sharded, ctx).backward()
    for parameter in plain:
        mean_of_ranks(parameter.grad)
    expected = jobs.expected_gradients(ctx)
    norm = float(sum(float(each.square().sum()) for each in expected.values()) ** 0.5)
    given.clip_grad_norm_(sharded.parameters(), norm / 2)
    found = {name: 2 * each for name, each in jobs.gradients(sharded, strategy="fsdp2").items()}
    yield at_most("gradient off", tolerance.worst_tensor(found, expected), jobs.SAME)
    optimiser.step()


def mean_of_ranks(tensor: Any) -> None:
    import torch.distributed as dist

    dist.all_reduce(tensor)
    tensor /= dist.get_world_size()


@call(SHARDING, phase=Phase.FORWARD, ranks=2, requires=FSDP1)
def fsdp1_weight_replaced_between_steps(ctx: Context) -> Iterator[Check]:
    """FSDP1 uses weights that are replaced after wrapping, as a manual LoRA merge for evaluation does."""
    import torch

    model = jobs.wrapped(ctx, strategy="fsdp1")
    optimiser = torch.optim.SGD(jobs.trained_parameters(model), lr=0.1)
    jobs.step(model, ctx, optimiser)
    layer = next(module for module in model.modules() if hasattr(module, "lora_B"))
    layer.base_layer.weight.data = torch.zeros(tiny.HIDDEN, tiny.HIDDEN, device=ctx.place.device)
    jobs.step(model, ctx, optimiser)
    yield equal(
        "largest weight", observers.weights(model, Options().but(strategy="fsdp1"))[FIRST].abs().max().item(), 0.0
    )


FIRST = "model.layers.0.self_attn.q_proj.weight"


@call(SHARDING, phase=Phase.ADAPT)
def frozen_second_adapter(ctx: Context) -> Iterator[Check]:
    """Loading a second, frozen adapter leaves the first one trainable."""
    model = jobs.adapted(ctx)
    model.save_pretrained(ctx.kept)
    model.load_adapter(ctx.kept, adapter_name="reference", is_trainable=False)
    yield equal("trained tensors", len(jobs.trained_parameters(model)), ADAPTER)


@call(SHARDING, phase=Phase.INFER, ranks=2, requires=FSDP2)
def fsdp2_generate_registered(ctx: Context) -> Iterator[Check]:
    """FSDP2 gathers weights for generate after register_fsdp_forward_method."""
    from torch.distributed.fsdp import register_fsdp_forward_method

    expected = build.generate(jobs.adapted(ctx), ctx)
    model = jobs.wrapped(ctx, strategy="fsdp2")
    register_fsdp_forward_method(model, "generate")
    yield equal("tokens that differ", int((build.generate(model, ctx) != expected).sum()), 0)


@call(SHARDING, phase=Phase.INFER, ranks=2, requires=FSDP1)
def fsdp1_generate_summoned(ctx: Context) -> Iterator[Check]:
    """Generation works inside FSDP1's summon_full_params."""
    from torch.distributed.fsdp import FullyShardedDataParallel

    expected = build.generate(jobs.adapted(ctx), ctx)
    model = jobs.wrapped(ctx, strategy="fsdp1")
    with FullyShardedDataParallel.summon_full_params(model, writeback=False):
        found = build.generate(model, ctx)
    yield equal("tokens that differ", int((found != expected).sum()), 0)


@call(SHARDING, phase=Phase.BACKWARD, ranks=2, requires=FSDP1)
def fsdp1_prefix_tuning(ctx: Context) -> Iterator[Check]:
    """Prefix tuning trains under FSDP1 with PEFT's wrap policy."""
    yield from prefix(ctx, strategy="fsdp1", use_orig_params=False, auto_wrap_policy="peft")


@call(SHARDING, phase=Phase.BACKWARD, ranks=2, requires=FSDP1)
def fsdp1_prefix_tuning_own_names(ctx: Context) -> Iterator[Check]:
    """Prefix tuning trains under FSDP1 with decoder layers wrapped and use_orig_params=True."""
    yield from prefix(ctx, strategy="fsdp1")


@call(SHARDING, phase=Phase.BACKWARD, ranks=2, requires=FSDP2)
def fsdp2_prefix_tuning(ctx: Context) -> Iterator[Check]:
    """Prefix tuning trains under FSDP2."""
    yield from prefix(ctx, strategy="fsdp2")


def prefix(ctx: Context, **chosen: Any) -> Iterator[Check]:
    expected = prefixed(ctx)
    jobs.whole_loss(expected, ctx).backward()
    model = jobs.wrapped(ctx, prefixed(ctx), **chosen)
    jobs.loss(model, ctx).backward()
    reference = jobs.gradients(expected)
    yield equal("trained tensors", len(reference), 1)
    yield at_most("gradient off", tolerance.worst_tensor(jobs.gradients(model, **chosen), reference), jobs.SAME)


def prefixed(ctx: Context) -> Any:
    import torch
    from peft import PrefixTuningConfig, get_peft_model

    torch.manual_seed(0)
    return get_peft_model(jobs.base(ctx), PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4))
