"""The comparison of CPU and GPU cells on data frames: one row per cell, then one row per pair of cells.

Columns of a pair have the suffix ``_cpu`` or ``_gpu``.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, cast

import pandas as pd

from cases.space.verdict import RED, Verdict
from reports.answers.devices.nearness import differs, nearby, torch_release
from reports.answers.diagnosis.diagnose import UNEXPLAINED, diagnose, symptom
from reports.results.comparison import ComparedCells, ComparedSets, DeviceResult, Difference, DifferenceKind, Nearness
from reports.results.wording import gist, headline

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from matrix.run.outcome import Outcome, SetRecord
    from reports.results.grid import Grid

    SetsByResult = dict[tuple[str, Verdict, str], tuple[str, ...]]

RAN: Final = RED | {Verdict.PASS}
RESULT: Final = ("verdict", "failure")  # cells with equal values behave alike
SUFFIXES: Final = "_cpu", "_gpu"
CELL_COLUMNS: Final = (
    *("case", "set", "row", "column", "torch", "outcome", "verdict", "hardware"),
    *("ran", "red", "flaky", "cause", "gist", "failure"),
)


def cells(grid: Grid) -> pd.DataFrame:
    """Return one row per cell that was run: set by set, oldest first.

    ``cause`` is the id of the best signature. ``failure`` is what cells with the same failure share: the cause, or the
    gist of the message if no signature explains it. Both are empty for a cell that is not red.
    """
    keys = {column.key: (place, column) for place, column in enumerate(grid.sets)}
    rows = {case: place for place, case in enumerate(grid.cases)}
    table = pd.DataFrame(
        [cell_row(outcome, rows[outcome.case], *keys[outcome.set], grid) for outcome in grid.outcomes],
        columns=list(CELL_COLUMNS),
    )
    typed = table.astype(dict.fromkeys(("ran", "red", "flaky"), bool))  # an empty column has no type of its own
    return typed.sort_values(["column", "row"], kind="stable", ignore_index=True)


def cell_row(outcome: Outcome, row: int, place: int, column: SetRecord, grid: Grid) -> tuple[object, ...]:
    cause, shared = cause_of(outcome, column), gist(outcome)
    failure = shared if cause == UNEXPLAINED else cause
    return (
        *(outcome.case, outcome.set, row, place, torch_release(column), outcome, outcome.verdict, outcome.hardware),
        *(outcome.verdict in RAN, outcome.verdict in RED, (outcome.case, outcome.set) in grid.flaky),
        *(cause, shared, failure),
    )


def cause_of(outcome: Outcome, column: SetRecord) -> str:
    """Return the id of the best signature; empty for a cell that is not red."""
    if outcome.verdict not in RED:
        return ""
    diagnoses = diagnose(symptom(outcome, column.pins))
    return diagnoses[0].signature.id if diagnoses else UNEXPLAINED


def near_sets(cpu: Iterable[SetRecord], gpu: Iterable[SetRecord]) -> pd.DataFrame:
    """Return a row for every CPU set near a GPU set, nearest first: ``set_gpu``, ``set_cpu``, ``near``, ``rank``."""
    columns = tuple(cpu)
    rows = [
        (column.key, other.key, nearness, rank)
        for column in gpu
        for rank, (nearness, other) in enumerate(nearby(columns, column))
    ]
    return pd.DataFrame(rows, columns=["set_gpu", "set_cpu", "near", "rank"])


def paired(cpu: pd.DataFrame, gpu: pd.DataFrame, near: pd.DataFrame) -> pd.DataFrame:
    """Pair every GPU cell with the CPU cell of its case on the nearest set that has one; ``kind`` is the difference."""
    ours, theirs = cpu.add_suffix("_cpu"), gpu.add_suffix("_gpu")
    joined = theirs.merge(near, on="set_gpu").merge(
        ours, left_on=["case_gpu", "set_cpu"], right_on=["case_cpu", "set_cpu"]
    )
    nearest = joined.sort_values("rank", kind="stable").drop_duplicates(["case_gpu", "set_gpu"])
    pairs = nearest.sort_values(["column_gpu", "row_gpu"], kind="stable", ignore_index=True)
    return pairs.assign(compared=pairs.ran_cpu & pairs.ran_gpu, same_code=same_code(pairs)).pipe(with_kinds)


def same_code(pairs: pd.DataFrame) -> list[bool]:
    outcomes = zip(pairs.outcome_cpu, pairs.outcome_gpu, strict=True)
    return [bool(cpu.code) and cpu.has_same_code(gpu) for cpu, gpu in outcomes]


def with_kinds(pairs: pd.DataFrame) -> pd.DataFrame:
    """Add ``kind``, the kind of difference; None if the cells are alike or were not compared."""
    same = (pairs.verdict_cpu == pairs.verdict_gpu) & (pairs.failure_cpu == pairs.failure_gpu)
    kind = pd.Series(None, index=pairs.index, dtype=object)
    kind[pairs.compared & pairs.red_gpu & ~pairs.red_cpu] = DifferenceKind.GPU
    kind[pairs.compared & pairs.red_cpu & ~pairs.red_gpu] = DifferenceKind.CPU
    kind[pairs.red_cpu & pairs.red_gpu & ~same] = DifferenceKind.BOTH
    return pairs.assign(kind=kind)


def compared_sets(pairs: pd.DataFrame, cpu: Iterable[SetRecord], gpu: Iterable[SetRecord]) -> Iterator[ComparedSets]:
    """Yield the counts of each pair of sets and machines, the nearest first."""
    ours, theirs = ({column.key: column for column in columns} for columns in (cpu, gpu))
    by = ["set_cpu", "set_gpu", "hardware_cpu", "hardware_gpu"]
    groups = (group for _, group in pairs.groupby(by, sort=False))
    counted = [compared_pair(each, ours[each.set_cpu.iloc[0]], theirs[each.set_gpu.iloc[0]]) for each in groups]
    yield from sorted(counted, key=lambda each: list(Nearness).index(each.near))


def compared_pair(pairs: pd.DataFrame, cpu: SetRecord, gpu: SetRecord) -> ComparedSets:
    first = pairs.iloc[0]
    compared = pairs[pairs.compared]
    kinds = Counter(compared.kind.dropna())
    return ComparedSets(
        cpu=cpu.key,
        gpu=gpu.key,
        near=first.near,
        differs=dict(differs(cpu, gpu)),
        cpu_lock=cpu.lock,
        gpu_lock=gpu.lock,
        cpu_hardware=first.hardware_cpu,
        gpu_hardware=first.hardware_gpu,
        compared=len(compared),
        alike=int(compared.kind.isna().sum()),
        red_on_gpu=kinds[DifferenceKind.GPU],
        red_on_cpu=kinds[DifferenceKind.CPU],
        red_on_both=kinds[DifferenceKind.BOTH],
        same_code=int(compared.same_code.sum()),
        ran_on_gpu=int((pairs.ran_gpu & ~pairs.ran_cpu).sum()),
        ran_on_cpu=int((pairs.ran_cpu & ~pairs.ran_gpu).sum()),
        ran_on_neither=int((~pairs.ran_cpu & ~pairs.ran_gpu).sum()),
    )


def differences(pairs: pd.DataFrame, cpu: pd.DataFrame, gpu: pd.DataFrame) -> Iterator[Difference]:
    """Yield each difference of a case once: by kind, nearest sets first, then those that no other versions show."""
    differing = pairs[pairs.kind.notna()]
    differing = differing.assign(torch_too=may_be_torch(differing, cpu, gpu))
    sides = [f"{name}{suffix}" for name in ("verdict", "hardware", "cause", "gist") for suffix in SUFFIXES]
    on_cpu, on_gpu = sets_by_result(cpu), sets_by_result(gpu)
    groups = (group for _, group in differing.groupby(["case_gpu", "near", *sides], sort=False))
    listed = [difference(each, on_cpu, on_gpu) for each in groups]
    yield from sorted(listed, key=order)


def sets_by_result(matrix: pd.DataFrame) -> SetsByResult:
    return cast("SetsByResult", matrix.groupby(["case", *RESULT])["set"].agg(tuple).to_dict())


def order(each: Difference) -> tuple[int, int, bool, str]:
    return (
        list(DifferenceKind).index(each.kind),
        list(Nearness).index(each.near),
        bool(each.cpu_too or each.gpu_too),
        each.case,
    )


def difference(pairs: pd.DataFrame, on_cpu: SetsByResult, on_gpu: SetsByResult) -> Difference:
    first = pairs.iloc[0]
    case = first.case_gpu
    return Difference(
        case=case,
        kind=first.kind,
        near=first.near,
        cpu=DeviceResult(verdict=first.verdict_cpu, cause=first.cause_cpu, hardware=first.hardware_cpu),
        gpu=DeviceResult(verdict=first.verdict_gpu, cause=first.cause_gpu, hardware=first.hardware_gpu),
        sets=tuple(map(compared_cells, pairs.itertuples())),
        cpu_too=on_cpu.get((case, first.verdict_gpu, first.failure_gpu), ()),
        gpu_too=on_gpu.get((case, first.verdict_cpu, first.failure_cpu), ()),
        torch_too=bool(pairs.torch_too.all()),
    )


def compared_cells(pair: Any) -> ComparedCells:
    return ComparedCells(
        cpu=pair.set_cpu,
        gpu=pair.set_gpu,
        cpu_said=headline(pair.outcome_cpu) if pair.red_cpu else "",
        gpu_said=headline(pair.outcome_gpu) if pair.red_gpu else "",
        same_code=pair.same_code,
        flaky=pair.flaky_cpu or pair.flaky_gpu,
    )


def may_be_torch(pairs: pd.DataFrame, cpu: pd.DataFrame, gpu: pd.DataFrame) -> pd.Series[bool]:
    """Tell for each pair whether torch, and not the device, may be the reason why its cells differ.

    This needs another set of one device that behaves like the other device and whose torch lies in that direction. No
    set whose torch reaches or passes the other version may still behave like its own device.
    """
    near = pairs[pairs.near == Nearness.TORCH].rename_axis("pair").reset_index()
    votes = pd.concat([torch_votes(near, cpu, *SUFFIXES), torch_votes(near, gpu, *SUFFIXES[::-1])])
    return votes.groupby("pair")["vote"].all().reindex(pairs.index, fill_value=False)


def torch_votes(pairs: pd.DataFrame, matrix: pd.DataFrame, own: str, other: str) -> pd.DataFrame:
    """Return the votes of the sets of one device, whose columns have the suffix ``own``: ``pair`` and ``vote``.

    Sets vote whose torch lies between those of the pair or beyond the other one; True means that torch may be the
    reason.
    """
    sets = pairs.merge(matrix, left_on="case_gpu", right_on="case")
    start, end = sets[f"torch{own}"], sets[f"torch{other}"]
    rising = start < end
    left = (rising & (start < sets.torch)) | (~rising & (sets.torch < start))
    reached = (rising & (end <= sets.torch)) | (~rising & (sets.torch <= end))
    as_other, as_own = (
        pd.concat([sets[name] == sets[f"{name}{suffix}"] for name in RESULT], axis=1).all(axis=1)
        for suffix in (other, own)
    )
    return sets.assign(vote=as_other)[left & (as_other | (reached & as_own))][["pair", "vote"]]
