"""A fake NVML library hides GPUs, lacks functions of newer drivers and returns error codes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from cases.runtime.nvml import MIB, Gpu, NvmlDriver, UnavailableError

if TYPE_CHECKING:
    import ctypes

NO_PERMISSION, NOT_LOADED, LOST = 4, 9, 15
SINCE_510 = ("nvmlDeviceGetMemoryInfo_v2",)


@dataclass
class Library:
    """A fake library. ``codes`` maps a function, perhaps with its argument, to an error code; it ``lacks`` others."""

    uuids: tuple[str, ...] = ("GPU-a", "GPU-b", "GPU-c")
    used_mib: int = 4
    codes: dict[str, int] = field(default_factory=dict)
    lacks: tuple[str, ...] = ()

    def __getattr__(self, name: str) -> Any:
        if name in self.lacks or not name.startswith("nvml"):
            raise AttributeError(name)

        def function(*arguments: Any) -> int:
            code = self.codes.get(name) or self.codes.get(f"{name} of {[*arguments, ''][0]}", 0)
            if not code:
                getattr(FakeFunctions, name, lambda *_: None)(self, *arguments)
            return code

        return function


class FakeFunctions:
    """The functions of the library that write a result."""

    @staticmethod
    def nvmlDeviceGetCount_v2(library: Library, count: Any) -> None:  # noqa: N802
        count._obj.value = len(library.uuids)

    @staticmethod
    def nvmlDeviceGetHandleByIndex_v2(_library: Library, index: int, handle: Any) -> None:  # noqa: N802
        handle._obj.value = index + 1

    @staticmethod
    def nvmlDeviceGetUUID(library: Library, handle: ctypes.c_void_p, buffer: Any, _size: int) -> None:  # noqa: N802
        buffer.value = library.uuids[(handle.value or 0) - 1].encode()

    @staticmethod
    def nvmlDeviceGetName(_library: Library, _handle: ctypes.c_void_p, buffer: Any, _size: int) -> None:  # noqa: N802
        buffer.value = b"NVIDIA H200"

    @staticmethod
    def nvmlDeviceGetCudaComputeCapability(_library: Library, _handle: ctypes.c_void_p, *to: Any) -> None:  # noqa: N802
        for output, number in zip(to, (9, 0), strict=True):
            output._obj.value = number

    @staticmethod
    def nvmlDeviceGetMemoryInfo_v2(library: Library, _handle: ctypes.c_void_p, memory: Any) -> None:  # noqa: N802
        memory._obj.used = library.used_mib * MIB

    nvmlDeviceGetMemoryInfo = nvmlDeviceGetMemoryInfo_v2  # noqa: N815


def driver(**fields: Any) -> NvmlDriver:
    return NvmlDriver(lambda _name: Library(**fields))


def test_gpus_have_their_compute_capability() -> None:
    found = driver(uuids=("GPU-a",)).gpus()
    assert found == (Gpu("GPU-a", "NVIDIA H200", 0, capability="9.0"),)


def test_gpus_that_a_job_may_not_open_are_skipped_and_not_numbered() -> None:
    """CUDA counts the same way: device 0 of the job is the second GPU of the host."""
    hidden = {"nvmlDeviceGetHandleByIndex_v2 of 0": NO_PERMISSION}
    assert [(gpu.index, gpu.uuid) for gpu in driver(codes=hidden).gpus()] == [(0, "GPU-b"), (1, "GPU-c")]


def test_a_lost_gpu_does_not_affect_the_others() -> None:
    lost = {"nvmlDeviceGetHandleByIndex_v2 of 1": LOST}
    assert [gpu.uuid for gpu in driver(codes=lost).gpus()] == ["GPU-a", "GPU-c"]


@pytest.mark.parametrize("others", [LOST, NO_PERMISSION])
def test_an_error_names_a_lost_gpu_if_no_usable_gpu_is_left(others: int) -> None:
    """The only GPU of a job may be lost while the others are hidden from it."""
    lost = {f"nvmlDeviceGetHandleByIndex_v2 of {index}": others if index < 2 else LOST for index in range(3)}
    with pytest.raises(UnavailableError, match="GPU 2: a GPU is lost"):
        driver(codes=lost).gpus()


def test_a_machine_without_the_library_has_no_driver() -> None:
    def missing(name: str) -> Any:
        raise OSError(f"{name}: cannot open shared object file")

    with pytest.raises(UnavailableError, match=r"no NVIDIA driver: libnvidia-ml\.so\.1: cannot open"):
        NvmlDriver(missing)


def test_the_error_for_a_driver_that_is_not_loaded_says_so() -> None:
    with pytest.raises(UnavailableError, match="nvmlInit_v2: the driver is not loaded"):
        driver(codes={"nvmlInit_v2": NOT_LOADED})


@pytest.mark.parametrize("lacks", [(), SINCE_510])
def test_old_and_new_drivers_report_memory(lacks: tuple[str, ...]) -> None:
    nvml = driver(used_mib=700, lacks=lacks)
    assert nvml.usage(Gpu("GPU-a", "NVIDIA H200", 0)).mib == 700


def test_the_error_names_a_function_that_the_driver_is_too_old_for() -> None:
    with pytest.raises(UnavailableError, match="the driver is too old: it has no nvmlSystemGetCudaDriverVersion_v2"):
        _ = driver(lacks=("nvmlSystemGetCudaDriverVersion_v2",)).cuda
