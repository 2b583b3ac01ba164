"""Tests of the tolerances of modules, and of their names."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

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


class Tensor:
    """A stand-in for torch's."""

    def __init__(self, name: str, *, floating: bool = True) -> None:
        self.name, self.floating = name, floating

    def register_hook(self, _hook: object) -> None: ...

    def is_floating_point(self) -> bool:
        return self.floating


ONE, OTHER = Tensor("one"), Tensor("other")


@pytest.mark.parametrize(
    ("attributes", "output", "found", "recorded"),
    [
        ({"weight": 0}, ONE, ONE, "a.b"),
        ({"weight": 0}, (OTHER, ONE), OTHER, "a.b"),
        ({"weight": 0}, SimpleNamespace(logits=None, last_hidden_state=ONE), ONE, "a.b"),
        ({}, SimpleNamespace(logits=ONE, last_hidden_state=OTHER), ONE, "a.b"),
        ({}, None, None, "a.b"),
        ({"weight": 0, "embed_scale": 8.0}, ONE, ONE, "a.b.scaled"),
        ({"base_layer": SimpleNamespace(embed_scale=8.0)}, ONE, ONE, "a.b.scaled"),
        ({"weight": 0, "top_k": 2}, (ONE, OTHER), OTHER, "a.b.scores"),
        ({"weight": 0, "top_k": 2}, ONE, None, "a.b.scores"),
    ],
)
def test_the_main_output_of_a_module_has_its_counterpart(
    attributes: dict[str, Any], output: Any, found: Any, recorded: str
) -> None:
    assert module_hooks.main_output("a.b", SimpleNamespace(**attributes), output) == (found, recorded)


class Modules:
    """A stand-in for a module with others inside."""

    def __init__(self, *paths: str, **attributes: Any) -> None:
        self.paths = paths
        vars(self).update(attributes)

    def named_modules(self) -> list[tuple[str, Any]]:
        parts = {path: BaseTuner() if path.endswith("base_model") else SimpleNamespace() for path in self.paths}
        return [("", self), *parts.items()]


class BaseTuner(Modules):
    """A stand-in for PEFT's."""


@pytest.mark.parametrize(
    ("model", "names"),
    [
        (Modules("model", "model.norm"), ["", "model", "model.norm"]),
        (Modules("base_model", "base_model.model", "base_model.model.model"), ["", "", "", "model"]),
        (Modules("module", "module.base_model", "module.base_model.model.norm"), ["", "", "", "norm"]),
        (Modules("module", "module.model.norm"), ["", "", "model.norm"]),
        (BaseTuner("model", "model.model", "model.wide"), ["", "", "model", "wide"]),
    ],
)
def test_what_is_around_a_model_has_no_name_of_its_own(model: Any, names: list[str]) -> None:
    assert [name for name, _ in module_hooks.named_modules(model)] == names


def test_prompts_come_before_a_model_as_it_is() -> None:
    class Prompted(Modules):
        def named_modules(self) -> list[tuple[str, Any]]:
            return [("", self), *((path, SimpleNamespace()) for path in self.paths)]

    model = Prompted("base_model", "base_model.model", "base_model.model.embed_tokens", "prompt_encoder.default")
    assert [name for name, _ in module_hooks.named_modules(model)] == [
        "",
        "",
        "model",
        "model.embed_tokens",
        "prompt_encoder",
    ]
