"""Disasters to plant in a working stack: a rank that stops, vanishes, or breaks its GPU in the middle of training.

Each says what must be made of it: the verdict, and what the reason must show. They show that the harness names what
happened, and that the cells which come next on the same GPUs are unharmed (``ftmatrix selfcheck --disasters``).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from cases.injection import faults
from cases.space.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cases.injection.faults import Ground

    Strike = Callable[[], None]

VICTIM = 1  # the rank it happens to
STEP = 2  # of the training steps, counted from 1: every group has been used by then
ANYWHERE = ("cpu", "cuda")
ON_GPUS = ("cuda",)
CASES = ("train-lora-ddp-bf16",)
BLOCK_MIB = 64
WHEN_FREED_MIB = 16_000  # an allocation that nobody stops ends by itself


@dataclass(frozen=True)
class Disaster:
    """``shows`` is a pattern that the reason must match, by device: where it has none, it cannot be planted."""

    name: str
    what: str
    strike: Strike
    verdict: Verdict
    shows: Mapping[str, str]
    cases: tuple[str, ...]
    victims: tuple[int, ...]

    def plant(self, at: Ground) -> None:
        """Let it happen to its victims when a step begins."""
        if at.rank in self.victims:
            faults.wrapped(lambda model: before_step(model, self.strike))


DISASTERS: dict[str, Disaster] = {}


def disaster(
    verdict: Verdict,
    shows: str | Mapping[str, str],
    *,
    on: tuple[str, ...] = ANYWHERE,
    cases: tuple[str, ...] = CASES,
    victims: tuple[int, ...] = (VICTIM,),
) -> Callable[[Strike], Strike]:
    """Register a disaster; the first line of its docstring says what happens."""

    def register(strike: Strike) -> Strike:
        what = (strike.__doc__ or "").strip().splitlines()[0].rstrip(".")
        patterns = dict.fromkeys(on, shows) if isinstance(shows, str) else dict(shows)
        DISASTERS[strike.__name__] = Disaster(strike.__name__, what, strike, verdict, patterns, cases, victims)
        return strike

    return register


def before_step(model: Any, strike: Strike) -> None:
    """Strike when the model is called for the step."""
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1
        if calls == STEP:
            strike()

    model.register_forward_pre_hook(count)


# --- ranks that stop


@disaster(
    Verdict.HANG,
    {
        "cpu": r"^no sign of life for \d+ s: .*rank 1 in never_enters_a_collective \(disasters\.py",
        "cuda": r"^no sign of life for \d+ s: rank 0 is in collective (\d+), .*; rank 1 never entered collective \1: "
        r".*rank 1 in never_enters_a_collective \(disasters\.py",
    },
    cases=("train-lora-ddp-bf16", "train-lora-fsdp2-bf16"),
)
def never_enters_a_collective() -> None:
    """One rank sleeps for ever, and the others wait for it in a collective."""
    while True:
        time.sleep(3600)


# --- ranks that vanish


@disaster(Verdict.CRASH, r"^rank 1 ended without a report, exit code 3$")
def exits() -> None:
    """A rank leaves with an exit code in the middle."""
    os._exit(3)


@disaster(Verdict.CRASH, r"^rank 1 ended without a report, exit code 0$")
def leaves_silently() -> None:
    """A rank leaves in the middle as if all were well."""
    os._exit(0)


@disaster(Verdict.CRASH, r"^rank 1 was ended by SIGSEGV$")
def segmentation_fault() -> None:
    """A rank reads memory that is not there."""
    ctypes.string_at(0)


@disaster(Verdict.CRASH, r"^rank 1 was ended by SIGABRT$")
def aborts() -> None:
    """A library ends a rank by abort."""
    os.abort()


@disaster(Verdict.CRASH, r"^rank 1 was ended by SIGKILL$")
def killed() -> None:
    """Somebody kills a rank."""
    os.kill(os.getpid(), signal.SIGKILL)


@disaster(Verdict.FAIL, r"^RuntimeError: planted$")
def raises() -> NoReturn:
    """One rank raises, and the others wait for it in a collective."""
    raise RuntimeError("planted")


# --- memory


@disaster(Verdict.CRASH, r"^out of host memory: the ranks held \d+ MiB of \d+ MiB", victims=(0, 1))
def host_out_of_memory() -> None:
    """The ranks take more of the host's memory than their cell may have."""
    held: list[mmap.mmap] = []
    while len(held) * BLOCK_MIB < WHEN_FREED_MIB:
        held.append(mmap.mmap(-1, BLOCK_MIB * 2**20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        for page in range(0, len(held[-1]), mmap.PAGESIZE):
            held[-1][page] = 1  # the quickest way to really have it, and slow enough on some hosts to be silent long
    raise RuntimeError("nobody minded")


@disaster(Verdict.CRASH, r"^out of device memory: .*CUDA out of memory", on=ON_GPUS)
def device_out_of_memory() -> None:
    """A rank asks for twice the memory that its GPU has."""
    import torch

    whole = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
    torch.empty(2 * whole, dtype=torch.uint8, device="cuda")


# --- GPUs


@disaster(Verdict.CRASH, r"^illegal memory access: .*illegal memory access", on=ON_GPUS)
def illegal_memory_access() -> None:
    """A kernel of a rank reads from an address that its GPU does not have."""
    import torch

    # Compiled by the NVRTC that torch brings: neither a compiler nor headers are needed on the host.
    read = torch.cuda.jiterator._create_jit_fn(  # noqa: SLF001 - the one way to have a kernel of one's own in every version
        "template <typename T> T read_nowhere(T where) {"
        " return *reinterpret_cast<volatile T*>(static_cast<unsigned long long>(where)); }"
    )
    read(torch.full((32,), 4096.0, device="cuda"))
    torch.cuda.synchronize()


@disaster(Verdict.CRASH, r"^device-side assert: .*device-side assert triggered", on=ON_GPUS)
def device_side_assert() -> None:
    """A rank looks up a row that its table does not have."""
    import torch

    rows = torch.full((4,), 1_000_000, device="cuda")
    torch.zeros(8, 8, device="cuda")[rows]
    torch.cuda.synchronize()


@disaster(Verdict.FAIL, r"^NCCL error: .*(?:NCCL|DistBackendError)", on=ON_GPUS, victims=(0, 1))
def two_ranks_on_one_gpu() -> None:
    """Two ranks of a group bring the same GPU, which NCCL refuses."""
    import torch
    import torch.distributed as dist

    group = dist.new_group()
    with torch.cuda.device(0):
        dist.all_reduce(torch.ones(4, device="cuda:0"), group=group)
        torch.cuda.synchronize(0)
