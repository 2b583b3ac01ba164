"""FSDP in a user's hands: what is wrapped when, what is read beside a forward, what is stepped, clipped, generated."""

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

    from cases.apply.context import Setting

SHARDING = "FSDP in a user's script"
ADAPTER = tiny.LAYERS * len(tiny.TARGETS) * 2  # tensors


def lora_config(**more: Any) -> Any:
    from peft import LoraConfig

    return LoraConfig(task_type="CAUSAL_LM", r=tiny.RANK, target_modules=list(tiny.TARGETS), **more)


@call(SHARDING, phase=Phase.ADAPT, ranks=2, needs=FSDP2)
def fsdp2_adapter_on_sharded_base(here: Setting) -> Iterator[Check]:
    """An adapter that is put on a model which fully_shard has sharded already has the layers' whole sizes."""
    from peft import get_peft_model

    adapted = get_peft_model(jobs.wrapped(here, jobs.base(here), strategy="fsdp2"), lora_config())
    grown = adapted.base_model.model.model.layers[0].mlp.up_proj
    yield equal("rows of lora_B", grown.lora_B["default"].weight.shape[0], 2 * tiny.HIDDEN)
    yield equal("columns of lora_A", grown.lora_A["default"].weight.shape[1], tiny.HIDDEN)


@call(SHARDING, phase=Phase.FORWARD, ranks=2, needs=FSDP2)
def fsdp2_training_adapter_on_sharded_base(here: Setting) -> Iterator[Check]:
    """An adapter that is put on a model which fully_shard has sharded already can be trained."""
    from peft import get_peft_model

    adapted = get_peft_model(jobs.wrapped(here, jobs.base(here), strategy="fsdp2"), lora_config())
    jobs.loss(adapted, here).backward()
    yield equal("gradients", sum(p.grad is not None for p in jobs.trained_parameters(adapted)), ADAPTER)


@call(SHARDING, phase=Phase.WRAP, ranks=2, needs=FSDP1)
def fsdp1_policy_taken_before_adapter(here: Setting) -> Iterator[Check]:
    """PEFT's wrap policy made from the base model wraps adapters that come later."""
    from peft.utils.other import fsdp_auto_wrap_policy

    base = jobs.base(here)
    policy = fsdp_auto_wrap_policy(base)
    model = fsdp1(build.adapt(base, Options()), here, auto_wrap_policy=policy, use_orig_params=False)
    jobs.loss(model, here).backward()
    yield jobs.as_in_one_process(jobs.gradients(model, strategy="fsdp1"), here)


def fsdp1(model: Any, here: Setting, **arguments: Any) -> Any:
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel

    device = torch.device("cpu") if here.place.kind == "cpu" else here.place.device
    return FullyShardedDataParallel(model, device_id=device, **arguments)


def decoder_policy(model: Any) -> Any:
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

    classes = {type(layer) for layer in architectures.decoder_layers(model, Options())}
    return functools.partial(transformer_auto_wrap_policy, transformer_layer_cls=classes)


@call(SHARDING, phase=Phase.WRAP, ranks=2, needs=FSDP1)
def fsdp1_frozen_second_adapter(here: Setting) -> Iterator[Check]:
    """A second, frozen adapter as DPO's reference stands beside the trained one under PEFT's wrap policy."""
    yield from second_adapter(here, trained=False)


@call(SHARDING, phase=Phase.WRAP, ranks=2, needs=FSDP1)
def fsdp1_trained_second_adapter(here: Setting) -> Iterator[Check]:
    """A second adapter stands beside the first under PEFT's wrap policy, both trainable."""
    yield from second_adapter(here, trained=True)


def second_adapter(here: Setting, *, trained: bool) -> Iterator[Check]:
    model = jobs.adapted(here)
    if here.place.rank == 0:
        model.save_pretrained(here.kept / "first")
    wait()
    model.load_adapter(here.kept / "first", adapter_name="reference", is_trainable=trained)
    sharded = jobs.wrapped(here, model, strategy="fsdp1", use_orig_params=False, auto_wrap_policy="peft")
    jobs.loss(sharded, here).backward()
    found = {n: g for n, g in jobs.gradients(sharded, strategy="fsdp1").items() if ".reference" not in n}
    yield jobs.as_in_one_process(found, here)


def wait() -> None:
    import torch.distributed as dist

    dist.barrier()


@call(SHARDING, phase=Phase.BACKWARD, ranks=2, needs=FSDP1)
def fsdp1_gradient_bytes_own_names(here: Setting) -> Iterator[Check]:
    """With parameters under their names and decoder layers wrapped, frozen weights cost no gradient memory."""
    yield from gradient_bytes(here, use_orig_params=True, auto_wrap_policy="transformer")


@call(SHARDING, phase=Phase.BACKWARD, ranks=2, needs=FSDP1)
def fsdp1_gradient_bytes_peft_policy(here: Setting) -> Iterator[Check]:
    """With PEFT's wrap policy, frozen weights cost no gradient memory."""
    yield from gradient_bytes(here, use_orig_params=False, auto_wrap_policy="peft")


def gradient_bytes(here: Setting, **chosen: Any) -> Iterator[Check]:
    """Of the flat gradients against those of the adapter; a tenth more is padding."""
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = jobs.adapted(here)
    needed = sum(p.numel() for p in jobs.trained_parameters(model)) / here.place.world_size
    sharded = jobs.wrapped(here, model, strategy="fsdp1", **chosen)
    jobs.loss(sharded, here).backward()
    flats = [unit._handle.flat_param for unit in FullyShardedDataParallel.fsdp_modules(sharded) if unit._handle]  # noqa: SLF001 - no public way
    held = sum(flat.grad.numel() for flat in flats if flat.grad is not None)
    yield at_least("gradient elements held / of the adapter", held / needed, 1.0)
    yield at_most("gradient elements held / of the adapter", held / needed, 1.1)


@call(SHARDING, phase=Phase.FORWARD, ranks=2, needs=FSDP1)
def fsdp1_fused_loss(here: Setting) -> Iterator[Check]:
    """A fused loss that reads lm_head.weight beside the head's forward, as Liger's does, under FSDP1."""
    model = with_fused_loss(jobs.adapted(here))
    yield from fused_loss(here, jobs.wrapped(here, model, strategy="fsdp1"), "fsdp1")


@call(SHARDING, phase=Phase.FORWARD, ranks=2, needs=FSDP1)
def fsdp1_fused_loss_head_apart(here: Setting) -> Iterator[Check]:
    """A fused loss that reads lm_head.weight, where PEFT's policy makes the trained head a unit of its own."""
    from peft import get_peft_model

    model = get_peft_model(jobs.base(here), lora_config(modules_to_save=["lm_head"]))
    adapter_start.start(model, Options())
    sharded = jobs.wrapped(
        here, with_fused_loss(model), strategy="fsdp1", use_orig_params=False, auto_wrap_policy="peft"
    )
    yield from fused_loss(here, sharded, "fsdp1")


@call(SHARDING, phase=Phase.FORWARD, ranks=2, needs=FSDP2)
def fsdp2_fused_loss(here: Setting) -> Iterator[Check]:
    """A fused loss that reads lm_head.weight beside the head's forward, under FSDP2 with the head in the root."""
    model = with_fused_loss(jobs.adapted(here))
    yield from fused_loss(here, jobs.wrapped(here, model, strategy="fsdp2"), "fsdp2")


@call(SHARDING, phase=Phase.FORWARD, ranks=2, needs=FSDP2)
def fsdp2_fused_loss_head_apart(here: Setting) -> Iterator[Check]:
    """A fused loss that reads lm_head.weight, under FSDP2 with the head in a unit of its own."""
    model = with_fused_loss(jobs.adapted(here))
    compat.fully_shard()(model.base_model.model.lm_head)
    yield from fused_loss(here, jobs.wrapped(here, model, strategy="fsdp2"), "fsdp2")


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


def fused_loss(here: Setting, model: Any, strategy: str) -> Iterator[Check]:
    jobs.loss(model, here).backward()
    adapters = {n: g for n, g in jobs.gradients(model, strategy=strategy).items() if tiny.is_adapter(n)}
    yield jobs.as_in_one_process(adapters, here)


@call(SHARDING, phase=Phase.BACKWARD, ranks=2, needs=FSDP2)
def fsdp2_two_forwards_one_backward(here: Setting) -> Iterator[Check]:
    """Two forwards before one backward, as DPO does, with nested units inside torch's checkpoint wrapper."""
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

    model = jobs.adapted(here)
    layers = architectures.decoder_layers(model, Options())
    apply_activation_checkpointing(model, check_fn=lambda module: module in layers)
    yield from two_forwards(here, model)


@call(SHARDING, phase=Phase.BACKWARD, ranks=2, needs=FSDP2)
def fsdp2_two_forwards_transformers_checkpointing(here: Setting) -> Iterator[Check]:
    """Two forwards before one backward, as DPO does, with nested units and transformers' checkpointing."""
    yield from two_forwards(here, jobs.adapted(here, gradient_checkpointing="non_reentrant"))


@call(SHARDING, phase=Phase.BACKWARD, ranks=2, needs=FSDP2)
def fsdp2_two_forwards_without_checkpointing(here: Setting) -> Iterator[Check]:
    """Two forwards before one backward, as DPO does, with nested units and no checkpointing."""
    yield from two_forwards(here, jobs.adapted(here))


def two_forwards(here: Setting, model: Any) -> Iterator[Check]:
    fully_shard = compat.fully_shard()
    for layer in architectures.decoder_layers(model, Options()):
        fully_shard(layer.mlp)
    for name, module in list(model.named_modules()):
        if name.rpartition(".")[2].isdigit():
            fully_shard(module)  # a decoder layer, or the checkpoint wrapper around it
    fully_shard(model)
    model.train()
    (jobs.loss(model, here) + jobs.loss(model, here)).backward()
    found = {name: gradient / 2 for name, gradient in jobs.gradients(model, strategy="fsdp2").items()}
    yield jobs.as_in_one_process(found, here)


@call(SHARDING, phase=Phase.BACKWARD, ranks=2, needs=FSDP1)
def fsdp1_checkpoint_wrapper_with_cache(here: Setting) -> Iterator[Check]:
    """FSDP's activation checkpointing of a model whose use_cache was left on."""
    yield from checkpoint_wrapper(here, use_cache=True)


@call(SHARDING, phase=Phase.BACKWARD, ranks=2, needs=FSDP1)
def fsdp1_checkpoint_wrapper(here: Setting) -> Iterator[Check]:
    """FSDP's activation checkpointing, use_cache off."""
    yield from checkpoint_wrapper(here, use_cache=False)


def checkpoint_wrapper(here: Setting, *, use_cache: bool) -> Iterator[Check]:
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
        CheckpointImpl,
        apply_activation_checkpointing,
    )
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper as wrapper

    model = jobs.wrapped(here, strategy="fsdp1")
    model.config.use_cache = use_cache
    apply_activation_checkpointing(
        model,
        checkpoint_wrapper_fn=functools.partial(wrapper, checkpoint_impl=CheckpointImpl.NO_REENTRANT),
        auto_wrap_policy=decoder_policy(model),
    )
    jobs.loss(model, here).backward()
    yield jobs.as_in_one_process(jobs.gradients(model, strategy="fsdp1"), here)


@call(SHARDING, phase=Phase.OPTIMIZER, ranks=2, needs=FSDP2)
def fsdp2_clip_beside_ignored_parameters(here: Setting) -> Iterator[Check]:
    """Gradients are clipped by accelerate when some trained parameters are left out of sharding."""
    import torch
    from accelerate import FullyShardedDataParallelPlugin

    model = jobs.adapted(here)
    ignored = [model.base_model.model.model.layers[0].mlp.up_proj.lora_B]
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2, ignored_modules=ignored, auto_wrap_policy=decoder_policy(model), cpu_ram_efficient_loading=False
    )
    given = jobs.accelerator(here, plugin)
    sharded, optimiser = given.prepare(model, torch.optim.SGD(jobs.trained_parameters(model), lr=0.1))
    plain = [p for p in jobs.trained_parameters(sharded) if not hasattr(p, "full_tensor")]
    yield equal("parameters left whole", len(plain), 1)
    jobs.loss(sharded, here).backward()
    for parameter in plain:
        mean_of_ranks(parameter.grad)
    expected = jobs.expected_gradients(here)
    norm = float(sum(float(each.square().sum()) for each in expected.values()) ** 0.5)
    given.clip_grad_norm_(sharded.parameters(), norm / 2)
    found = {name: 2 * each for name, each in jobs.gradients(sharded, strategy="fsdp2").items()}
    yield at_most("gradient off", tolerance.worst_tensor(found, expected), jobs.SAME)
    optimiser.step()


def mean_of_ranks(tensor: Any) -> None:
    import torch.distributed as dist

    dist.all_reduce(tensor)
    tensor /= dist.get_world_size()


@call(SHARDING, phase=Phase.FORWARD, ranks=2, needs=FSDP1)
def fsdp1_weight_replaced_between_steps(here: Setting) -> Iterator[Check]:
    """Weights that are replaced after the wrap, as a hand-made LoRA merge at evaluation does, are used."""
    import torch

    model = jobs.wrapped(here, strategy="fsdp1")
    optimiser = torch.optim.SGD(jobs.trained_parameters(model), lr=0.1)
    jobs.step(model, here, optimiser)
    layer = next(module for module in model.modules() if hasattr(module, "lora_B"))
    layer.base_layer.weight.data = torch.zeros(tiny.HIDDEN, tiny.HIDDEN, device=here.place.device)
    jobs.step(model, here, optimiser)
    yield equal(
        "largest weight", observers.weights(model, Options().but(strategy="fsdp1"))[FIRST].abs().max().item(), 0.0
    )


FIRST = "model.layers.0.self_attn.q_proj.weight"


@call(SHARDING, phase=Phase.ADAPT)
def frozen_second_adapter(here: Setting) -> Iterator[Check]:
    """Loading a second, frozen adapter leaves the first one trainable."""
    model = jobs.adapted(here)
    model.save_pretrained(here.kept)
    model.load_adapter(here.kept, adapter_name="reference", is_trainable=False)
    yield equal("trained tensors", len(jobs.trained_parameters(model)), ADAPTER)


@call(SHARDING, phase=Phase.BACKWARD, ranks=2)
def ddp_trained_head(here: Setting) -> Iterator[Check]:
    """DDP trains an adapter and a copy of the head (modules_to_save) without find_unused_parameters."""
    from peft import get_peft_model

    model = get_peft_model(jobs.base(here), lora_config(lora_alpha=16, modules_to_save=["lm_head"]))
    yield from replicated(here, model)


@call(SHARDING, phase=Phase.BACKWARD, ranks=2)
def ddp_reentrant_checkpointing_find_unused(here: Setting) -> Iterator[Check]:
    """DDP with find_unused_parameters trains an adapter with reentrant checkpointing."""
    model = jobs.adapted(here, gradient_checkpointing="reentrant").train()
    yield from replicated(here, model, find_unused_parameters=True)


@call(SHARDING, phase=Phase.BACKWARD, ranks=2)
def ddp_reentrant_checkpointing(here: Setting) -> Iterator[Check]:
    """DDP without find_unused_parameters trains an adapter with reentrant checkpointing."""
    yield from replicated(here, jobs.adapted(here, gradient_checkpointing="reentrant").train())


@call(SHARDING, phase=Phase.BACKWARD, ranks=2)
def ddp_inactive_adapter(here: Setting) -> Iterator[Check]:
    """DDP trains one of two adapters without find_unused_parameters."""
    yield from two_adapters(here, find_unused_parameters=False)


@call(SHARDING, phase=Phase.BACKWARD, ranks=2)
def ddp_inactive_adapter_find_unused(here: Setting) -> Iterator[Check]:
    """DDP trains one of two adapters with find_unused_parameters."""
    yield from two_adapters(here, find_unused_parameters=True)


def two_adapters(here: Setting, **arguments: Any) -> Iterator[Check]:
    model = jobs.adapted(here)
    model.add_adapter("second", lora_config())
    yield from replicated(here, model, **arguments)


def replicated(here: Setting, model: Any, **arguments: Any) -> Iterator[Check]:
    """Two steps under DDP, which notices in the second what the first one left unfinished."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    adapter_start.start(model, Options())
    wrapped = DistributedDataParallel(model, **arguments)
    optimiser = torch.optim.SGD(jobs.trained_parameters(model), lr=0.0)
    jobs.step(wrapped, here, optimiser)
    jobs.loss(wrapped, here).backward()
    found = {n: g for n, g in jobs.gradients(model).items() if tiny.is_adapter(n) and ".second" not in n}
    yield jobs.as_in_one_process(found, here)


@call(SHARDING, phase=Phase.INFER, ranks=2, needs=FSDP2)
def fsdp2_generate_registered(here: Setting) -> Iterator[Check]:
    """FSDP2 gathers weights for generate once it is registered as a way forward."""
    from torch.distributed.fsdp import register_fsdp_forward_method

    expected = build.generate(jobs.adapted(here), here)
    model = jobs.wrapped(here, strategy="fsdp2")
    register_fsdp_forward_method(model, "generate")
    yield equal("tokens that differ", int((build.generate(model, here) != expected).sum()), 0)


@call(SHARDING, phase=Phase.INFER, ranks=2, needs=FSDP1)
def fsdp1_generate_summoned(here: Setting) -> Iterator[Check]:
    """FSDP1's whole parameters are summoned for generate."""
    from torch.distributed.fsdp import FullyShardedDataParallel

    expected = build.generate(jobs.adapted(here), here)
    model = jobs.wrapped(here, strategy="fsdp1")
    with FullyShardedDataParallel.summon_full_params(model, writeback=False):
        found = build.generate(model, here)
    yield equal("tokens that differ", int((found != expected).sum()), 0)


@call(SHARDING, phase=Phase.BACKWARD, ranks=2, needs=FSDP1)
def fsdp1_prefix_tuning(here: Setting) -> Iterator[Check]:
    """Prefix tuning is sharded by PEFT's wrap policy."""
    yield from prefix(here, strategy="fsdp1", use_orig_params=False, auto_wrap_policy="peft")


@call(SHARDING, phase=Phase.BACKWARD, ranks=2, needs=FSDP1)
def fsdp1_prefix_tuning_own_names(here: Setting) -> Iterator[Check]:
    """Prefix tuning, decoder layers wrapped, parameters under their names."""
    yield from prefix(here, strategy="fsdp1")


@call(SHARDING, phase=Phase.BACKWARD, ranks=2, needs=FSDP2)
def fsdp2_prefix_tuning(here: Setting) -> Iterator[Check]:
    """Prefix tuning under FSDP2."""
    yield from prefix(here, strategy="fsdp2")


def prefix(here: Setting, **chosen: Any) -> Iterator[Check]:
    expected = prefixed(here)
    jobs.whole_loss(expected, here).backward()
    model = jobs.wrapped(here, prefixed(here), **chosen)
    jobs.loss(model, here).backward()
    reference = jobs.gradients(expected)
    yield equal("trained tensors", len(reference), 1)
    yield at_most("gradient off", tolerance.worst_tensor(jobs.gradients(model, **chosen), reference), jobs.SAME)


def prefixed(here: Setting) -> Any:
    import torch
    from peft import PrefixTuningConfig, get_peft_model

    torch.manual_seed(0)
    return get_peft_model(jobs.base(here), PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4))
