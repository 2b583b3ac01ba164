"""Crashes and hangs that ``ftmatrix selfcheck --crashes`` injects into a working stack during training.

Each declares the verdict and the reason that the harness must report. They show that the harness recognises the failure
and that later cells on the same GPUs are unaffected.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from cases.injection import patching
from cases.space.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cases.injection.patching import InjectionPoint

    Trigger = Callable[[], None]

VICTIM = 1  # the rank that crashes
STEP = 2  # the training step, counted from 1: by then, every process group has been used
ANYWHERE = ("cpu", "cuda")
ON_GPUS = ("cuda",)
CASES = ("train-lora-ddp-bf16",)
BLOCK_MIB = 64
MAX_HELD_MIB = 16_000  # the allocation ends here if no limit stops it


@dataclass(frozen=True)
class Crash:
    """A crash or hang.

    ``shows`` maps a device to a pattern that the reported reason must match; other devices get no injection.
    """

    name: str
    what: str
    trigger: Trigger
    verdict: Verdict
    shows: Mapping[str, str]
    cases: tuple[str, ...]
    victims: tuple[int, ...]

    def inject(self, point: InjectionPoint) -> None:
        """Trigger the crash in its victims when a training step begins."""
        if point.rank in self.victims:
            patching.change_wrapped_model(lambda model: before_step(model, self.trigger))


CRASHES: dict[str, Crash] = {}


def crash(
    verdict: Verdict,
    shows: str | Mapping[str, str],
    *,
    on: tuple[str, ...] = ANYWHERE,
    cases: tuple[str, ...] = CASES,
    victims: tuple[int, ...] = (VICTIM,),
) -> Callable[[Trigger], Trigger]:
    """Register a crash; the first line of its docstring describes it."""

    def register(trigger: Trigger) -> Trigger:
        what = (trigger.__doc__ or "").strip().splitlines()[0].rstrip(".")
        patterns = dict.fromkeys(on, shows) if isinstance(shows, str) else dict(shows)
        CRASHES[trigger.__name__] = Crash(trigger.__name__, what, trigger, verdict, patterns, cases, victims)
        return trigger

    return register


def before_step(model: Any, trigger: Trigger) -> None:
    """Call the trigger when the forward pass of ``STEP`` begins."""
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1
        if calls == STEP:
            trigger()

    model.register_forward_pre_hook(count)


# --- ranks that stop


@crash(
    Verdict.HANG,
    {
        "cpu": r"^no sign of life for \d+ s: .*rank 1 in never_enters_a_collective \(crashes\.py",
        "cuda": r"^no sign of life for \d+ s: rank 0 is in collective (\d+), .*; rank 1 never entered collective \1: "
        r".*rank 1 in never_enters_a_collective \(crashes\.py",
    },
    cases=("train-lora-ddp-bf16", "train-lora-fsdp2-bf16"),
)
def never_enters_a_collective() -> None:
    """One rank sleeps forever while the others wait for it in a collective."""
    while True:
        time.sleep(3600)


# --- ranks that vanish


@crash(Verdict.CRASH, r"^rank 1 ended without a report, exit code 3$")
def exits() -> None:
    """A rank exits with an error code during training."""
    os._exit(3)


@crash(Verdict.CRASH, r"^rank 1 ended without a report, exit code 0$")
def leaves_silently() -> None:
    """A rank exits with code 0 during training."""
    os._exit(0)


@crash(Verdict.CRASH, r"^rank 1 was ended by SIGSEGV$")
def segmentation_fault() -> None:
    """A rank reads memory that is not mapped."""
    ctypes.string_at(0)


@crash(Verdict.CRASH, r"^rank 1 was ended by SIGABRT$")
def aborts() -> None:
    """A library aborts a rank."""
    os.abort()


@crash(Verdict.CRASH, r"^rank 1 was ended by SIGKILL$")
def killed() -> None:
    """Another process kills a rank."""
    os.kill(os.getpid(), signal.SIGKILL)


@crash(Verdict.FAIL, r"^RuntimeError: injected$")
def raises() -> NoReturn:
    """One rank raises while the others wait for it in a collective."""
    raise RuntimeError("injected")


# --- memory


@crash(Verdict.CRASH, r"^out of host memory: the ranks held \d+ MiB of \d+ MiB", victims=(0, 1))
def host_out_of_memory() -> None:
    """The ranks allocate more host memory than their cell may use."""
    held: list[mmap.mmap] = []
    while len(held) * BLOCK_MIB < MAX_HELD_MIB:
        held.append(mmap.mmap(-1, BLOCK_MIB * 2**20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        for page in range(0, len(held[-1]), mmap.PAGESIZE):
            held[-1][page] = 1  # the kernel maps a page on the first write, which is slow on some hosts
    raise RuntimeError("the limit did not end this cell")


@crash(Verdict.CRASH, r"^out of device memory: .*CUDA out of memory", on=ON_GPUS)
def device_out_of_memory() -> None:
    """A rank allocates twice the memory of its GPU."""
    import torch

    whole = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
    torch.empty(2 * whole, dtype=torch.uint8, device="cuda")


# --- GPUs


@crash(Verdict.CRASH, r"^illegal memory access: .*illegal memory access", on=ON_GPUS)
def illegal_memory_access() -> None:
    """A kernel reads from an invalid address."""
    import torch

    # NVRTC, a part of torch, compiles this kernel, so that the host needs no compiler and no headers.
    read = torch.cuda.jiterator._create_jit_fn(  # noqa: SLF001 - the only way to define a kernel in every version
        "template <typename T> T read_nowhere(T where) {"
        " return *reinterpret_cast<volatile T*>(static_cast<unsigned long long>(where)); }"
    )
    read(torch.full((32,), 4096.0, device="cuda"))
    torch.cuda.synchronize()


@crash(Verdict.CRASH, r"^device-side assert: .*device-side assert triggered", on=ON_GPUS)
def device_side_assert() -> None:
    """A rank indexes a tensor out of bounds."""
    import torch

    rows = torch.full((4,), 1_000_000, device="cuda")
    torch.zeros(8, 8, device="cuda")[rows]
    torch.cuda.synchronize()


@crash(Verdict.FAIL, r"^NCCL error: .*(?:NCCL|DistBackendError)", on=ON_GPUS, victims=(0, 1))
def two_ranks_on_one_gpu() -> None:
    """Two ranks of a group use the same GPU, which NCCL rejects."""
    import torch
    import torch.distributed as dist

    group = dist.new_group()
    with torch.cuda.device(0):
        dist.all_reduce(torch.ones(4, device="cuda:0"), group=group)
        torch.cuda.synchronize(0)
