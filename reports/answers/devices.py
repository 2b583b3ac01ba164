"""Compares CPU and GPU results: the same case on both, on the nearest version sets. Each difference is a finding.

``devices.json`` stores the comparison; ``schema/devices.schema.json`` is its JSON Schema. The version sets of the two
devices often differ, so each pair states how near they are; results of different machines stay apart.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import Field
from pydantic.json_schema import GenerateJsonSchema

from cases.space.verdict import RED, Verdict
from matrix.keys import SetKey
from matrix.versions.sets import PACKAGES
from reports.answers import knowledge
from reports.answers.checkup.nearest_sets import public, without_build
from reports.answers.diagnosis.diagnose import UNEXPLAINED, diagnose, symptom
from reports.results.comparison import (
    ComparedCells,
    ComparedSets,
    Comparison,
    DeviceResult,
    Difference,
    DifferenceKind,
    Nearness,
)
from reports.results.wording import gist, headline

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from matrix.run.outcome import Outcome, SetRecord
    from reports.results.grid import Grid

    Shown = tuple[Outcome, str]  # and its cause

SCHEMA: Final = 1
SCHEMA_FILE: Final = Path(__file__).parents[1] / "schema" / "devices.schema.json"
PUBLISHED: Final = knowledge.PUBLISHED / "devices.json"
CPU, CUDA = "cpu", "cuda"
RAN: Final = RED | {Verdict.PASS}


class DevicesDocument(Comparison):
    """``devices.json``."""

    schema_: int = Field(alias="schema")


def json_schema() -> str:
    schema = DevicesDocument.model_json_schema(by_alias=True)
    return json.dumps({"$schema": GenerateJsonSchema.schema_dialect, **schema}, indent=2) + "\n"


def dumped(comparison: Comparison) -> str:
    """Return the comparison as JSON, without empty fields."""
    document = DevicesDocument(schema=SCHEMA, **{name: getattr(comparison, name) for name in Comparison.model_fields})
    return document.model_dump_json(by_alias=True, exclude_defaults=True, indent=1) + "\n"


@dataclass(frozen=True, kw_only=True)
class CellPair:
    """A cell on GPUs and the nearest one of its case on the CPU."""

    near: Nearness
    cpu: Outcome
    gpu: Outcome
    columns: tuple[SetRecord, SetRecord]
    flaky: bool

    @property
    def ran(self) -> tuple[bool, bool]:
        return self.cpu.verdict in RAN, self.gpu.verdict in RAN

    @property
    def is_compared(self) -> bool:
        return all(self.ran)

    @cached_property
    def causes(self) -> tuple[str, str]:
        return cause(self.cpu, self.columns[0]), cause(self.gpu, self.columns[1])

    @cached_property
    def gists(self) -> tuple[str, str]:
        return gist(self.cpu), gist(self.gpu)

    @cached_property
    def kind(self) -> DifferenceKind | None:
        """The kind of difference; None if the cells are alike or were not compared."""
        red = self.cpu.verdict in RED, self.gpu.verdict in RED
        if not self.is_compared or not any(red):
            return None
        if not all(red):
            return DifferenceKind.GPU if red[1] else DifferenceKind.CPU
        if self.cpu.verdict is self.gpu.verdict and is_alike(*self.causes, self.cpu, self.gpu):
            return None
        return DifferenceKind.BOTH

    @property
    def same_code(self) -> bool:
        return bool(self.cpu.code) and self.cpu.has_same_code(self.gpu)


def compare(cpu: Grid, gpu: Grid) -> Comparison:
    paired = tuple(cell_pairs(cpu, gpu))
    return Comparison(
        pairs=tuple(compared_sets(paired)),
        differences=tuple(differences(paired, cpu, gpu)),
        alone=len(gpu.outcomes) - len(paired),
    )


def everything(grids: Mapping[str, Grid]) -> Comparison:
    """Compare grids by device; the result is empty if one of the two is missing."""
    return compare(grids[CPU], grids[CUDA]) if {CPU, CUDA} <= grids.keys() else Comparison()


def of_run(device: str, matrix: Grid, others: Mapping[str, Grid]) -> Comparison:
    """Compare a run with the results of the other kind of device, leaving out other results of its own."""
    return everything({**others, device: matrix})


def cell_pairs(cpu: Grid, gpu: Grid) -> Iterator[CellPair]:
    """Yield every GPU cell that has a counterpart on the CPU, set by set, oldest first."""
    for column in gpu.sets:
        nearest = tuple(nearby(cpu.sets, column))
        for case in gpu.cases:
            outcome = gpu.lookup(case, column.key)
            counterpart = next(((near, other) for near, other in nearest if cpu.lookup(case, other.key)), None)
            if outcome is None or counterpart is None:
                continue
            near, other = counterpart
            yield CellPair(
                near=near,
                cpu=cpu.cells[case, other.key],
                gpu=outcome,
                columns=(other, column),
                flaky=(case, other.key) in cpu.flaky or (case, column.key) in gpu.flaky,
            )


def nearby(columns: Iterable[SetRecord], gpu: SetRecord) -> Iterator[tuple[Nearness, SetRecord]]:
    """Yield the CPU sets near a GPU set, nearest first; sets that differ in torch are ordered by its release."""
    pairs = ((near(column, gpu), column) for column in columns)

    def distance(each: tuple[Nearness, SetRecord]) -> tuple[object, ...]:
        nearness, column = each
        is_other_set = str(SetKey.parse(gpu.key).without("torch")) != column.key
        return list(Nearness).index(nearness), torch_distance(column, gpu), is_other_set, column.key

    yield from sorted(((nearness, column) for nearness, column in pairs if nearness is not None), key=distance)


def near(cpu: SetRecord, gpu: SetRecord) -> Nearness | None:
    """Return how near two sets are; None if they differ in more than torch."""
    if cpu.lock and cpu.lock == gpu.lock:
        return Nearness.LOCK
    moved = {name for name in PACKAGES if release(cpu, name) != release(gpu, name)}
    if not moved:
        return Nearness.PINS
    return Nearness.TORCH if moved == {"torch"} else None


def release(column: SetRecord, name: str) -> str:
    return without_build(column.pins.get(name, ""))


def torch_distance(cpu: SetRecord, gpu: SetRecord) -> tuple[int, ...]:
    """Return the difference of the two releases of torch, per part of the version."""
    one, other = (public(release(column, "torch")) for column in (cpu, gpu))
    return tuple(abs(a - b) for a, b in zip(three_parts(one.release), three_parts(other.release), strict=True))


def three_parts(numbers: Sequence[int]) -> tuple[int, int, int]:
    major, minor, micro = (*numbers, 0, 0, 0)[:3]
    return major, minor, micro


def cause(outcome: Outcome, column: SetRecord) -> str:
    """Return the id of the best signature; empty for a cell that is not red."""
    if outcome.verdict not in RED:
        return ""
    diagnoses = diagnose(symptom(outcome, column.pins))
    return diagnoses[0].signature.id if diagnoses else UNEXPLAINED


def compared_sets(paired: Iterable[CellPair]) -> Iterator[ComparedSets]:
    """Yield the counts of each pair of sets and machines, the nearest first."""
    together: dict[tuple[str, ...], list[CellPair]] = {}
    for each in paired:
        key = each.columns[0].key, each.columns[1].key, each.cpu.hardware, each.gpu.hardware
        together.setdefault(key, []).append(each)
    counts = (compared_pair(each) for each in together.values())
    yield from sorted(counts, key=lambda each: list(Nearness).index(each.near))


def compared_pair(paired: Sequence[CellPair]) -> ComparedSets:
    cpu, gpu = paired[0].columns
    kinds = Counter(each.kind for each in paired if each.is_compared)
    ran = Counter(each.ran for each in paired)
    return ComparedSets(
        cpu=cpu.key,
        gpu=gpu.key,
        near=paired[0].near,
        differs=dict(differs(cpu, gpu)),
        cpu_lock=cpu.lock,
        gpu_lock=gpu.lock,
        cpu_hardware=paired[0].cpu.hardware,
        gpu_hardware=paired[0].gpu.hardware,
        compared=ran[True, True],
        alike=kinds[None],
        red_on_gpu=kinds[DifferenceKind.GPU],
        red_on_cpu=kinds[DifferenceKind.CPU],
        red_on_both=kinds[DifferenceKind.BOTH],
        same_code=sum(each.same_code for each in paired if each.is_compared),
        ran_on_gpu=ran[False, True],
        ran_on_cpu=ran[True, False],
        ran_on_neither=ran[False, False],
    )


def differs(cpu: SetRecord, gpu: SetRecord) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the differing versions of Python and the six packages, and the build of torch if its version is equal."""
    one, other = ({**column.pins, "Python": column.python} for column in (cpu, gpu))
    if one.get("torch") == other.get("torch"):
        one, other = ({**each, "build of torch": column.torch_backend} for each, column in ((one, cpu), (other, gpu)))
    yield from ((name, (one[name], other.get(name, ""))) for name in one if one[name] != other.get(name, ""))


def differences(paired: Iterable[CellPair], cpu: Grid, gpu: Grid) -> Iterator[Difference]:
    """Yield each difference of a case once: by kind, nearest sets first, then those that no other versions show."""
    alike: dict[tuple[object, ...], list[CellPair]] = {}
    for each in paired:
        if each.kind is not None:
            sides = ((side.verdict, side.hardware) for side in (each.cpu, each.gpu))
            alike.setdefault((each.gpu.case, each.near, *sides, *each.causes, *each.gists), []).append(each)
    yield from sorted((difference(each, cpu, gpu) for each in alike.values()), key=order)


def order(each: Difference) -> tuple[int, int, bool, str]:
    return (
        list(DifferenceKind).index(each.kind),
        list(Nearness).index(each.near),
        bool(each.cpu_too or each.gpu_too),
        each.case,
    )


def difference(paired: Sequence[CellPair], cpu: Grid, gpu: Grid) -> Difference:
    first = paired[0]
    return Difference(
        case=first.gpu.case,
        kind=DifferenceKind(str(first.kind)),
        near=first.near,
        cpu=DeviceResult(verdict=first.cpu.verdict, cause=first.causes[0], hardware=first.cpu.hardware),
        gpu=DeviceResult(verdict=first.gpu.verdict, cause=first.causes[1], hardware=first.gpu.hardware),
        sets=tuple(map(compared_cells, paired)),
        cpu_too=tuple(showing(first.gpu, first.causes[1], cpu)),
        gpu_too=tuple(showing(first.cpu, first.causes[0], gpu)),
        torch_too=all(may_be_torch(each, cpu, gpu) for each in paired),
    )


def may_be_torch(pair: CellPair, cpu: Grid, gpu: Grid) -> bool:
    """Tell if torch, and not the device, may be the reason why two cells differ.

    This needs another set of one device that behaves like the other device and whose torch lies in that direction. No
    set whose torch reaches or passes the other version may still behave like its own device.
    """
    if pair.near is not Nearness.TORCH:
        return False
    on_cpu, on_gpu = zip((pair.cpu, pair.gpu), pair.causes, strict=True)
    one, other = pair.columns
    votes = [*torch_votes(on_cpu, on_gpu, one, other, cpu), *torch_votes(on_gpu, on_cpu, other, one, gpu)]
    return bool(votes) and all(votes)


def torch_votes(own: Shown, other: Shown, start: SetRecord, end: SetRecord, matrix: Grid) -> Iterator[bool]:
    """Yield, for sets from the torch of one pair member to the other and beyond, True if torch may be the reason."""
    first, last = (public(release(each, "torch")) for each in (start, end))
    for column in matrix.sets:
        outcome = matrix.lookup(own[0].case, column.key)
        torch = public(release(column, "torch"))
        left, reached = (first < torch, last <= torch) if first < last else (torch < first, torch <= last)
        if outcome is None or not left:
            continue
        if is_same(outcome, column, other):
            yield True
        elif reached and is_same(outcome, column, own):
            yield False


def showing(shown: Outcome, why: str, other: Grid) -> Iterator[str]:
    """Yield the sets on which the other kind of device has the same verdict for the same cause."""
    for column in other.sets:
        outcome = other.lookup(shown.case, column.key)
        if outcome is not None and is_same(outcome, column, (shown, why)):
            yield column.key


def is_same(candidate: Outcome, column: SetRecord, shown: Shown) -> bool:
    """Tell if a cell has the verdict and the cause of another."""
    outcome, why = shown
    return candidate.verdict is outcome.verdict and is_alike(cause(candidate, column), why, candidate, outcome)


def is_alike(one: str, other: str, first: Outcome, second: Outcome) -> bool:
    """Tell if two causes are the same; unexplained failures are compared by the gist of their messages."""
    return one == other and (one != UNEXPLAINED or gist(first) == gist(second))


def compared_cells(pair: CellPair) -> ComparedCells:
    return ComparedCells(
        cpu=pair.cpu.set,
        gpu=pair.gpu.set,
        cpu_said=headline(pair.cpu) if pair.cpu.verdict in RED else "",
        gpu_said=headline(pair.gpu) if pair.gpu.verdict in RED else "",
        same_code=pair.same_code,
        flaky=pair.flaky,
    )
