"""Runs the base side of ``ftmatrix pr`` in the cache, where comparisons of other changes find its outcomes again."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from matrix.environments import leases
from matrix.environments.environment import cache_folder, lease_path
from matrix.evidence import Evidence
from matrix.keys import CellKey, EnvironmentKey
from matrix.run import machine, request, store
from matrix.run.pipeline import LOCKS
from matrix.run.store import Store
from matrix.versions import locks, uv
from matrix.versions.locks import Lock

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matrix.replacements.replaced_sets import ReplacedSets
    from matrix.run.outcome import Outcome
    from matrix.run.request import RunRequest
    from matrix.run.timings import Work
    from reports.commands.runs.pr_request import PrRequest, SetOfBothSides

FOLDER: Final = "pr"  # of the cache, with the runs of base sides


def run_base(
    every: Sequence[SetOfBothSides], run_request: RunRequest, wish: PrRequest, target: Path, replaced: ReplacedSets
) -> Path:
    """Run the base side in the cache, where later comparisons find it, and copy the cells of this one."""
    source = base_runs(run_request)
    plain = replace(run_request, replacements=(), resolved=None)
    with leases.held_exclusively(lease_path(source)):  # a comparison of another change waits, and then has these cells
        measure(source, [(each.original, each.cases) for each in every], plain, wish)
        copy_cells(source, target, every, run_request, replaced)
    return target


def base_runs(run_request: RunRequest) -> Path:
    """The directory of the cache with the base sides of a device and a build of torch."""
    build = run_request.backend(uv.on_this_machine(cache_folder())).name
    return cache_folder() / FOLDER / f"{run_request.resolved_device}-{build}"


def base_outcomes(
    source: Path, every: Sequence[SetOfBothSides], run_request: RunRequest, replaced: ReplacedSets
) -> dict[str, Outcome]:
    """The last outcome of each cell of the base side, of the present locks, case code and hardware."""
    if not (source / store.RUN).exists():
        return {}
    digests = {each.original.key: digest(replaced.original_lock(each.original)) for each in every}
    hardware = machine.hardware(run_request.resolved_device)
    return {
        each.cell: each
        for each in store.read(source)[2]
        if each.hardware == hardware
        and run_request.suite.is_current(each)
        and EnvironmentKey.parse(each.lock).lock in {"", digests.get(each.set)}
    }


def copy_cells(
    source: Path, target: Path, every: Sequence[SetOfBothSides], run_request: RunRequest, replaced: ReplacedSets
) -> None:
    """Copy the last outcome of each cell, with its logs and the lock of its set."""
    record, sets, _ = store.read(source)
    last = base_outcomes(source, every, run_request, replaced)
    cells = [str(CellKey(each.original.key, case.id)) for each in every for case in each.cases]
    shutil.rmtree(target, ignore_errors=True)
    copy = Store.create(target, record.model_copy(update={"planned": tuple(cells)}))
    try:
        for column in sets:
            if any(column.key == each.original.key for each in every):
                copy.note(column)
        for cell in cells:
            if cell in last:
                copy.append(last[cell])
                if (source / "logs" / cell).is_dir():
                    shutil.copytree(source / "logs" / cell, target / "logs" / cell)
    finally:
        copy.close()
    for each in every:
        lock = replaced.original_lock(each.original)
        if not isinstance(lock, Evidence):
            locks.write(lock, folder=target / LOCKS)


def digest(lock: Lock | Evidence) -> str:
    return lock.digest if isinstance(lock, Lock) else ""


def measure(directory: Path, work: Work, run_request: RunRequest, wish: PrRequest) -> None:
    """Run the cells of one side that its directory lacks."""
    planned = sum(len(cases) for _, cases in work)
    request.run(
        replace(run_request, out=directory, resume=(directory / store.RUN).exists()),
        work=work,
        watcher=wish.watcher(planned),
        say=wish.say,
    )
