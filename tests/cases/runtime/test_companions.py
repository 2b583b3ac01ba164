"""Companions compute what several jobs share."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from cases.runtime.companions import CompanionError, Companions, note_missing, wait_for
from cases.space.verdict import UnknownModelError

if TYPE_CHECKING:
    from pathlib import Path

SUITE: Any = SimpleNamespace(preload=tuple)


def companions(device: str = "cpu") -> Companions:
    return Companions(SUITE, device, close_client=lambda: None)


@pytest.mark.parametrize(("device", "seen"), [("cpu", "GPU-a"), ("cuda", "")])
def test_a_companion_sees_no_gpu_that_the_job_has_not_acquired(
    device: str, seen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a")
    path = tmp_path / "seen"
    started = companions(device)

    def compute() -> None:
        path.write_text(os.environ["CUDA_VISIBLE_DEVICES"])

    started.start(str(path), compute)
    started.wait(60.0, lambda: False)
    assert path.read_text() == seen


def test_a_second_job_does_not_compute_again(tmp_path: Path) -> None:
    (tmp_path / "made.claim").touch()
    second = companions()
    second.start(str(tmp_path / "made"), lambda: pytest.fail("it computed"))
    assert second.running == {}


def test_a_job_that_waits_gets_the_error_of_a_companion(tmp_path: Path) -> None:
    started = companions()

    def compute() -> None:
        raise ArithmeticError("no reference today")

    started.start(str(tmp_path / "made"), compute)
    started.wait(60.0, lambda: False)
    with pytest.raises(CompanionError, match="could not be computed: ArithmeticError: no reference today"):
        list(wait_for(str(tmp_path / "made")))


def test_a_job_learns_that_the_reference_does_not_know_its_model(tmp_path: Path) -> None:
    started = companions()

    def compute() -> None:
        raise UnknownModelError("no reference implementation: bloom")

    started.start(str(tmp_path / "made"), compute)
    started.wait(60.0, lambda: False)
    with pytest.raises(UnknownModelError, match=r"^no reference implementation: bloom$"):
        list(wait_for(str(tmp_path / "made")))


def test_a_job_gets_an_error_if_its_companion_was_ended(tmp_path: Path) -> None:
    note_missing(str(tmp_path / "made"))
    with pytest.raises(CompanionError, match="the process that computes it was ended"):
        list(wait_for(str(tmp_path / "made")))
