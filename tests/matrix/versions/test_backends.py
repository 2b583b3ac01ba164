"""The chosen build of torch, or the lock's build with a note."""

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

FOUND = Finished(exit_code=0, log="torch==2.8.0+cpu\n")
UNREACHABLE = Finished(exit_code=2, log="error: Failed to fetch: `x`\n  cause: dns error")


@pytest.fixture
def chosen(tmp_path: Path) -> Callable[..., Backend]:
    def choose_with(name: str, answer: Finished = FOUND, *, gpu: bool = False) -> Backend:
        uv = Uv(binary=tmp_path / "uv", workdir=tmp_path, variables={}, call=lambda *_, **__: answer)
        return choose(name, uv=uv, gpu=lambda: gpu)

    return choose_with


def test_without_a_gpu_the_cpu_build_is_chosen(chosen: Callable[..., Backend]) -> None:
    assert chosen("auto") == Backend(name="cpu")


def test_with_a_gpu_the_lock_is_chosen(chosen: Callable[..., Backend]) -> None:
    assert chosen("auto", gpu=True).locked


def test_a_named_backend_is_chosen_on_any_machine(chosen: Callable[..., Backend]) -> None:
    assert chosen("cu128") == Backend(name="cu128")


def test_an_unreachable_index_falls_back_with_a_note(chosen: Callable[..., Backend]) -> None:
    backend = chosen("auto", UNREACHABLE)
    assert backend.locked
    assert "the index of torch's cpu builds cannot be reached" in backend.notes[0]


def test_a_probe_that_times_out_falls_back(chosen: Callable[..., Backend]) -> None:
    assert chosen("cpu", Finished(exit_code=None, log="")).locked


def test_the_locked_build_needs_no_probe(chosen: Callable[..., Backend]) -> None:
    assert chosen("pypi", UNREACHABLE) == Backend()


def test_an_unknown_backend_is_bad_input() -> None:
    with pytest.raises(UserError, match="expected auto, cpu, pypi, or a CUDA release such as cu128"):
        backends.checked_name("gpu")


def test_torch_and_its_libraries_belong_to_its_family() -> None:
    names = ("torch", "triton", "nvidia-cublas-cu12", "cuda-bindings", "sympy", "transformers", "torchao")
    assert [name for name in names if in_torch_family(name)] == [
        "torch",
        "triton",
        "nvidia-cublas-cu12",
        "cuda-bindings",
    ]
