"""Tests of the architectures' specs, embeddings and attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cases.apply.attention import BACK_ENDS, Kernels, implementation
from cases.model import architectures, disk, tiny
from cases.space import options
from cases.space.options import Options

if TYPE_CHECKING:
    from pathlib import Path

PLAIN = Options()


def test_every_model_has_a_spec() -> None:
    assert tuple(architectures.SPECS) == options.values("model")


@pytest.mark.parametrize("spec", architectures.SPECS.values(), ids=architectures.SPECS)
def test_the_plain_layer_is_not_a_target(spec: architectures.Spec) -> None:
    assert not architectures.ends(spec.plain, spec.targets)


@pytest.mark.parametrize("spec", architectures.SPECS.values(), ids=architectures.SPECS)
def test_the_plain_layer_is_quantised(spec: architectures.Spec) -> None:
    assert not architectures.ends(spec.plain, (*spec.kept, *spec.uncounted))


def test_name_endings_match_whole_parts_only() -> None:
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
def test_a_resized_model_is_tied_as_published(point: Options, tied: object) -> None:
    assert architectures.is_tied(point) is tied


def test_resizing_adds_tokens() -> None:
    assert architectures.vocabulary(PLAIN.but(embeddings="resized")) == tiny.VOCABULARY + architectures.NEW_ROWS


def test_a_forced_back_end_uses_the_sdpa_implementation() -> None:
    assert {implementation(PLAIN.but(attn_implementation=name)) for name in BACK_ENDS} == {"sdpa"}


def test_the_default_leaves_attention_to_transformers() -> None:
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
def test_a_kernel_is_identified_by_its_operator(operator: str, kernel: str) -> None:
    seen = Kernels()
    seen.operators = {"aten::linear", operator}
    assert seen.ran == kernel


def test_a_failure_while_the_checkpoint_is_written_shows_in_every_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(folder: Path, *_: object) -> None:
        folder.mkdir()
        raise RuntimeError("Numpy is not available")

    monkeypatch.setattr(disk, "write", fail)
    monkeypatch.setattr(architectures, "weights", lambda *_: {})
    for _ in range(2):
        with pytest.raises(RuntimeError, match="Numpy"):
            architectures.plain_checkpoint(tmp_path)
