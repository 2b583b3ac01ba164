"""Parameters are found again under whatever wrapped them."""

from __future__ import annotations

import pytest

from cases.tiny import canonical

PLAIN = "model.layers.0.self_attn.q_proj.weight"
LORA = "model.layers.0.self_attn.q_proj.lora_A.weight"


@pytest.mark.parametrize(
    ("wrapped", "bare"),
    [
        (PLAIN, PLAIN),
        (f"module.{PLAIN}", PLAIN),
        (f"_fsdp_wrapped_module.{PLAIN}", PLAIN),
        (f"module._orig_mod.{PLAIN}", PLAIN),
        ("model.layers.0._fsdp_wrapped_module._checkpoint_wrapped_module.self_attn.q_proj.weight", PLAIN),
        ("base_model.model.model.layers.0.self_attn.q_proj.base_layer.weight", PLAIN),
        ("base_model.model.model.layers.0.self_attn.q_proj.lora_A.default.weight", LORA),
        ("module.base_model.model.model.layers.0.self_attn.q_proj.lora_A.default.weight", LORA),
        (
            "base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector.default.weight",
            "model.layers.0.self_attn.q_proj.lora_magnitude_vector",
        ),
        (
            "base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector.default",
            "model.layers.0.self_attn.q_proj.lora_magnitude_vector",
        ),
        ("lm_head.weight", "lm_head.weight"),
    ],
)
def test_a_name_is_bared_of_what_wrappers_add(wrapped: str, bare: str) -> None:
    assert canonical(wrapped) == bare


def test_a_bare_name_stays_as_it_is() -> None:
    assert canonical(canonical(f"module.{LORA}")) == LORA
