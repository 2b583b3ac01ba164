"""Tests of canonical parameter names."""

from __future__ import annotations

import pytest

from cases.model.tiny import canonical

PLACE = "model.layers.0.self_attn.q_proj"
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
        ("base_model.model.lm_head.modules_to_save.default.weight", "lm_head.weight"),
        ("base_model.model.model.layers.0.self_attn.q_proj.hada_w1_a.default", f"{PLACE}.hada_w1_a"),
        ("base_model.model.model.embed_tokens.lora_embedding_A.default", "model.embed_tokens.lora_embedding_A"),
        ("base_model.model.model.embed_tokens.base_layer.weight", "model.embed_tokens.weight"),
        ("base_model.model.layers.0.self_attn.q_proj.weight", PLAIN),  # of a prompt, which is put into no layer
        ("base_model.model.embed_tokens.weight", "model.embed_tokens.weight"),
        ("base_model.lm_head.weight", "lm_head.weight"),
        ("prompt_encoder.default.embedding.weight", "prompt_encoder.embedding.weight"),
        ("prompt_embeddings", "prompt_encoder.embedding.weight"),
    ],
)
def test_canonical_removes_the_prefixes_of_wrappers(wrapped: str, bare: str) -> None:
    assert canonical(wrapped) == bare


def test_canonical_keeps_a_canonical_name() -> None:
    assert canonical(canonical(f"module.{LORA}")) == LORA
