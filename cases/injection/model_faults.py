"""Faults of the model, of checkpoints and of merging."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from cases.injection.patching import after, around, fault, rescale

if TYPE_CHECKING:
    from collections.abc import Callable

    from cases.injection.patching import InjectionPoint


@fault("train-full-single-fp32", "train-lora-single-bf16", "load-single-fp32", located="* model.layers.0.self_attn")
def attention_sees_the_future(_point: InjectionPoint) -> None:
    """The causal mask is lost."""
    from torch.nn import functional

    around(
        functional,
        "scaled_dot_product_attention",
        lambda original, *a, **named: original(*a[:3], **{**named, "attn_mask": None, "is_causal": False}),
    )


@fault("train-full-single-fp32", "load-single-fp32", located="* model.layers.0.self_attn")
def attention_scaled_wrongly(_point: InjectionPoint) -> None:
    """Attention scores are scaled by a wrong factor."""
    from torch.nn import functional

    around(
        functional,
        "scaled_dot_product_attention",
        lambda original, *a, **named: original(*a, **{**named, "scale": 0.3}),
    )


@fault("train-full-single-fp32-autocast_bf16", "train-full-fsdp2-fp32-autocast_bf16")
def autocast_switched_off(_point: InjectionPoint) -> None:
    """Autocast has no effect."""
    import contextlib

    import torch

    torch.autocast = lambda *_, **__: contextlib.nullcontext()


@fault(
    "train-full-single-fp32",
    "train-lora-single-fp32",
    "train-lora-fsdp2-fp32",
    located="output model.layers.0.self_attn.q_proj*",
)
def autocast_unasked(_point: InjectionPoint) -> None:
    """The model computes in bfloat16 although the case does not enable autocast."""
    import torch
    from transformers import LlamaForCausalLM

    def lower(original: Any, *arguments: Any, **named: Any) -> Any:
        with torch.autocast("cpu" if not torch.cuda.is_available() else "cuda", dtype=torch.bfloat16):
            return original(*arguments, **named)

    around(LlamaForCausalLM, "forward", lower)


@fault(
    "train-lora-nf4-single-bf16-gradient_checkpointing_non_reentrant",
    "train-lora-ddp-fp32-gradient_checkpointing_non_reentrant",
    "train-lora-fsdp1-fp32-gradient_checkpointing_reentrant",
)
def checkpointing_ignored(_point: InjectionPoint) -> None:
    """gradient_checkpointing_enable does nothing."""
    from transformers import PreTrainedModel

    PreTrainedModel.gradient_checkpointing_enable = lambda *_, **__: None


@fault("save_reload-lora-single-fp32", "save_reload-lora-ddp-fp32", "save_reload-lora-fsdp2-fp32", loud=True)
def an_empty_save(_point: InjectionPoint) -> None:
    """The adapter is saved with empty tensors."""
    change_saved_tensors(lambda tensors: {name: tensor[:0] for name, tensor in tensors.items()})


@fault("save_reload-lora-single-fp32", "save_reload-full-single-fp32")
def a_tensor_is_not_saved(_point: InjectionPoint) -> None:
    """One tensor is missing from the file."""
    change_saved_tensors(lambda tensors: dict(list(tensors.items())[1:]))


@fault("save_reload-lora-single-fp32", "save_reload-lora-single-bf16", "save_reload-full-single-fp32")
def a_save_that_rounds(_point: InjectionPoint) -> None:
    """Saved tensors are rounded to bfloat16."""
    import torch

    change_saved_tensors(
        lambda tensors: {name: tensor.to(torch.bfloat16).to(tensor.dtype) for name, tensor in tensors.items()}
    )


@fault("save_reload-lora-single-fp32", "merge_reload-lora-single-fp32")
def stale_weights_are_saved(_point: InjectionPoint) -> None:
    """Saved tensors are slightly older than the trained ones."""
    change_saved_tensors(lambda tensors: {name: tensor * (1 - 2**-6) for name, tensor in tensors.items()})


def change_saved_tensors(change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Change the tensors that safetensors writes, in every module that imported its function."""
    import safetensors.torch

    original = safetensors.torch.save_file

    def changed(tensors: dict[str, Any], *arguments: Any, **named: Any) -> Any:
        kept = {name: tensor.contiguous() for name, tensor in change(tensors).items()}
        return original(kept, *arguments, **named)

    for module in list(sys.modules.values()):
        for name in ("save_file", "safe_save_file"):
            if vars(module).get(name) is original:
                setattr(module, name, changed)


@fault("resume-lora-single-fp32-adamw", "resume-lora-ddp-fp32-adamw", "resume-lora-fsdp2-fp32-adamw")
def optimiser_state_lost(_point: InjectionPoint) -> None:
    """A resumed optimiser starts without its moments."""
    from torch.distributed.checkpoint import state_dict
    from torch.optim import Optimizer

    Optimizer.load_state_dict = lambda *_: None
    state_dict.set_optimizer_state_dict = lambda *_, **__: None


@fault("resume-lora-single-fp32-adamw", "resume-lora-fsdp2-fp32-adamw")
def schedule_restarted(_point: InjectionPoint) -> None:
    """A resumed schedule starts over."""
    from torch.optim.lr_scheduler import LambdaLR

    LambdaLR.load_state_dict = lambda *_: None


@fault("merge-lora-single-fp32", "merge-lora-single-bf16", "merge-lora-ddp-fp32")
def merged_with_twice_the_scaling(_point: InjectionPoint) -> None:
    """merge_adapter adds twice the update."""
    from peft.tuners.lora import layer

    after(layer.Linear, "get_delta_weight", lambda delta: delta * 2)


@fault("merge-lora-single-fp32", "merge-dora-single-fp32")
def a_merge_that_does_nothing(_point: InjectionPoint) -> None:
    """merge_adapter removes the adapter without changing the weights."""
    from peft.tuners.lora import layer

    after(layer.Linear, "get_delta_weight", lambda delta: delta * 0)


@fault("merge-lora-single-fp32", "merge-lora-ddp-fp32")
def a_merge_that_is_left_out(_point: InjectionPoint) -> None:
    """merge_adapter and unmerge_adapter do nothing: the adapter stays active and unmerged."""
    from peft.tuners.tuners_utils import BaseTuner

    BaseTuner.merge_adapter = BaseTuner.unmerge_adapter = lambda *_, **__: None


@fault("generate-lora-single-fp32", "generate-lora-ddp-fp32")
def generation_without_the_adapter(_point: InjectionPoint) -> None:
    """Generation uses the base model without its adapter."""
    from peft import PeftModelForCausalLM

    def bare(original: Any, self: Any, *arguments: Any, **named: Any) -> Any:
        with self.disable_adapter():
            return original(self, *arguments, **named)

    around(PeftModelForCausalLM, "generate", bare)


@fault("portability-lora-single-fp32")
def scaling_lost_in_the_file(point: InjectionPoint) -> None:
    """The adapter is loaded with a different scaling from the one in training."""
    from peft import PeftModel

    if point.stage == 1:
        after(PeftModel, "from_pretrained", lambda model: rescale(model, 0.5))
