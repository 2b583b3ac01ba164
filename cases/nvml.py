"""What the driver says of the GPUs, through its management library: asking it initialises no CUDA."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

LIBRARY = "libnvidia-ml.so.1"
LONGEST = 96  # characters of a name or a UUID
MANY = 1024  # processes on one GPU
MIB = 2**20
FAILURES = {
    1: "not initialised",
    3: "not supported",
    4: "no permission",
    9: "the driver is not loaded",
    15: "a GPU is lost",
}


class UnavailableError(RuntimeError):
    """There is no driver, or it does not answer."""


class Memory(ctypes.Structure):
    """nvmlMemory_v2_t: what the driver itself reserves is not in ``used``."""

    _fields_ = (
        ("version", ctypes.c_uint),
        *((name, ctypes.c_ulonglong) for name in ("total", "reserved", "free", "used")),
    )


class Process(ctypes.Structure):
    """nvmlProcessInfo_t."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


@dataclass(frozen=True)
class Gpu:
    """A whole GPU, or a MIG slice of one. ``index`` counts whole GPUs in the order of their bus."""

    uuid: str
    name: str
    index: int
    is_slice: bool = False

    def __str__(self) -> str:
        return f"GPU {self.index} ({self.name}{', a MIG slice' if self.is_slice else ''})"


@dataclass(frozen=True)
class Usage:
    """Memory in MiB, and the processes that compute on it, as far as this container may see them."""

    mib: float
    pids: tuple[int, ...] = ()


class Driver:
    """The library, opened.

    Raises:
        UnavailableError: there is no driver, or it does not answer.
    """

    def __init__(self) -> None:
        try:
            self.library = ctypes.CDLL(LIBRARY)
        except OSError as error:
            raise UnavailableError(f"no NVIDIA driver: {error}") from None
        self.call("nvmlInit_v2")

    def call(self, function: str, *arguments: Any) -> None:
        code = getattr(self.library, function)(*arguments)
        if code:
            raise UnavailableError(f"{function}: {FAILURES.get(code, f'error {code}')}")

    def gpus(self) -> tuple[Gpu, ...]:
        """Every GPU that this container may see; in place of one that is cut into MIG slices, these.

        Raises:
            UnavailableError: the driver does not answer.
        """
        count = ctypes.c_uint()
        self.call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        found: list[Gpu] = []
        for index in range(count.value):
            handle = ctypes.c_void_p()
            self.call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(handle))
            slices = self.slices(handle)
            name = self.text("nvmlDeviceGetName", handle)
            found += [
                Gpu(self.text("nvmlDeviceGetUUID", each), name, index, is_slice=bool(slices))
                for each in slices or [handle]
            ]
        return tuple(found)

    def slices(self, handle: ctypes.c_void_p) -> list[ctypes.c_void_p]:
        """The MIG slices of a GPU; none of one that is whole."""
        count = ctypes.c_uint()
        try:
            self.call("nvmlDeviceGetMaxMigDeviceCount", handle, ctypes.byref(count))
        except (UnavailableError, AttributeError):  # a GPU, or a driver, without MIG
            return []
        found = []
        for index in range(count.value):
            part = ctypes.c_void_p()
            if self.library.nvmlDeviceGetMigDeviceHandleByIndex(handle, index, ctypes.byref(part)) == 0:
                found.append(part)
        return found

    def text(self, function: str, handle: ctypes.c_void_p) -> str:
        kept = ctypes.create_string_buffer(LONGEST)
        self.call(function, handle, kept, LONGEST)
        return kept.value.decode()

    @property
    def version(self) -> str:
        """The driver's."""
        kept = ctypes.create_string_buffer(LONGEST)
        self.call("nvmlSystemGetDriverVersion", kept, LONGEST)
        return kept.value.decode()

    @property
    def cuda(self) -> str:
        """The newest CUDA that the driver runs."""
        number = ctypes.c_int()
        self.call("nvmlSystemGetCudaDriverVersion_v2", ctypes.byref(number))
        return f"{number.value // 1000}.{number.value % 1000 // 10}"  # as cuda.h numbers it

    def usage(self, gpu: Gpu) -> Usage:
        """What is on it now.

        Raises:
            UnavailableError: the driver does not answer.
        """
        handle = ctypes.c_void_p()
        self.call("nvmlDeviceGetHandleByUUID", gpu.uuid.encode(), ctypes.byref(handle))
        memory = Memory(version=ctypes.sizeof(Memory) | 2 << 24)  # as nvml.h makes versions of structures
        self.call("nvmlDeviceGetMemoryInfo_v2", handle, ctypes.byref(memory))
        return Usage(memory.used / MIB, self.pids(handle))

    def pids(self, handle: ctypes.c_void_p) -> tuple[int, ...]:
        count, found = ctypes.c_uint(MANY), (Process * MANY)()
        try:
            self.call("nvmlDeviceGetComputeRunningProcesses_v3", handle, ctypes.byref(count), found)
        except (UnavailableError, AttributeError):  # hidden from containers, or an older driver: memory has to tell
            return ()
        return tuple(each.pid for each in found[: count.value])
