"""Names the hardware and the build of torch that evidence was measured on."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from cases.space.verdict import RED
from reports.results.wording import device_words

if TYPE_CHECKING:
    from collections.abc import Iterable

    from matrix.run.outcome import Outcome
    from reports.results.grid import Grid

CPU = "cpu"


class EvidencePlace(NamedTuple):
    """The device of a cell, its hardware (``NVIDIA H200 x 2``) and its build of torch."""

    device: str
    hardware: str
    torch: str

    def __str__(self) -> str:
        return ", ".join(filter(None, (device_words(self.device), self.hardware, self.torch and f"torch {self.torch}")))


def places_of(outcomes: Iterable[Outcome], matrix: Grid) -> tuple[EvidencePlace, ...]:
    """Return the different places of some cells, in their order."""
    unique = {(each.set, each.hardware): each for each in outcomes}
    return tuple(dict.fromkeys(place_of(each, matrix) for each in unique.values()))


def place_of(outcome: Outcome, matrix: Grid) -> EvidencePlace:
    device, _, hardware = outcome.hardware.partition(": ")
    return EvidencePlace(device, hardware, torch_build(outcome, matrix))


def torch_build(outcome: Outcome, matrix: Grid) -> str:
    """Return the build of torch of a cell. Loaded results keep it in red cells, so another cell of the set has it."""
    red = (cell for cell, verdict in matrix.verdicts.items() if cell[1] == outcome.set and verdict in RED)
    same_lock = (each for each in map(matrix.cells.__getitem__, red) if each.lock == outcome.lock)
    builds = (each.facts.get("torch_build") for each in chain((outcome,), same_lock))
    pins = (column.pins["torch"] for column in matrix.sets if column.key == outcome.set)
    return str(next(filter(None, builds), None) or next(pins, ""))


def on_words(hardware: str) -> str:
    """Return ``on a CPU``, or the GPUs."""
    device, _, model = hardware.partition(": ")
    return "on a CPU" if device == CPU else f"on {model or hardware}" if hardware else ""
