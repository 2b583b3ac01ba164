"""What the driver says of the GPUs, through its management library: asking it initialises no CUDA."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LIBRARY = "libnvidia-ml.so.1"
LONGEST = 96  # characters of a name or a UUID
MANY = 1024  # processes on one GPU
MIB = 2**20
SM_CLOCK, UNCORRECTED, VOLATILE = 1, 1, 0  # of nvmlClockType_t, nvmlMemoryErrorType_t and nvmlEccCounterType_t
LOST = 15  # fallen off the bus, or broken; the others work on
FAILURES = {
    1: "not initialised",
    3: "not supported",
    4: "no permission",
    9: "the driver is not loaded",
    LOST: "a GPU is lost",
    18: "the driver that is loaded and its library are of different versions",
}
NO_PERMISSION = 4  # for a GPU that a job's control group hides, which is counted all the same


class UnavailableError(RuntimeError):
    """There is no driver, or it does not answer."""


class Memory(ctypes.Structure):
    """nvmlMemory_v2_t: what the driver itself reserves is not in ``used``."""

    _fields_ = (
        ("version", ctypes.c_uint),
        *((name, ctypes.c_ulonglong) for name in ("total", "reserved", "free", "used")),
    )


class OlderMemory(ctypes.Structure):
    """nvmlMemory_t, of drivers before 510."""

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
    """A whole GPU, or a MIG slice of one. ``index`` counts the whole GPUs that may be used in the order of their bus.

    ``capability`` is what machine code must be made for, e.g. ``9.0``; empty where the driver does not tell.
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
    """Memory in MiB, and the processes that compute on it, as far as this container may see them."""

    mib: float
    pids: tuple[int, ...] = ()


class Rates(ctypes.Structure):
    """nvmlUtilization_t: per cent of the time since the last sample, of kernels and of memory traffic."""

    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


@dataclass(frozen=True)
class State:
    """What a GPU is doing: words for people, and only what this one tells of."""

    gpu: Gpu
    told: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return f"{self.gpu}: {', '.join(f'{what} {value}' for what, value in self.told)}"


class Driver:
    """The library, opened.

    Raises:
        UnavailableError: there is no driver, or it does not answer.
    """

    def __init__(self, opened: Callable[[str], Any] = ctypes.CDLL) -> None:
        try:
            self.library = opened(LIBRARY)
        except OSError as error:
            raise UnavailableError(f"no NVIDIA driver: {error}") from None
        self.call("nvmlInit_v2")

    def call(self, function: str, *arguments: Any) -> None:
        try:
            code = getattr(self.library, function)(*arguments)
        except AttributeError:
            raise UnavailableError(f"the driver is too old: it has no {function}") from None
        if code:
            raise UnavailableError(f"{function}: {FAILURES.get(code, f'error {code}')}")

    def gpus(self) -> tuple[Gpu, ...]:
        """Every GPU that this container, or job, may use; in place of one that is cut into MIG slices, these.

        Raises:
            UnavailableError: the driver does not answer.
        """
        found: list[Gpu] = []
        for index, handle in enumerate(self.handles()):
            slices = self.slices(handle)
            name, capability = self.text("nvmlDeviceGetName", handle), self.capability(handle)
            found += [
                Gpu(self.text("nvmlDeviceGetUUID", each), name, index, is_slice=bool(slices), capability=capability)
                for each in slices or [handle]
            ]
        return tuple(found)

    def handles(self) -> Iterator[ctypes.c_void_p]:
        """Of the GPUs that CUDA counts as well: not of those that a control group (Slurm's) keeps from this job.

        One that is lost is left out like these, unless no other is left.
        """
        count = ctypes.c_uint()
        self.call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        lost, usable = "", False
        for index in range(count.value):
            handle = ctypes.c_void_p()
            code = self.library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle))
            said = f"GPU {index}: {FAILURES.get(code, f'error {code}')}"
            if code == LOST:
                lost = said
            elif code and code != NO_PERMISSION:
                raise UnavailableError(said)
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
        """The MIG slices of a GPU; none of one that is whole."""
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
        return Usage(self.used(handle) / MIB, self.pids(handle))

    def used(self, handle: ctypes.c_void_p) -> int:
        """Bytes."""
        memory = Memory(version=ctypes.sizeof(Memory) | 2 << 24)  # as nvml.h makes versions of structures
        try:
            self.call("nvmlDeviceGetMemoryInfo_v2", handle, ctypes.byref(memory))
        except UnavailableError:
            older = OlderMemory()
            self.call("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(older))
            return int(older.used)
        return int(memory.used)

    def pids(self, handle: ctypes.c_void_p) -> tuple[int, ...]:
        return tuple(each.pid for each in self.processes(handle))

    def processes(self, handle: ctypes.c_void_p) -> list[Process]:
        """Those that compute on a GPU; none where they are hidden from containers, or the driver is older."""
        count, found = ctypes.c_uint(MANY), (Process * MANY)()
        try:
            self.call("nvmlDeviceGetComputeRunningProcesses_v3", handle, ctypes.byref(count), found)
        except UnavailableError:  # hidden from containers, or an older driver: memory has to tell
            return []
        return list(found[: count.value])

    def state(self, uuid: str) -> State:
        """All that the driver tells of one GPU, or slice, that may explain why a job on it stands still.

        Raises:
            UnavailableError: there is no such GPU, or it does not answer.
        """
        gpu = next((each for each in self.gpus() if each.uuid == uuid), None)
        if gpu is None:
            raise UnavailableError(f"no GPU is called {uuid}")
        handle = ctypes.c_void_p()
        self.call("nvmlDeviceGetHandleByUUID", uuid.encode(), ctypes.byref(handle))
        on_it = ", ".join(f"pid {each.pid}" for each in self.processes(handle))
        rates = self.asked(Rates(), "nvmlDeviceGetUtilizationRates", handle)
        told = (
            ("memory used", f"{self.usage(gpu).mib:.0f} MiB"),
            ("kernels running", "" if rates is None else f"{rates.gpu} % of the time"),
            ("temperature", self.number("{} C", "nvmlDeviceGetTemperature", handle, 0)),
            ("clock of its processors", self.number("{} MHz", "nvmlDeviceGetClockInfo", handle, SM_CLOCK)),
            ("power", self.number("{} mW", "nvmlDeviceGetPowerUsage", handle)),
            ("uncorrected memory errors", self.ecc_errors(handle)),
            ("processes", on_it or "none that can be seen"),
        )
        return State(gpu, tuple((what, value) for what, value in told if value))

    def number(self, form: str, function: str, *arguments: Any) -> str:
        """What a function tells of a GPU, in words; empty if it does not."""
        found = self.asked(ctypes.c_uint(), function, *arguments)
        return "" if found is None else form.format(found.value)

    def ecc_errors(self, handle: ctypes.c_void_p) -> str:
        """Since the driver was loaded."""
        found = self.asked(ctypes.c_ulonglong(), "nvmlDeviceGetTotalEccErrors", handle, UNCORRECTED, VOLATILE)
        return "" if found is None else str(found.value)

    def asked(self, kept: Any, function: str, *arguments: Any) -> Any:
        """What a function writes into ``kept``; None if this GPU or this driver does not tell it."""
        try:
            self.call(function, *arguments, ctypes.byref(kept))
        except UnavailableError:
            return None
        return kept


def tell(uuids: list[str]) -> None:
    """Print the state of each, a line a GPU."""
    try:
        driver = Driver()
    except UnavailableError as error:
        print(f"GPUs: {error}")
        return
    for uuid in uuids:
        try:
            print(driver.state(uuid))
        except UnavailableError as error:
            print(f"{uuid}: {error}")


if __name__ == "__main__":
    tell(sys.argv[1:])
