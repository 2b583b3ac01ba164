"""Each architecture is described once, and what is asked of its embeddings is what it gets."""

from __future__ import annotations

import pytest

from cases import models, options, tiny
from cases.attention import BACK_ENDS, Kernels, implementation
from cases.options import Options

PLAIN = Options()


def test_every_model_has_a_spec() -> None:
    assert tuple(models.SPECS) == options.values("model")


@pytest.mark.parametrize("spec", models.SPECS.values(), ids=models.SPECS)
def test_the_layer_without_an_adapter_is_no_target(spec: models.Spec) -> None:
    assert not models.ends(spec.plain, spec.targets)


@pytest.mark.parametrize("spec", models.SPECS.values(), ids=models.SPECS)
def test_the_layer_without_an_adapter_is_quantised(spec: models.Spec) -> None:
    assert not models.ends(spec.plain, (*spec.kept, *spec.uncounted))


def test_a_name_ends_in_whole_parts() -> None:
    assert models.ends("h.0.mlp.c_proj", ("mlp.c_proj",))
    assert not models.ends("h.0.attn.c_proj", ("mlp.c_proj",))
    assert not models.ends("h.0.my_mlp.c_proj", ("mlp.c_proj",))


@pytest.mark.parametrize(
    ("point", "tied"),
    [
        (PLAIN, False),
        (PLAIN.but(embeddings="tied"), True),
        (PLAIN.but(embeddings="resized"), False),
        (PLAIN.but(embeddings="resized", model="gpt2"), True),
    ],
)
def test_what_is_resized_is_tied_as_published(point: Options, tied: object) -> None:
    assert models.is_tied(point) is tied


def test_resizing_adds_tokens() -> None:
    assert models.vocabulary(PLAIN.but(embeddings="resized")) == tiny.VOCABULARY + models.NEW_ROWS


def test_a_forced_back_end_is_one_of_torchs_own_function() -> None:
    assert {implementation(PLAIN.but(attention=name)) for name in BACK_ENDS} == {"sdpa"}


def test_nothing_is_asked_for_by_default() -> None:
    assert implementation(PLAIN) == ""


@pytest.mark.parametrize(
    ("operator", "kernel"),
    [
        ("aten::_scaled_dot_product_attention_math", "math"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "flash"),
        ("aten::_scaled_dot_product_cudnn_attention", "cudnn"),
        ("flash_attn::_flash_attn_forward", "flash_attention_2"),
        ("aten::bmm", "eager"),
    ],
)
def test_a_kernel_is_known_by_its_operator(operator: str, kernel: str) -> None:
    seen = Kernels()
    seen.operators = {"aten::linear", operator}
    assert seen.ran == kernel
