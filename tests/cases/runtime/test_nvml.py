"""The driver's library, played: what it hides, what an older one lacks, and how it says no."""

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
    """``codes`` is what a function returns but 0, by its name and perhaps its argument; ``lacks`` what is not there."""

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
                getattr(Answers, name, lambda *_: None)(self, *arguments)
            return code

        return function


class Answers:
    """What the functions write, where they write anything."""

    @staticmethod
    def nvmlDeviceGetCount_v2(library: Library, count: Any) -> None:  # noqa: N802
        count._obj.value = len(library.uuids)

    @staticmethod
    def nvmlDeviceGetHandleByIndex_v2(_library: Library, index: int, handle: Any) -> None:  # noqa: N802
        handle._obj.value = index + 1

    @staticmethod
    def nvmlDeviceGetUUID(library: Library, handle: ctypes.c_void_p, kept: Any, _size: int) -> None:  # noqa: N802
        kept.value = library.uuids[(handle.value or 0) - 1].encode()

    @staticmethod
    def nvmlDeviceGetName(_library: Library, _handle: ctypes.c_void_p, kept: Any, _size: int) -> None:  # noqa: N802
        kept.value = b"NVIDIA H200"

    @staticmethod
    def nvmlDeviceGetCudaComputeCapability(_library: Library, _handle: ctypes.c_void_p, *to: Any) -> None:  # noqa: N802
        for where, number in zip(to, (9, 0), strict=True):
            where._obj.value = number

    @staticmethod
    def nvmlDeviceGetMemoryInfo_v2(library: Library, _handle: ctypes.c_void_p, memory: Any) -> None:  # noqa: N802
        memory._obj.used = library.used_mib * MIB

    nvmlDeviceGetMemoryInfo = nvmlDeviceGetMemoryInfo_v2  # noqa: N815


def driver(**fields: Any) -> NvmlDriver:
    return NvmlDriver(lambda _name: Library(**fields))


def test_gpus_are_told_with_what_code_they_run() -> None:
    known = driver(uuids=("GPU-a",)).gpus()
    assert known == (Gpu("GPU-a", "NVIDIA H200", 0, capability="9.0"),)


def test_gpus_that_a_job_may_not_open_are_neither_told_nor_counted() -> None:
    """As CUDA counts: device 0 of the job is the second of the host."""
    hidden = {"nvmlDeviceGetHandleByIndex_v2 of 0": NO_PERMISSION}
    assert [(gpu.index, gpu.uuid) for gpu in driver(codes=hidden).gpus()] == [(0, "GPU-b"), (1, "GPU-c")]


def test_a_lost_gpu_costs_the_others_nothing() -> None:
    lost = {"nvmlDeviceGetHandleByIndex_v2 of 1": LOST}
    assert [gpu.uuid for gpu in driver(codes=lost).gpus()] == ["GPU-a", "GPU-c"]


@pytest.mark.parametrize("others", [LOST, NO_PERMISSION])
def test_where_no_gpu_is_left_one_that_is_lost_is_named(others: int) -> None:
    """Also where the only GPU of a job is, and the others are hidden from it."""
    lost = {f"nvmlDeviceGetHandleByIndex_v2 of {index}": others if index < 2 else LOST for index in range(3)}
    with pytest.raises(UnavailableError, match="GPU 2: a GPU is lost"):
        driver(codes=lost).gpus()


def test_a_machine_without_the_library_has_no_driver() -> None:
    def missing(name: str) -> Any:
        raise OSError(f"{name}: cannot open shared object file")

    with pytest.raises(UnavailableError, match=r"no NVIDIA driver: libnvidia-ml\.so\.1: cannot open"):
        NvmlDriver(missing)


def test_a_driver_that_is_not_loaded_says_so() -> None:
    with pytest.raises(UnavailableError, match="nvmlInit_v2: the driver is not loaded"):
        driver(codes={"nvmlInit_v2": NOT_LOADED})


@pytest.mark.parametrize("lacks", [(), SINCE_510])
def test_memory_is_told_by_drivers_old_and_new(lacks: tuple[str, ...]) -> None:
    some = driver(used_mib=700, lacks=lacks)
    assert some.usage(Gpu("GPU-a", "NVIDIA H200", 0)).mib == 700


def test_what_a_driver_is_too_old_for_is_a_sentence() -> None:
    with pytest.raises(UnavailableError, match="the driver is too old: it has no nvmlSystemGetCudaDriverVersion_v2"):
        _ = driver(lacks=("nvmlSystemGetCudaDriverVersion_v2",)).cuda
