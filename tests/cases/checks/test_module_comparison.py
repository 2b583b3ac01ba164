"""Tests of the tolerances of modules, and of their names."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from cases.checks import module_comparison, module_hooks
from cases.space.options import Options

FP32, BF16 = Options(), Options(torch_dtype="bf16")
MANY = 4096


def test_a_deeper_module_may_be_further_off() -> None:
    first, later = (module_comparison.allowed("output", FP32, position, MANY) for position in (0, 3))
    assert later == pytest.approx(2 * first)


def test_bfloat16_may_be_further_off_than_float32() -> None:
    of = {name: module_comparison.allowed("output", each, 0, MANY) for name, each in (("fp32", FP32), ("bf16", BF16))}
    assert of["bf16"] > 1000 * of["fp32"]


def test_a_tensor_of_few_numbers_may_be_further_off() -> None:
    few, many = (module_comparison.allowed("gradient", FP32, 0, numel) for numel in (16, 256))
    assert few == pytest.approx(4 * many)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("base_model.model.model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.q_proj"),
        ("base_model.model.model.layers.0.self_attn.q_proj.base_layer", "model.layers.0.self_attn.q_proj.base_layer"),
        ("base_model.model.model.layers.0.self_attn.q_proj.lora_A.default", "model.layers.0.self_attn.q_proj.lora_A"),
        ("base_model.model.lm_head.modules_to_save.default", "lm_head"),
        ("model.layers.0.mlp.gate", "model.layers.0.block_sparse_moe.gate"),
        ("", ""),
    ],
)
def test_a_module_has_the_name_of_its_counterpart(path: str, name: str) -> None:
    assert module_hooks.module_name(path) == name


@pytest.mark.parametrize(
    ("attributes", "fused"),
    [({"weight": 0}, False), ({"weight": 0, "embed_scale": 8.0}, True), ({"weight": 0, "top_k": 2}, True), ({}, False)],
)
def test_modules_that_do_more_than_their_layer_are_not_compared(attributes: dict[str, float], *, fused: bool) -> None:
    assert module_hooks.is_fused(SimpleNamespace(**attributes)) is fused
