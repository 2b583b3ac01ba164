from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from matrix import machine
from matrix.errors import UserError
from matrix.processes import Finished

if TYPE_CHECKING:
    from matrix.processes import Call


def answering(log: str, exit_code: int = 0) -> Call:
    def call(*_argv: object, **_settings: object) -> Finished:
        return Finished(exit_code=exit_code, log=log)

    return call


def test_hardware_counts_the_gpus() -> None:
    smi = answering("NVIDIA H200, 580.1\nNVIDIA H200, 580.1\n")
    assert machine.hardware("cuda", call=smi) == "cuda: NVIDIA H200 x 2"


def test_hardware_of_a_cpu_counts_the_cores() -> None:
    assert machine.hardware("cpu").endswith(f" x {machine.cores()}")


def test_facts_of_a_gpu_machine_name_the_driver() -> None:
    assert machine.facts("cuda", call=answering("NVIDIA H200, 580.1\n"))["driver"] == "580.1"


@pytest.mark.parametrize(("log", "exit_code"), [("", 0), ("driver mismatch", 9)])
def test_a_machine_without_gpus_says_what_would_do(log: str, exit_code: int) -> None:
    with pytest.raises(UserError, match="--device cpu"):
        machine.hardware("cuda", call=answering(log, exit_code))
