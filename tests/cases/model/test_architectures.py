"""Each architecture is described once, and what is asked of its embeddings is what it gets."""

from __future__ import annotations

import pytest

from cases.apply.attention import BACK_ENDS, Kernels, implementation
from cases.model import architectures, tiny
from cases.space import options
from cases.space.options import Options

PLAIN = Options()


def test_every_model_has_a_spec() -> None:
    assert tuple(architectures.SPECS) == options.values("model")


@pytest.mark.parametrize("spec", architectures.SPECS.values(), ids=architectures.SPECS)
def test_the_layer_without_an_adapter_is_no_target(spec: architectures.Spec) -> None:
    assert not architectures.ends(spec.plain, spec.targets)


@pytest.mark.parametrize("spec", architectures.SPECS.values(), ids=architectures.SPECS)
def test_the_layer_without_an_adapter_is_quantised(spec: architectures.Spec) -> None:
    assert not architectures.ends(spec.plain, (*spec.kept, *spec.uncounted))


def test_a_name_ends_in_whole_parts() -> None:
    assert architectures.ends("h.0.mlp.c_proj", ("mlp.c_proj",))
    assert not architectures.ends("h.0.attn.c_proj", ("mlp.c_proj",))
    assert not architectures.ends("h.0.my_mlp.c_proj", ("mlp.c_proj",))


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
    assert architectures.is_tied(point) is tied


def test_resizing_adds_tokens() -> None:
    assert architectures.vocabulary(PLAIN.but(embeddings="resized")) == tiny.VOCABULARY + architectures.NEW_ROWS


def test_a_forced_back_end_is_one_of_torchs_own_function() -> None:
    assert {implementation(PLAIN.but(attn_implementation=name)) for name in BACK_ENDS} == {"sdpa"}


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
