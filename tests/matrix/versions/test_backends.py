"""The build of torch: what was wished for, or a sentence why not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from matrix.errors import UserError
from matrix.processes import Finished
from matrix.versions import backends
from matrix.versions.backends import Backend, choose, in_torch_family
from matrix.versions.uv import Uv

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HERE = Finished(exit_code=0, log="torch==2.8.0+cpu\n")
UNREACHABLE = Finished(exit_code=2, log="error: Failed to fetch: `x`\n  cause: dns error")


@pytest.fixture
def chosen(tmp_path: Path) -> Callable[..., Backend]:
    def choose_with(asked: str, answer: Finished = HERE, *, gpu: bool = False) -> Backend:
        uv = Uv(binary=tmp_path / "uv", workdir=tmp_path, variables={}, call=lambda *_, **__: answer)
        return choose(asked, uv=uv, gpu=lambda: gpu)

    return choose_with


def test_without_a_gpu_the_cpu_build_is_chosen(chosen: Callable[..., Backend]) -> None:
    assert chosen("auto") == Backend(name="cpu")


def test_with_a_gpu_the_lock_is_chosen(chosen: Callable[..., Backend]) -> None:
    assert chosen("auto", gpu=True).locked


def test_a_named_backend_is_chosen_on_any_machine(chosen: Callable[..., Backend]) -> None:
    assert chosen("cu128") == Backend(name="cu128")


def test_an_unreachable_index_falls_back_and_says_so(chosen: Callable[..., Backend]) -> None:
    backend = chosen("auto", UNREACHABLE)
    assert backend.locked
    assert "the index of torch's cpu builds cannot be reached" in backend.notes[0]


def test_a_probe_that_hangs_falls_back_as_well(chosen: Callable[..., Backend]) -> None:
    assert chosen("cpu", Finished(exit_code=None, log="")).locked


def test_the_locked_build_needs_no_probe(chosen: Callable[..., Backend]) -> None:
    assert chosen("pypi", UNREACHABLE) == Backend()


def test_an_unknown_backend_is_bad_input() -> None:
    with pytest.raises(UserError, match="expected auto, cpu, pypi, or a CUDA such as cu128"):
        backends.checked("gpu")


def test_torch_brings_its_libraries_and_nothing_else() -> None:
    names = ("torch", "triton", "nvidia-cublas-cu12", "cuda-bindings", "sympy", "transformers", "torchao")
    assert [name for name in names if in_torch_family(name)] == [
        "torch",
        "triton",
        "nvidia-cublas-cu12",
        "cuda-bindings",
    ]
