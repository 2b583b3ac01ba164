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


def dumped(found: Comparison) -> str:
    """Without what is empty."""
    document = DevicesDocument(schema=SCHEMA, **{name: getattr(found, name) for name in Comparison.model_fields})
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
        """None if they are alike, or not compared."""
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
    met = tuple(meetings(cpu, gpu))
    return Comparison(
        pairs=tuple(pairs(met)),
        differences=tuple(differences(met, cpu, gpu)),
        alone=len(gpu.outcomes) - len(met),
    )


def everything(grids: Mapping[str, Grid]) -> Comparison:
    """Of grids by device; nothing, where one of the two is unknown."""
    return compare(grids[CPU], grids[CUDA]) if {CPU, CUDA} <= grids.keys() else Comparison()


def of_run(device: str, matrix: Grid, others: Mapping[str, Grid]) -> Comparison:
    """A run beside what is known of the other kind of device; what else is known of its own says nothing of it."""
    return everything({**others, device: matrix})


def meetings(cpu: Grid, gpu: Grid) -> Iterator[CellPair]:
    """Every cell on GPUs that has one on the CPU, set by set, oldest first."""
    for column in gpu.sets:
        nearest = tuple(nearby(cpu.sets, column))
        for case in gpu.cases:
            here = gpu.lookup(case, column.key)
            there = next(((near, other) for near, other in nearest if cpu.lookup(case, other.key)), None)
            if here is None or there is None:
                continue
            near, other = there
            yield CellPair(
                near=near,
                cpu=cpu.cells[case, other.key],
                gpu=here,
                columns=(other, column),
                flaky=(case, other.key) in cpu.flaky or (case, column.key) in gpu.flaky,
            )


def nearby(columns: Iterable[SetRecord], gpu: SetRecord) -> Iterator[tuple[Nearness, SetRecord]]:
    """The sets of the CPU that are near, the nearest first; of those that differ in torch, the nearest release."""
    found = ((near(column, gpu), column) for column in columns)

    def far(each: tuple[Nearness, SetRecord]) -> tuple[object, ...]:
        how, column = each
        is_other_set = str(SetKey.parse(gpu.key).without("torch")) != column.key
        return list(Nearness).index(how), away(column, gpu), is_other_set, column.key

    yield from sorted(((how, column) for how, column in found if how is not None), key=far)


def near(cpu: SetRecord, gpu: SetRecord) -> Nearness | None:
    """How near two sets are; None if they are not."""
    if cpu.lock and cpu.lock == gpu.lock:
        return Nearness.LOCK
    moved = {name for name in PACKAGES if release(cpu, name) != release(gpu, name)}
    if not moved:
        return Nearness.PINS
    return Nearness.TORCH if moved == {"torch"} else None


def release(column: SetRecord, name: str) -> str:
    return without_build(column.pins.get(name, ""))


def away(cpu: SetRecord, gpu: SetRecord) -> tuple[int, ...]:
    """From one release of torch to the other, in the parts of its number."""
    one, other = (public(release(column, "torch")) for column in (cpu, gpu))
    return tuple(abs(a - b) for a, b in zip(parts(one.release), parts(other.release), strict=True))


def parts(numbers: Sequence[int]) -> tuple[int, int, int]:
    major, minor, micro = (*numbers, 0, 0, 0)[:3]
    return major, minor, micro


def cause(outcome: Outcome, column: SetRecord) -> str:
    """The signature that fits best; empty for what is not red."""
    if outcome.verdict not in RED:
        return ""
    found = diagnose(symptom(outcome, column.pins))
    return found[0].signature.id if found else UNEXPLAINED


def pairs(met: Iterable[CellPair]) -> Iterator[ComparedSets]:
    """The counts of each two sets and machines, the nearest first."""
    together: dict[tuple[str, ...], list[CellPair]] = {}
    for each in met:
        key = each.columns[0].key, each.columns[1].key, each.cpu.hardware, each.gpu.hardware
        together.setdefault(key, []).append(each)
    made = (pair(each) for each in together.values())
    yield from sorted(made, key=lambda each: list(Nearness).index(each.near))


def pair(met: Sequence[CellPair]) -> ComparedSets:
    cpu, gpu = met[0].columns
    kinds = Counter(each.kind for each in met if each.is_compared)
    ran = Counter(each.ran for each in met)
    return ComparedSets(
        cpu=cpu.key,
        gpu=gpu.key,
        near=met[0].near,
        differs=dict(differs(cpu, gpu)),
        cpu_lock=cpu.lock,
        gpu_lock=gpu.lock,
        cpu_hardware=met[0].cpu.hardware,
        gpu_hardware=met[0].gpu.hardware,
        compared=ran[True, True],
        alike=kinds[None],
        red_on_gpu=kinds[DifferenceKind.GPU],
        red_on_cpu=kinds[DifferenceKind.CPU],
        red_on_both=kinds[DifferenceKind.BOTH],
        same_code=sum(each.same_code for each in met if each.is_compared),
        ran_on_gpu=ran[False, True],
        ran_on_cpu=ran[True, False],
        ran_on_neither=ran[False, False],
    )


def differs(cpu: SetRecord, gpu: SetRecord) -> Iterator[tuple[str, tuple[str, str]]]:
    """Of Python and the six, what is not the same; where torch is, how it was built."""
    one, other = ({**column.pins, "Python": column.python} for column in (cpu, gpu))
    if one.get("torch") == other.get("torch"):
        one, other = ({**each, "build of torch": column.torch_backend} for each, column in ((one, cpu), (other, gpu)))
    yield from ((name, (one[name], other.get(name, ""))) for name in one if one[name] != other.get(name, ""))


def differences(met: Iterable[CellPair], cpu: Grid, gpu: Grid) -> Iterator[Difference]:
    """Each way in which a case differs, once: by kind, the nearest sets first, then what no other versions show."""
    alike: dict[tuple[object, ...], list[CellPair]] = {}
    for each in met:
        if each.kind is not None:
            sides = ((side.verdict, side.hardware) for side in (each.cpu, each.gpu))
            alike.setdefault((each.gpu.case, each.near, *sides, *each.causes, *each.gists), []).append(each)
    yield from sorted((difference(each, cpu, gpu) for each in alike.values()), key=order)


def order(of: Difference) -> tuple[int, int, bool, str]:
    return list(DifferenceKind).index(of.kind), list(Nearness).index(of.near), bool(of.cpu_too or of.gpu_too), of.case


def difference(met: Sequence[CellPair], cpu: Grid, gpu: Grid) -> Difference:
    first = met[0]
    return Difference(
        case=first.gpu.case,
        kind=DifferenceKind(str(first.kind)),
        near=first.near,
        cpu=DeviceResult(verdict=first.cpu.verdict, cause=first.causes[0], hardware=first.cpu.hardware),
        gpu=DeviceResult(verdict=first.gpu.verdict, cause=first.causes[1], hardware=first.gpu.hardware),
        sets=tuple(map(on, met)),
        cpu_too=tuple(showing(first.gpu, first.causes[1], cpu)),
        gpu_too=tuple(showing(first.cpu, first.causes[0], gpu)),
        torch_too=all(of_torch(each, cpu, gpu) for each in met),
    )


def of_torch(met: CellPair, cpu: Grid, gpu: Grid) -> bool:
    """Whether torch, and not the device, may be why two cells differ.

    Then other sets of a device show what the other device does, as far as their torch lies towards its; and none whose
    torch is as far, or farther, still shows what its own device did.
    """
    if met.near is not Nearness.TORCH:
        return False
    here, there = zip((met.cpu, met.gpu), met.causes, strict=True)
    one, other = met.columns
    told = [*towards(here, there, one, other, cpu), *towards(there, here, other, one, gpu)]
    return bool(told) and all(told)


def towards(own: Shown, other: Shown, start: SetRecord, end: SetRecord, matrix: Grid) -> Iterator[bool]:
    """Of a device's sets, from the torch of one to that of the other and beyond: what speaks for torch, and against."""
    first, last = (public(release(each, "torch")) for each in (start, end))
    for column in matrix.sets:
        found = matrix.lookup(own[0].case, column.key)
        torch = public(release(column, "torch"))
        left, reached = (first < torch, last <= torch) if first < last else (torch < first, torch <= last)
        if found is None or not left:
            continue
        if is_same(found, column, other):
            yield True
        elif reached and is_same(found, column, own):
            yield False


def showing(shown: Outcome, why: str, other: Grid) -> Iterator[str]:
    """The sets on which another kind of device has the same verdict for the same cause."""
    for column in other.sets:
        found = other.lookup(shown.case, column.key)
        if found is not None and is_same(found, column, (shown, why)):
            yield column.key


def is_same(found: Outcome, column: SetRecord, shown: Shown) -> bool:
    """Whether a cell shows what another did, for the same cause."""
    outcome, why = shown
    return found.verdict is outcome.verdict and is_alike(cause(found, column), why, found, outcome)


def is_alike(one: str, other: str, first: Outcome, second: Outcome) -> bool:
    """Whether two causes are one; what is unexplained is alike if it says the same."""
    return one == other and (one != UNEXPLAINED or gist(first) == gist(second))


def on(met: CellPair) -> ComparedCells:
    return ComparedCells(
        cpu=met.cpu.set,
        gpu=met.gpu.set,
        cpu_said=headline(met.cpu) if met.cpu.verdict in RED else "",
        gpu_said=headline(met.gpu) if met.gpu.verdict in RED else "",
        same_code=met.same_code,
        flaky=met.flaky,
    )
