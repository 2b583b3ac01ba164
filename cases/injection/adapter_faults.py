"""Faults of adapters and of quantisation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.injection.patching import around, change_adapted_model, fault, parameters_named, rescale

if TYPE_CHECKING:
    from cases.injection.patching import InjectionPoint


@fault(
    "train-lora-single-fp32", "train-lora-ddp-bf16", "train-lora-fsdp2-bf16", located="weight gradient *lora_B.weight"
)
def lora_b_frozen(_point: InjectionPoint) -> None:
    """One half of every adapter is not trained."""
    change_adapted_model(
        lambda model: [p.requires_grad_(requires_grad=False) for p in parameters_named(model, "lora_B")] and None
    )


@fault("train-lora-single-fp32", "train-lora-single-bf16")
def base_weight_trained(_point: InjectionPoint) -> None:
    """A layer of the base model is trained, too."""

    def train_along(model: Any) -> None:
        parameters_named(model, "norm")[0].requires_grad_()

    change_adapted_model(train_along)


@fault("train-lora-single-fp32", "train-lora-fsdp1-fp32", "train-lora-nf4-single-bf16")
def base_weights_drift(_point: InjectionPoint) -> None:
    """A frozen weight changes by its last bit."""

    def drift(model: Any) -> None:
        frozen = next(p for p in model.parameters() if not p.requires_grad and p.is_floating_point())

        def change(*_: Any) -> None:
            frozen.data.view(-1)[:1].mul_(1 + 2**-7)

        model.register_forward_pre_hook(change)

    change_adapted_model(drift)


@fault(
    "train-lora-single-bf16",
    "train-lora-nf4-single-bf16",
    "train-lora-fsdp2-bf16",
    located="output model.layers.0.self_attn.q_proj",
)
def scaling_off(_point: InjectionPoint) -> None:
    """The adapters' scaling is doubled."""
    change_adapted_model(lambda model: rescale(model, 2.0))


@fault(
    "train-lora-single-fp32",
    "train-lora-single-bf16",
    "train-lora-nf4-single-bf16",
    located="output model.layers.0.self_attn.q_proj",
)
def scaling_slightly_off(_point: InjectionPoint) -> None:
    """The adapters' scaling is five per cent too large."""
    change_adapted_model(lambda model: rescale(model, 1.05))


@fault(
    "train-lora-single-fp32",
    "train-lora-single-bf16",
    "train-lora-int8-single-bf16",
    located="output model.layers.0.self_attn.q_proj",
)
def an_adapter_is_skipped(_point: InjectionPoint) -> None:
    """One layer's adapter is switched off."""

    def switch_off(model: Any) -> None:
        layer = next(module for module in model.modules() if hasattr(module, "lora_A"))
        layer.enable_adapters(False)  # noqa: FBT003 - PEFT's signature
        layer.lora_A.requires_grad_()
        layer.lora_B.requires_grad_()

    change_adapted_model(switch_off)


@fault("train-dora-single-bf16", "train-dora-ddp-bf16", "train-dora-fsdp2-bf16")
def dora_ignored(_point: InjectionPoint) -> None:
    """use_dora has no effect: plain LoRA is trained."""
    from peft import LoraConfig

    around(
        LoraConfig,
        "__init__",
        lambda original, self, *a, **named: original(self, *a, **{**named, "use_dora": False}),
    )


@fault("train-dora-single-bf16", "train-dora-ddp-bf16", located="weight gradient *lora_magnitude_vector")
def magnitude_frozen(_point: InjectionPoint) -> None:
    """DoRA's magnitude is not trained."""
    change_adapted_model(
        lambda model: [p.requires_grad_(requires_grad=False) for p in parameters_named(model, "magnitude")] and None
    )


@fault("train-dora-single-bf16", "train-dora-nf4-single-bf16", located="output model.layers.0.self_attn.q_proj")
def magnitude_off(_point: InjectionPoint) -> None:
    """DoRA's magnitude starts five per cent too large."""
    change_adapted_model(lambda model: [p.data.mul_(1.05) for p in parameters_named(model, "magnitude")] and None)


@fault("train-lora-single-bf16", "train-lora-ddp-bf16", "train-lora-fsdp2-bf16")
def adapter_in_the_wrong_dtype(_point: InjectionPoint) -> None:
    """Adapters that should be float32 are trained in bfloat16."""
    import torch

    def lower(model: Any) -> None:
        for parameter in parameters_named(model, "lora_"):
            parameter.data = parameter.data.to(torch.bfloat16)

    change_adapted_model(lower)


@fault(
    "load-nf4-single-bf16",
    "train-lora-nf4-single-bf16",
    "train-lora-nf4-ddp-bf16",
    located="output model.layers.0.self_attn.q_proj*",
)
def fp4_for_nf4(_point: InjectionPoint) -> None:
    """FP4 is used instead of the configured NF4."""
    from transformers import BitsAndBytesConfig

    around(
        BitsAndBytesConfig,
        "__init__",
        lambda original, self, *a, **named: original(self, *a, **{**named, "bnb_4bit_quant_type": "fp4"}),
    )


@fault(
    "train-lora-nf4-single-bf16",
    "train-dora-nf4-single-bf16",
    located="output model.layers.0.self_attn.q_proj.base_layer",
)
def scales_off_after_loading(_point: InjectionPoint) -> None:
    """The scales of a quantised layer are one per cent too large once adapters are added, as after a lossy copy."""

    def spoil(model: Any) -> None:
        layer = next(
            m for m in model.modules() if type(m).__name__ == "Linear4bit" and hasattr(m.weight, "quant_state")
        )
        layer.weight.quant_state.absmax.mul_(1.01)

    change_adapted_model(spoil)


@fault("load-nf4-single-bf16", "load-int8-single-bf16", "train-lora-int8-single-bf16")
def a_layer_not_quantised(_point: InjectionPoint) -> None:
    """One kind of layer silently stays in full precision."""
    from transformers import BitsAndBytesConfig

    around(
        BitsAndBytesConfig,
        "__init__",
        lambda original, self, *a, **named: original(
            self, *a, **{**named, "llm_int8_skip_modules": ["lm_head", "k_proj"]}
        ),
    )


@fault("load-nf4-single-bf16", "train-lora-nf4-single-bf16")
def double_quantisation_unasked(_point: InjectionPoint) -> None:
    """The scales are quantised, too, although the case does not enable double quantisation."""
    from transformers import BitsAndBytesConfig

    around(
        BitsAndBytesConfig,
        "__init__",
        lambda original, self, *a, **named: original(self, *a, **{**named, "bnb_4bit_use_double_quant": True}),
    )
