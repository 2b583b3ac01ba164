"""Faults of the optimiser, the schedule and the training loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.injection.patching import (
    after,
    before_each_step,
    change_adapted_model,
    fault,
    local_tensor,
    set_optimiser_options,
    skip_optimiser_step,
    trainable,
)

if TYPE_CHECKING:
    from cases.injection.patching import InjectionPoint


@fault("train-full-single-fp32", "train-lora-single-bf16", "train-lora-fsdp2-bf16", located="weight *")
def a_step_is_skipped(_point: InjectionPoint) -> None:
    """The optimiser does nothing in the second step."""
    skip_optimiser_step(2)


@fault("train-lora-single-fp32", "train-lora-ddp-fp32-adamw", "train-lora-fsdp1-fp32", located="weight *")
def learning_rate_off(_point: InjectionPoint) -> None:
    """The learning rate is a tenth too large."""
    from cases.apply import build

    def faster(optimiser: Any) -> None:
        for group in optimiser.param_groups:
            group["lr"] *= 1.1

    after(build, "optimiser", faster)


@fault("train-lora-single-fp32", "train-full-single-fp32", located="weight *")
def schedule_ignored(_point: InjectionPoint) -> None:
    """The learning rate never changes."""
    from torch.optim.lr_scheduler import LambdaLR

    LambdaLR.step = lambda *_: None


@fault("train-full-single-fp32", "train-lora-single-bf16", located="weight *")
def momentum_unasked(_point: InjectionPoint) -> None:
    """SGD uses a momentum that the case does not set."""
    from cases.apply import build

    def heavy(optimiser: Any) -> None:
        for group in optimiser.param_groups:
            group["momentum"] = 0.5

    after(build, "optimiser", heavy)


@fault("train-full-single-fp32", "train-lora-single-fp32", "train-lora-fsdp2-fp32", located="weight *")
def clipping_unasked(_point: InjectionPoint) -> None:
    """Gradients are clipped although the case does not enable clipping."""
    import torch

    def clip(parameters: list[Any]) -> None:
        torch._foreach_mul_([local_tensor(p.grad) for p in parameters], 0.5)

    before_each_step(clip)


@fault("train-lora-single-fp32", "train-lora-ddp-bf16", "train-lora-fsdp2-bf16", located="weight gradient *")
def gradients_not_zeroed(_point: InjectionPoint) -> None:
    """zero_grad does nothing: gradients accumulate over the steps."""
    from torch.optim import Optimizer

    Optimizer.zero_grad = lambda *_, **__: None


@fault("train-lora-single-fp32-adamw", "train-lora-ddp-fp32-adamw", located="weight *")
def weight_decay_ignored(_point: InjectionPoint) -> None:
    """AdamW decays nothing."""
    set_optimiser_options(weight_decay=0.0)


@fault("train-lora-single-bf16", "train-lora-ddp-bf16", "train-full-single-bf16", located="weight *")
def weight_decay_unasked(_point: InjectionPoint) -> None:
    """SGD has a weight decay that the case does not set."""
    set_optimiser_options(weight_decay=0.02)


@fault("train-lora-single-fp32-adamw", "train-lora-ddp-fp32-adamw", located="weight *")
def second_moment_off(_point: InjectionPoint) -> None:
    """AdamW's beta2 is 0.99."""
    set_optimiser_options(betas=(0.9, 0.99))


@fault("train-lora-single-fp32-adamw", "train-lora-single-bf16-adamw", "train-lora-ddp-fp32-adamw", located="weight *")
def moments_forgotten(_point: InjectionPoint) -> None:
    """The optimiser's state is thrown away after every step."""
    from cases.apply import build

    after(
        build, "optimiser", lambda optimiser: optimiser.register_step_post_hook(lambda o, *_: o.state.clear()) and None
    )


@fault("train-lora-single-fp32", "train-lora-single-bf16", "train-full-single-fp32", located="gradient lm_head")
def loss_slightly_off(_point: InjectionPoint) -> None:
    """The loss is one per cent too large, and so are its gradients."""
    from transformers import LlamaForCausalLM

    def larger(output: Any) -> None:
        if output.loss is not None:
            output.loss = output.loss * 1.01

    after(LlamaForCausalLM, "forward", larger)


@fault(
    "train-lora-single-fp32",
    "train-lora-single-bf16",
    "train-full-single-fp32",
    located="weight gradient model.layers.0.self_attn.*",
)
def one_gradient_is_zero(_point: InjectionPoint) -> None:
    """One weight's gradient is lost in the backward pass."""
    change_adapted_model(lambda model: trainable(model)[2].register_hook(lambda gradient: gradient * 0) and None)


@fault("train-lora-single-fp32", "train-full-single-fp32", located="weight gradient model.layers.0.self_attn.*")
def one_row_of_a_gradient_is_zero(_point: InjectionPoint) -> None:
    """One row of one weight's gradient is lost."""

    def without_a_row(gradient: Any) -> Any:
        kept = gradient.clone()
        kept[0] = 0
        return kept

    change_adapted_model(lambda model: trainable(model)[2].register_hook(without_a_row) and None)
