"""The state of a GPU has the readings that its driver reports, and leaves out the others."""

from __future__ import annotations

from typing import Any

import pytest

from cases.runtime.nvml import MIB, NvmlDriver, UnavailableError, print_states

NOT_SUPPORTED = 3
NUMBERS = {"nvmlDeviceGetTemperature": 41, "nvmlDeviceGetClockInfo": 1980, "nvmlDeviceGetTotalEccErrors": 2}


class Library:
    """A fake NVML library with one GPU, on which pid 77 computes."""

    def __init__(self, *lacks: str) -> None:
        self.lacks = lacks

    def __getattr__(self, name: str) -> Any:
        def function(*arguments: Any) -> int:
            if name in self.lacks:
                return NOT_SUPPORTED
            self.write(name, *arguments)
            return 0

        return function

    def write(self, name: str, *arguments: Any) -> None:
        if name in NUMBERS:
            arguments[-1]._obj.value = NUMBERS[name]
        elif name == "nvmlDeviceGetCount_v2":
            arguments[0]._obj.value = 1
        elif name == "nvmlDeviceGetUUID":
            arguments[1].value = b"GPU-a"
        elif name == "nvmlDeviceGetName":
            arguments[1].value = b"NVIDIA H200"
        elif name == "nvmlDeviceGetMemoryInfo_v2":
            arguments[1]._obj.used = 900 * MIB
        elif name == "nvmlDeviceGetUtilizationRates":
            arguments[1]._obj.gpu = 100
        elif name == "nvmlDeviceGetComputeRunningProcesses_v3":
            arguments[1]._obj.value, arguments[2][0].pid = 1, 77


def driver(*lacks: str) -> NvmlDriver:
    fake = object.__new__(NvmlDriver)
    fake.library = Library(*lacks)
    return fake


def test_the_state_has_the_processes_and_the_load_of_a_gpu() -> None:
    text = str(driver().state("GPU-a"))
    assert text.startswith("GPU 0 (NVIDIA H200): memory used 900 MiB, kernels running 100 % of the time")
    assert "temperature 41 C" in text
    assert "SM clock 1980 MHz" in text
    assert "uncorrected memory errors 2" in text
    assert text.endswith("processes pid 77")


def test_readings_that_a_gpu_does_not_report_are_left_out() -> None:
    text = str(driver("nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetComputeRunningProcesses_v3").state("GPU-a"))
    assert "memory errors" not in text
    assert text.endswith("processes none visible")


def test_an_unknown_uuid_is_an_error() -> None:
    with pytest.raises(UnavailableError, match="no GPU has the UUID GPU-b"):
        driver().state("GPU-b")


def test_each_gpu_gets_one_line_even_if_another_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("cases.runtime.nvml.NvmlDriver", driver)
    print_states(["GPU-b", "GPU-a"])
    first, second = capsys.readouterr().out.splitlines()
    assert first == "GPU-b: no GPU has the UUID GPU-b"
    assert second.startswith("GPU 0 (NVIDIA H200)")
