"""Applies options as a user would: load the checkpoint, adapt the model, wrap it, make the optimiser."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cases import stack, tiny
from cases.twin import ADAM_EPS, LEARNING_RATE

if TYPE_CHECKING:
    from pathlib import Path

    from cases.options import Options


@dataclass(frozen=True)
class Place:
    """Where a rank is: its number of how many, and its device ('cpu' or a CUDA index)."""

    rank: int
    world_size: int
    device: Any

    @property
    def kind(self) -> str:
        return "cpu" if self.device == "cpu" else "cuda"


def load(options: Options, place: Place, cache: Path) -> Any:
    """The base model, through ``from_pretrained``."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tiny.checkpoint(cache), **stack.load_arguments(options, place.device))
    return model if options.quant != "none" else model.to(place.device)


def adapt(model: Any, options: Options) -> Any:
    """The trainable model: gradient checkpointing switched on, the adapter put on and given its start values."""
    if options.checkpointing != "off":
        reentrant = options.checkpointing == "reentrant"
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    if options.method == "full":
        return model
    if options.checkpointing != "off":
        model.enable_input_require_grads()  # else nothing before the first adapter asks for a gradient
    from peft import LoraConfig

    dora = {"use_dora": True} if options.method == "dora" else {}
    config = LoraConfig(
        task_type="CAUSAL_LM",
        r=tiny.RANK,
        lora_alpha=int(tiny.SCALING * tiny.RANK),
        lora_dropout=0.0,
        target_modules=list(tiny.TARGETS),
        **dora,
    )
    model = stack.adapted(model, config, adapter_fp32=options.adapter_fp32)
    start(model)
    return model


def start(model: Any) -> None:
    """Replace PEFT's random start (and lora_B = 0, which hides errors) by the values that belong to each name.

    DoRA's magnitude stays as PEFT initialised it, from the base weights.
    """
    import torch

    with torch.no_grad():
        for name, parameter in tiny.named(model):
            if ".lora_A." in name or ".lora_B." in name:
                parameter.copy_(tiny.values(name, tuple(parameter.shape)))


def wrap(model: Any, options: Options, place: Place) -> Any:
    return {"single": alone, "ddp": ddp, "fsdp1": fsdp1, "fsdp2": fsdp2}[options.strategy](model, options, place)


def alone(model: Any, _options: Options, _place: Place) -> Any:
    return model


def ddp(model: Any, _options: Options, place: Place) -> Any:
    from torch.nn.parallel import DistributedDataParallel

    return DistributedDataParallel(model, device_ids=None if place.kind == "cpu" else [place.device])


def fsdp1(model: Any, options: Options, place: Place) -> Any:
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel

    return FullyShardedDataParallel(
        model,
        auto_wrap_policy=policy(model, options),
        use_orig_params=options.use_orig_params,
        sync_module_states=options.sync_module_states,
        device_id=torch.device("cpu") if place.kind == "cpu" else place.device,
    )


def policy(model: Any, options: Options) -> Any:
    """FSDP1's wrap policy: decoder layers, PEFT's own (decoder layers, and each adapter weight alone), or none."""
    if options.wrap == "none":
        return None
    if options.wrap == "peft":
        from peft.utils.other import fsdp_auto_wrap_policy

        return fsdp_auto_wrap_policy(model)
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

    classes = {type(layer) for layer in decoder_layers(model)}
    return functools.partial(transformer_auto_wrap_policy, transformer_layer_cls=classes)


def fsdp2(model: Any, options: Options, place: Place) -> Any:
    from torch.distributed.device_mesh import init_device_mesh

    fully_shard = stack.fully_shard()
    mesh = init_device_mesh(place.kind, (place.world_size,))
    again = options.reshard_after_forward
    if options.wrap == "transformer":
        for layer in decoder_layers(model):
            fully_shard(layer, mesh=mesh, reshard_after_forward=again)
    fully_shard(model, mesh=mesh, reshard_after_forward=again)
    return model


def decoder_layers(model: Any) -> list[Any]:
    return [module for module in model.modules() if type(module).__name__.endswith("DecoderLayer")]


def optimiser(model: Any, options: Options) -> Any:
    import torch

    trained = [p for p in model.parameters() if p.requires_grad]
    rate = LEARNING_RATE[options.optimiser]
    if options.optimiser == "sgd":
        return torch.optim.SGD(trained, lr=rate)
    return torch.optim.AdamW(trained, lr=rate, eps=ADAM_EPS)
