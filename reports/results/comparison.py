"""What a comparison of a CPU with GPUs says, as a value. Results of several machines are told apart in it."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from cases.space.verdict import Verdict
from matrix.run.outcome import Stored


class Nearness(StrEnum):
    """How near the set on the CPU is to the one on GPUs, the nearest first. A build of torch is no other version."""

    LOCK = "the same lock"
    PINS = "the same six versions"
    TORCH = "the same versions but torch"


class DifferenceKind(StrEnum):
    """In what way a case differs."""

    GPU = "red only on GPUs"
    CPU = "red only on the CPU"
    BOTH = "red on both, in different ways"

    @property
    def heading(self) -> str:
        return self[0].upper() + self[1:]


class DeviceResult(Stored):
    """What a case showed on one kind of device. ``cause`` is a signature or unexplained; empty where it is green."""

    verdict: Verdict
    cause: str = ""
    hardware: str


class ComparedCells(Stored):
    """A pair of cells that differ, by their sets, and what each said if it is red."""

    cpu: str
    gpu: str
    cpu_said: str = ""
    gpu_said: str = ""
    same_code: bool = Field(default=False, description="the case code had the same digest on both")
    flaky: bool = Field(default=False, description="repeats of one of the two cells disagree")


class Difference(Stored):
    """A case that differs in one way, on all sets on which it does.

    What the other kind of device shows too, with other versions, may be the versions' doing.
    """

    case: str
    kind: DifferenceKind
    near: Nearness
    cpu: DeviceResult
    gpu: DeviceResult
    sets: tuple[ComparedCells, ...]
    cpu_too: tuple[str, ...] = Field(default=(), description="sets on which the CPU shows what GPUs show here")
    gpu_too: tuple[str, ...] = Field(default=(), description="sets on which GPUs show what the CPU shows here")
    torch_too: bool = Field(default=False, description="other sets speak for torch as the reason, and not the device")


class ComparedSets(Stored):
    """Two sets that were compared, on two machines: how near they are, and how many cases did what.

    ``differs`` are the versions that are not the same, on the CPU and on GPUs. A cell that was skipped, blocked or lost
    shows nothing: such cases are counted by where they ran to a verdict, and not compared.
    """

    cpu: str
    gpu: str
    near: Nearness
    differs: dict[str, tuple[str, str]] = Field(default_factory=dict)
    cpu_lock: str = ""
    gpu_lock: str = ""
    cpu_hardware: str
    gpu_hardware: str
    compared: int = Field(default=0, description="cases that ran to a verdict on both")
    alike: int = 0
    red_on_gpu: int = 0
    red_on_cpu: int = 0
    red_on_both: int = Field(default=0, description="red on both, in different ways")
    same_code: int = Field(default=0, description="of those compared, with the same digest of the case code on both")
    ran_on_gpu: int = Field(default=0, description="ran to a verdict on GPUs only")
    ran_on_cpu: int = Field(default=0, description="ran to a verdict on the CPU only")
    ran_on_neither: int = 0


class Comparison(Stored):
    """Every cell on GPUs beside the nearest on the CPU."""

    pairs: tuple[ComparedSets, ...] = ()
    differences: tuple[Difference, ...] = ()
    alone: int = Field(default=0, description="cells on GPUs whose case the CPU has on no set that is near")

    def total(self, count: str, near: Nearness | None = None) -> int:
        """A count of all pairs of sets together, or of those that are so near."""
        return sum(getattr(pair, count) for pair in self.pairs if near in {None, pair.near})

    def cells(self, kind: DifferenceKind) -> int:
        """How many pairs of cells differ so."""
        return sum(len(each.sets) for each in self.of(kind))

    @property
    def of_torch(self) -> int:
        """How many pairs of cells differ as two releases of torch may."""
        return sum(len(each.sets) for each in self.differences if each.torch_too)

    def of(self, kind: DifferenceKind) -> tuple[Difference, ...]:
        return tuple(each for each in self.differences if each.kind is kind)
