"""``--device`` of the commands that answer from stored results."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from matrix.errors import UserError
from matrix.run import machine
from reports.commands.options import results_device

if TYPE_CHECKING:
    from collections.abc import Callable

    Command = Callable[..., tuple[int, str, str]]

GPU_COMMANDS = (
    ("recommend", "--need", "qlora fsdp2"),
    ("can-i-use", "qlora fsdp2"),
    ("repro", "2026-11__train-lora-int8-fsdp2-bf16"),
)


def test_auto_is_the_cpu_without_a_gpu() -> None:
    assert results_device("auto") == "cpu"


def test_auto_is_cuda_with_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "why_no_gpu", lambda: "")
    assert results_device("auto") == "cuda"


def test_a_named_device_needs_no_gpu() -> None:
    assert results_device("cuda") == "cuda"


def test_an_unknown_device_is_refused_with_the_choices() -> None:
    with pytest.raises(UserError, match="--device tpu: unknown device; choose from auto, cpu, cuda"):
        results_device("tpu")


@pytest.mark.parametrize("command", GPU_COMMANDS, ids=lambda words: words[0])
def test_without_device_a_gpu_host_gets_an_answer_from_gpu_results(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, ftmatrix: Command
) -> None:
    monkeypatch.setattr(machine, "why_no_gpu", lambda: "")
    assert ftmatrix(*command) == ftmatrix(*command, "--device", "cuda")
    assert ftmatrix(*command) != ftmatrix(*command, "--device", "cpu")
