"""Queries GPUs through NVML, the driver's management library, which leaves CUDA uninitialised.

This is no wrapper of ``pynvml``: another ``pynvml`` on an environment's path would change what is measured.
"""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LIBRARY = "libnvidia-ml.so.1"
TEXT_BYTES = 96  # the longest name or UUID
MAX_PROCESSES = 1024  # on one GPU
MIB = 2**20
SM_CLOCK, UNCORRECTED, VOLATILE = 1, 1, 0  # of nvmlClockType_t, nvmlMemoryErrorType_t and nvmlEccCounterType_t
LOST = 15  # the GPU has fallen off the bus or is broken; the other GPUs still work
FAILURES = {
    1: "not initialised",
    3: "not supported",
    4: "no permission",
    9: "the driver is not loaded",
    LOST: "a GPU is lost",
    18: "the loaded driver and its library have different versions",
}
NO_PERMISSION = 4  # for a GPU that a job's control group hides; NVML counts it nevertheless


class UnavailableError(RuntimeError):
    """No driver is installed, or it does not answer."""


class Memory(ctypes.Structure):
    """nvmlMemory_v2_t, whose ``used`` excludes memory that the driver itself reserves."""

    _fields_ = (
        ("version", ctypes.c_uint),
        *((name, ctypes.c_ulonglong) for name in ("total", "reserved", "free", "used")),
    )


class OlderMemory(ctypes.Structure):
    """nvmlMemory_t, for drivers before 510."""

    _fields_ = tuple((name, ctypes.c_ulonglong) for name in ("total", "free", "used"))


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
    """A whole GPU or a MIG slice of one.

    ``index`` numbers the usable whole GPUs in bus order. ``capability`` is the compute capability, e.g. ``9.0``; empty
    if the driver does not report it.
    """

    uuid: str
    name: str
    index: int
    is_slice: bool = False
    capability: str = ""

    def __str__(self) -> str:
        return f"GPU {self.index} ({self.name}{', a MIG slice' if self.is_slice else ''})"


@dataclass(frozen=True)
class Usage:
    """The memory in use, in MiB, and the computing processes that this container can see."""

    mib: float
    pids: tuple[int, ...] = ()


class Rates(ctypes.Structure):
    """nvmlUtilization_t: percentage of the last sample period with a running kernel, and with memory traffic."""

    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


@dataclass(frozen=True)
class GpuState:
    """The state of a GPU for people to read. ``readings`` are pairs of a label and a value with its unit."""

    gpu: Gpu
    readings: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return f"{self.gpu}: {', '.join(f'{label} {value}' for label, value in self.readings)}"


class NvmlDriver:
    """An initialised NVML library. ``load`` opens a shared library by name.

    Raises:
        UnavailableError: no driver is installed, or it does not answer.
    """

    def __init__(self, load: Callable[[str], Any] = ctypes.CDLL) -> None:
        try:
            self.library = load(LIBRARY)
        except OSError as error:
            raise UnavailableError(f"no NVIDIA driver: {error}") from None
        self.call("nvmlInit_v2")

    def call(self, function: str, *arguments: Any) -> None:
        """Call a function of NVML.

        Raises:
            UnavailableError: the driver lacks the function, or the function fails.
        """
        try:
            code = getattr(self.library, function)(*arguments)
        except AttributeError:
            raise UnavailableError(f"the driver is too old: it has no {function}") from None
        if code:
            raise UnavailableError(f"{function}: {FAILURES.get(code, f'error {code}')}")

    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs that this container or job may use. MIG slices replace the GPU that they are part of.

        Raises:
            UnavailableError: the driver does not answer.
        """
        found: list[Gpu] = []
        for index, handle in enumerate(self.handles()):
            slices = self.slices(handle)
            name, capability = self.text("nvmlDeviceGetName", handle), self.capability(handle)
            found += [
                Gpu(self.text("nvmlDeviceGetUUID", part), name, index, is_slice=bool(slices), capability=capability)
                for part in slices or [handle]
            ]
        return tuple(found)

    def handles(self) -> Iterator[ctypes.c_void_p]:
        """Handles of the GPUs that CUDA counts, too: neither lost ones nor those that a control group (Slurm's) hides.

        Raises:
            UnavailableError: the driver does not answer, or every usable GPU is lost.
        """
        count = ctypes.c_uint()
        self.call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        lost, usable = "", False
        for index in range(count.value):
            handle = ctypes.c_void_p()
            code = self.library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle))
            failure = f"GPU {index}: {FAILURES.get(code, f'error {code}')}"
            if code == LOST:
                lost = failure
            elif code and code != NO_PERMISSION:
                raise UnavailableError(failure)
            elif not code:
                usable = True
                yield handle
        if lost and not usable:
            raise UnavailableError(lost)

    def capability(self, handle: ctypes.c_void_p) -> str:
        numbers = ctypes.c_int(), ctypes.c_int()
        try:
            self.call("nvmlDeviceGetCudaComputeCapability", handle, *map(ctypes.byref, numbers))
        except UnavailableError:
            return ""
        return ".".join(str(number.value) for number in numbers)

    def slices(self, handle: ctypes.c_void_p) -> list[ctypes.c_void_p]:
        """The MIG slices of a GPU; empty if it is not partitioned."""
        count = ctypes.c_uint()
        try:
            self.call("nvmlDeviceGetMaxMigDeviceCount", handle, ctypes.byref(count))
        except UnavailableError:  # a GPU, or a driver, without MIG
            return []
        found = []
        for index in range(count.value):
            part = ctypes.c_void_p()
            if self.library.nvmlDeviceGetMigDeviceHandleByIndex(handle, index, ctypes.byref(part)) == 0:
                found.append(part)
        return found

    def text(self, function: str, handle: ctypes.c_void_p) -> str:
        buffer = ctypes.create_string_buffer(TEXT_BYTES)
        self.call(function, handle, buffer, TEXT_BYTES)
        return buffer.value.decode()

    @property
    def version(self) -> str:
        """The version of the driver, e.g. ``570.124.06``."""
        buffer = ctypes.create_string_buffer(TEXT_BYTES)
        self.call("nvmlSystemGetDriverVersion", buffer, TEXT_BYTES)
        return buffer.value.decode()

    @property
    def cuda(self) -> str:
        """The newest CUDA version that the driver supports, e.g. ``12.8``."""
        number = ctypes.c_int()
        self.call("nvmlSystemGetCudaDriverVersion_v2", ctypes.byref(number))
        return f"{number.value // 1000}.{number.value % 1000 // 10}"  # as cuda.h numbers it

    def usage(self, gpu: Gpu) -> Usage:
        """The present use of a GPU.

        Raises:
            UnavailableError: the driver does not answer.
        """
        handle = ctypes.c_void_p()
        self.call("nvmlDeviceGetHandleByUUID", gpu.uuid.encode(), ctypes.byref(handle))
        return Usage(self.used(handle) / MIB, self.pids(handle))

    def used(self, handle: ctypes.c_void_p) -> int:
        """The bytes in use on a GPU."""
        memory = Memory(
            version=ctypes.sizeof(Memory) | 2 << 24
        )  # the size and version of the structure, see NVML_STRUCT_VERSION in nvml.h
        try:
            self.call("nvmlDeviceGetMemoryInfo_v2", handle, ctypes.byref(memory))
        except UnavailableError:
            older = OlderMemory()
            self.call("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(older))
            return int(older.used)
        return int(memory.used)

    def pids(self, handle: ctypes.c_void_p) -> tuple[int, ...]:
        return tuple(process.pid for process in self.processes(handle))

    def processes(self, handle: ctypes.c_void_p) -> list[Process]:
        """The processes that compute on a GPU; empty if a container hides them or the driver is too old."""
        count, found = ctypes.c_uint(MAX_PROCESSES), (Process * MAX_PROCESSES)()
        try:
            self.call("nvmlDeviceGetComputeRunningProcesses_v3", handle, ctypes.byref(count), found)
        except UnavailableError:  # the memory in use then is the only sign of other processes
            return []
        return list(found[: count.value])

    def state(self, uuid: str) -> GpuState:
        """The readings of a GPU or slice that may explain why a job on it makes no progress.

        Raises:
            UnavailableError: there is no such GPU, or the driver does not answer.
        """
        gpu = next((each for each in self.gpus() if each.uuid == uuid), None)
        if gpu is None:
            raise UnavailableError(f"no GPU has the UUID {uuid}")
        handle = ctypes.c_void_p()
        self.call("nvmlDeviceGetHandleByUUID", uuid.encode(), ctypes.byref(handle))
        processes = ", ".join(f"pid {process.pid}" for process in self.processes(handle))
        rates = self.query(Rates(), "nvmlDeviceGetUtilizationRates", handle)
        readings = (
            ("memory used", f"{self.usage(gpu).mib:.0f} MiB"),
            ("kernels running", "" if rates is None else f"{rates.gpu} % of the time"),
            ("temperature", self.number("{} C", "nvmlDeviceGetTemperature", handle, 0)),
            ("SM clock", self.number("{} MHz", "nvmlDeviceGetClockInfo", handle, SM_CLOCK)),
            ("power", self.number("{} mW", "nvmlDeviceGetPowerUsage", handle)),
            ("uncorrected memory errors", self.ecc_errors(handle)),
            ("processes", processes or "none visible"),
        )
        return GpuState(gpu, tuple((label, value) for label, value in readings if value))

    def number(self, template: str, function: str, *arguments: Any) -> str:
        """The number that a function reports, formatted by ``template``; empty if it reports none."""
        found = self.query(ctypes.c_uint(), function, *arguments)
        return "" if found is None else template.format(found.value)

    def ecc_errors(self, handle: ctypes.c_void_p) -> str:
        """The number of uncorrected ECC errors since the driver was loaded; empty if the GPU does not report it."""
        found = self.query(ctypes.c_ulonglong(), "nvmlDeviceGetTotalEccErrors", handle, UNCORRECTED, VOLATILE)
        return "" if found is None else str(found.value)

    def query(self, output: Any, function: str, *arguments: Any) -> Any:
        """``output``, after a function has written to it; None if this GPU or driver does not support the function."""
        try:
            self.call(function, *arguments, ctypes.byref(output))
        except UnavailableError:
            return None
        return output


def print_states(uuids: list[str]) -> None:
    """Print one line with the state of each GPU."""
    try:
        driver = NvmlDriver()
    except UnavailableError as error:
        print(f"GPUs: {error}")
        return
    for uuid in uuids:
        try:
            print(driver.state(uuid))
        except UnavailableError as error:
            print(f"{uuid}: {error}")


if __name__ == "__main__":
    print_states(sys.argv[1:])
