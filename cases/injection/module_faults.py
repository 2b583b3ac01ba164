"""Faults of one module or one pass, to measure whether a location names it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.injection.patching import after, around, change_adapted_model, fault, parameters_named

if TYPE_CHECKING:
    from cases.injection.patching import InjectionPoint


def module_named(model: Any, end: str) -> Any:
    """The module whose name ends like this.

    Raises:
        LookupError: no module matches.
    """
    found = [module for name, module in model.named_modules() if name.endswith(end)]
    if not found:
        raise LookupError(f"no module name ends in {end!r}, so the fault cannot be injected")
    return found[0]


@fault(
    "train-full-single-fp32",
    "train-lora-nf4-single-bf16",
    "train-lora-fsdp2-bf16",
    "load-single-fp32",
    located="* model.layers.0.self_attn",
)
def rotary_sign_wrong(_point: InjectionPoint) -> None:
    """Rotary positions turn the wrong way round for one half of each head."""
    import torch
    from transformers.models.llama import modeling_llama

    def unsigned(x: Any) -> Any:
        first, second = x.chunk(2, dim=-1)
        return torch.cat([second, first], dim=-1)

    around(modeling_llama, "rotate_half", lambda _original, x: unsigned(x))


@fault(
    "train-lora-single-fp32",
    "train-lora-nf4-single-bf16",
    "train-lora-fsdp1-auto_wrap_policy_peft-use_orig_params_false-bf16",
    "train-lora-ddp-fp32-gradient_checkpointing_reentrant",
    located="* model.layers.1.self_attn.v_proj",
)
def scaling_of_one_layer_dropped(_point: InjectionPoint) -> None:
    """One layer adds its adapter's output without the scaling."""

    def drop(model: Any) -> None:
        module_named(model, "layers.1.self_attn.v_proj").scaling["default"] = 1.0

    change_adapted_model(drop)


@fault(
    "train-full-single-fp32",
    "train-lora-fsdp2-fp32",
    "train-lora-ddp-fp32-adamw",
    located="output model.layers.1.post_attention_layernorm",
)
def epsilon_of_one_norm_off(_point: InjectionPoint) -> None:
    """One RMSNorm has an epsilon of 1e-3 instead of 1e-5."""
    change_adapted_model(
        lambda model: setattr(module_named(model, "layers.1.post_attention_layernorm"), "variance_epsilon", 1e-3)
    )


@fault(
    "train-full-single-fp32",
    "train-lora-single-bf16",
    "train-lora-fsdp1-fp32",
    located="* model.layers.1.mlp",
)
def activation_wrong(_point: InjectionPoint) -> None:
    """One feed-forward layer has GELU in place of SiLU."""
    import torch

    def replace(model: Any) -> None:
        module_named(model, "layers.1.mlp").act_fn = torch.nn.GELU()

    change_adapted_model(replace)


@fault("train-full-single-fp32", "train-full-ddp-fp32", "load-single-fp32", located="output model.embed_tokens")
def embeddings_off(_point: InjectionPoint) -> None:
    """Embeddings are five per cent too large."""
    from torch.nn import functional

    after(functional, "embedding", lambda found: found * 1.05)


@fault("train-full-single-fp32", "train-full-fsdp2-fp32", located="output model.layers.1.self_attn.k_proj")
def one_base_weight_off(_point: InjectionPoint) -> None:
    """One row of one weight is zero before training begins."""

    def spoil(model: Any) -> None:
        parameters_named(model, "layers.1.self_attn.k_proj")[0].data[0] = 0

    from cases.apply import build

    after(build, "load", spoil)


@fault("train-full-single-fp32", "train-lora-fsdp2-fp32", located="output model.layers.0")
def a_residual_is_off(_point: InjectionPoint) -> None:
    """The output of one decoder layer is one per cent too large."""

    def larger(_module: Any, _inputs: Any, output: Any) -> Any:
        return (output[0] * 1.01, *output[1:]) if isinstance(output, tuple) else output * 1.01

    change_adapted_model(lambda model: module_named(model, "layers.0").register_forward_hook(larger) and None)


@fault("train-full-single-fp32", "train-lora-single-bf16", located="output lm_head")
def logits_off(_point: InjectionPoint) -> None:
    """The logits are ten per cent too large."""
    change_adapted_model(
        lambda model: module_named(model, "lm_head").register_forward_hook(lambda *of: of[2] * 1.1) and None
    )


@fault(
    "train-full-single-fp32",
    "train-lora-ddp-fp32-gradient_checkpointing_reentrant",
    located="gradient model.layers.0.mlp.*_proj",
)
def backward_of_one_layer_off(_point: InjectionPoint) -> None:
    """One layer passes on a gradient that is a tenth too large; its output is right."""

    def steeper(_module: Any, inputs: Any) -> Any:
        return (inputs[0] * 1.1 - inputs[0].detach() * 0.1, *inputs[1:])

    change_adapted_model(
        lambda model: module_named(model, "layers.0.mlp.down_proj").register_forward_pre_hook(steeper) and None
    )


@fault(
    "train-lora-single-fp32",
    "train-lora-ddp-fp32-adamw",
    located="weight gradient model.layers.0.mlp.up_proj.lora_B.weight",
)
def gradient_of_one_weight_scaled(_point: InjectionPoint) -> None:
    """The gradient of one weight is a tenth too large."""
    change_adapted_model(
        lambda model: (
            parameters_named(model, "layers.0.mlp.up_proj.lora_B")[0].register_hook(lambda found: found * 1.1) and None
        )
    )


@fault("train-lora-single-fp32-adamw", "train-full-fsdp2-fp32", located="weight model.layers.0.self_attn.v_proj*")
def one_weight_is_not_updated(_point: InjectionPoint) -> None:
    """The optimiser restores one weight after each step."""
    from cases.apply import build

    def stale(optimiser: Any) -> None:
        weight = optimiser.param_groups[0]["params"][3]
        kept = weight.detach().clone()

        def restore(*_: Any) -> None:
            weight.data.copy_(kept)

        optimiser.register_step_post_hook(restore)

    after(build, "optimiser", stale)


@fault("train-lora-ddp-fp32-adamw", "train-lora-ddp-bf16", located="* model.layers.1.mlp.down_proj*")
def noise_on_one_rank(point: InjectionPoint) -> None:
    """One rank's layer drops a tenth of its inputs."""
    import torch

    if point.rank == 1:
        change_adapted_model(
            lambda model: (
                module_named(model, "layers.1.mlp.down_proj").register_forward_pre_hook(
                    lambda _module, inputs: (torch.nn.functional.dropout(inputs[0], 0.1), *inputs[1:])
                )
                and None
            )
        )
