"""The comparison of CPU results with GPU results, as stored values. Results of different machines stay apart."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from cases.space.verdict import Verdict
from matrix.run.outcome import Stored


class Nearness(StrEnum):
    """The nearness of a set on the CPU to one on GPUs, the nearest first. Builds of torch count as one version."""

    LOCK = "the same lock"
    PINS = "the same six versions"
    TORCH = "the same versions but torch"


class DifferenceKind(StrEnum):
    """The kinds of difference between the results of a case."""

    GPU = "red only on GPUs"
    CPU = "red only on the CPU"
    BOTH = "red on both, in different ways"

    @property
    def heading(self) -> str:
        return self[0].upper() + self[1:]


class DeviceResult(Stored):
    """The result of a case on one kind of device. ``cause`` is a signature id or ``unexplained``; empty if green."""

    verdict: Verdict
    cause: str = ""
    hardware: str


class ComparedCells(Stored):
    """Two cells that differ, by their sets, with the headlines of red ones."""

    cpu: str
    gpu: str
    cpu_said: str = ""
    gpu_said: str = ""
    same_code: bool = Field(default=False, description="the case code had the same digest on both")
    flaky: bool = Field(default=False, description="repeats of one of the two cells disagree")


class Difference(Stored):
    """A case with one kind of difference, and all sets on which it differs.

    If the other kind of device shows the same result with other versions, the versions may be the reason.
    """

    case: str
    kind: DifferenceKind
    near: Nearness
    cpu: DeviceResult
    gpu: DeviceResult
    sets: tuple[ComparedCells, ...]
    cpu_too: tuple[str, ...] = Field(default=(), description="sets on which the CPU shows the GPUs' result")
    gpu_too: tuple[str, ...] = Field(default=(), description="sets on which GPUs show the CPU's result")
    torch_too: bool = Field(
        default=False, description="results of other sets suggest torch as the reason instead of the device"
    )


class ComparedSets(Stored):
    """Two sets on two machines: how near they are, and the counts of their cases.

    ``differs`` has the versions that differ, on the CPU and on GPUs. Cases that were skipped, blocked or lost on a
    device are counted by where they ran, and not compared.
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
    """Every cell on GPUs, compared with the nearest one on the CPU."""

    pairs: tuple[ComparedSets, ...] = ()
    differences: tuple[Difference, ...] = ()
    alone: int = Field(default=0, description="cells on GPUs whose case has no comparable set on the CPU")

    def total(self, count: str, near: Nearness | None = None) -> int:
        """Return the sum of a count over all pairs of sets, or over those of one nearness."""
        return sum(getattr(pair, count) for pair in self.pairs if near in {None, pair.near})

    def cells(self, kind: DifferenceKind) -> int:
        """Count the pairs of cells with this kind of difference."""
        return sum(len(each.sets) for each in self.of(kind))

    @property
    def of_torch(self) -> int:
        """The number of pairs of cells whose difference may come from torch."""
        return sum(len(each.sets) for each in self.differences if each.torch_too)

    def of(self, kind: DifferenceKind) -> tuple[Difference, ...]:
        return tuple(each for each in self.differences if each.kind is kind)
