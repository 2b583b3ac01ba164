"""Runs the base side and the changed side of ``ftmatrix pr``, and compares them."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cases.space.plural import counted
from matrix.environments import leases
from matrix.environments.environment import cache_folder, lease_path
from matrix.errors import UserError
from matrix.evidence import Evidence
from matrix.keys import CellKey, EnvironmentKey
from matrix.run import machine, request, store, timings
from matrix.run.pipeline import LOCKS
from matrix.run.request import RUNS, RunRequest
from matrix.run.store import Store
from matrix.versions import locks, uv
from matrix.versions.locks import Lock
from reports.answers.diff import compare, sides
from reports.answers.diff.changes import ChangeKind
from reports.commands.runs import diff_repeats, pr_cells
from reports.results import document
from reports.results.loading import load

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from cases.space.case import Case
    from matrix.replacements.replaced_sets import ReplacedSets
    from matrix.run.outcome import Outcome, RunRecord
    from matrix.run.progress import Progress
    from matrix.run.timings import Work
    from matrix.versions.sets import VersionSet
    from reports.answers.diff.changes import ResultDiff
    from reports.commands.runs.pr_cells import ChosenCases

BASE, NEW = "base", "new"  # run directories inside the directory of the comparison
FOLDER: Final = "pr"  # of the cache, with the runs of base sides


@dataclass(frozen=True, kw_only=True)
class PrRequest:
    """The options of ``ftmatrix pr``.

    Attributes:
        run_request: the packages of ``--with``, the cases, the device and the build.
        base: sets to compare with, or the directory of a run or of published results of them.
        minutes: the time for all cells; None for no limit.
        repeats: further runs of each cell that became red or green, on the side where it is red.
        watcher: makes the progress for a number of cells.
        say: prints a line.
    """

    run_request: RunRequest
    base: str
    minutes: float | None = None
    repeats: int = 2
    watcher: Callable[[int], Progress]
    say: Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class SetOfBothSides:
    """A set, the same set with the packages of ``--with``, and the cases that run on both."""

    original: VersionSet
    replaced: VersionSet
    cases: tuple[Case, ...]


def compare_with_base(wish: PrRequest) -> tuple[ResultDiff, Path]:
    """Run what is missing on both sides; return the comparison and the directory with both runs.

    The same request continues an interrupted comparison: finished cells of both sides are kept.

    Raises:
        UserError: bad input, or no cell ran on both sides.
    """
    if wish.minutes is not None and wish.minutes <= 0:
        raise UserError(f"--minutes {wish.minutes}: expected a number above 0")
    stored = stored_base(wish.base)
    run_request = request_of_both(wish.run_request, stored, wish.base)
    run_request.check()
    every = sets_of_both(run_request, stored)
    replaced = run_request.replaced
    if replaced is None:
        raise UserError("nothing is changed; name a checkout, a git reference, a wheel or a release with --with")
    run_request = replace(run_request, resolved=replaced)
    replaced.check([each.replaced for each in every])
    known = None if stored is not None else base_outcomes(base_runs(run_request), every, run_request, replaced).keys()
    every, notes = chosen(every, run_request, replaced, wish, known=known)
    directory = run_request.out or RUNS / name(every, run_request.resolved_device)
    base = Path(wish.base) if stored is not None else run_base(every, run_request, wish, directory / BASE, replaced)
    new = directory / NEW
    measure(new, [(each.replaced, each.cases) for each in every], run_request, wish)
    diff = compared(base, new, every, notes)
    if wish.repeats:
        repeat_red(diff, {ChangeKind.REGRESSED: new} | ({} if stored else {ChangeKind.FIXED: base}), run_request, wish)
        diff = compared(base, new, every, notes)
    if all(each.kind is ChangeKind.UNKNOWN for each in diff.changes):
        reason = next((each.reason for each in diff.changes), "no cell was selected")
        raise UserError(f"no cell ran on both sides, so nothing is compared: {reason}")
    return diff, directory


def repeat_red(diff: ResultDiff, runs: Mapping[ChangeKind, Path], run_request: RunRequest, wish: PrRequest) -> None:
    """Repeat changed cells on the side where they are red, in the run of that side."""
    for kind, directory in runs.items():
        is_new = kind is ChangeKind.REGRESSED
        cells = {str(CellKey(each.new_set if is_new else each.base_set, each.case)) for each in diff.by_kind[kind]}
        if cells:
            options = run_request if is_new else replace(run_request, replacements=(), resolved=None)
            diff_repeats.repeat(
                directory, wish.repeats, watcher=wish.watcher, say=wish.say, options=options, cells=cells
            )


def stored_base(base: str) -> RunRecord | None:
    """The record of the run, or of the published results, that ``--base`` names; None if it names sets.

    Raises:
        UserError: it is a path without a run.
    """
    folder = Path(base)
    if (folder / store.RUN).exists() or document.locate(folder) is not None:
        return load(folder).record
    if "/" in base:
        raise UserError(f"--base {base}: no run is there; name the directory of a run, a set, or newest")
    return None


def request_of_both(run_request: RunRequest, stored: RunRecord | None, base: str) -> RunRequest:
    """The request of both sides: once each, on the device and with the build of a stored base.

    Raises:
        UserError: the stored base ran on another device or hardware.
    """
    run_request = replace(run_request, cold_sample=0, repeats=1)
    if stored is None:
        return replace(run_request, sets=base)
    if run_request.device not in {"auto", stored.device}:
        raise UserError(f"--base {base} ran on {stored.device}, not on {run_request.device}; leave --device out")
    here = machine.hardware(stored.device)
    if here != stored.hardware:
        raise UserError(
            f"--base {base} ran on {stored.hardware!r}, and this machine is {here!r}; name a set with --base instead"
        )
    build = stored.request.get("torch_backend", "auto") if run_request.torch_backend == "auto" else ""
    keys = ",".join(dict.fromkeys(CellKey.parse(cell).set for cell in stored.planned))
    return replace(run_request, sets=keys, device=stored.device, torch_backend=build or run_request.torch_backend)


def sets_of_both(run_request: RunRequest, stored: RunRecord | None) -> list[SetOfBothSides]:
    """The sets of both sides, with the selected cases that a stored base has.

    Raises:
        UserError: a set or case does not exist, or the stored base has none of the cases.
    """
    originals = replace(run_request, replacements=(), resolved=None).version_sets()
    changed = run_request.version_sets()
    cases = run_request.cases()
    known = None if stored is None else {CellKey.parse(cell) for cell in stored.planned}
    found = [
        SetOfBothSides(
            original=original,
            replaced=replaced,
            cases=tuple(case for case in cases if known is None or CellKey(original.key, case.id) in known),
        )
        for original, replaced in zip(originals, changed, strict=True)
    ]
    if not any(each.cases for each in found):
        raise UserError(f"--base {run_request.sets}: it has none of the selected cases; choose another --profile")
    return [each for each in found if each.cases]


def chosen(
    every: Sequence[SetOfBothSides],
    run_request: RunRequest,
    replaced: ReplacedSets,
    wish: PrRequest,
    *,
    known: Collection[str] | None,
) -> tuple[list[SetOfBothSides], tuple[str, ...]]:
    """The sets with the cases to run, and notes on what is left out.

    ``known`` are the cells whose base side has run; None stands for all.
    """
    cache, device = cache_folder(), run_request.resolved_device
    found: list[SetOfBothSides] = []
    notes: list[str] = []
    for each in every:
        choice = pr_cells.choose(
            each.cases,
            executing=executing(each, run_request, replaced, cache),
            minutes=None if wish.minutes is None else wish.minutes / len(every),
            past=timings.read(cache, device),
            workers=run_request.worker_count,
            known=frozenset(
                case.id for case in each.cases if known is None or str(CellKey(each.original.key, case.id)) in known
            ),
        )
        wish.say(choice_words(each.replaced.key, choice))
        found.append(replace(each, cases=choice.cases))
        notes += choice.notes
    return found, tuple(notes)


def executing(
    each: SetOfBothSides, run_request: RunRequest, replaced: ReplacedSets, cache: Path
) -> frozenset[str] | None:
    """The cases that execute a changed file; None if the set is not installed, or its lines were never measured."""
    lock = replaced.original_lock(each.original)
    build = run_request.backend(uv.on_this_machine(cache)).name
    root = cache / "envs" / str(EnvironmentKey(lock.digest, build)) if not isinstance(lock, Evidence) else cache
    if not (root / "lib").is_dir():
        return None
    packages = [one.package for one in replaced.replacements(each.original.python)]
    changed = pr_cells.changed_files(packages, root)
    return pr_cells.executing_cases(each.original.key, changed, cache=cache, device=run_request.resolved_device)


def choice_words(key: str, choice: ChosenCases) -> str:
    known = "" if choice.executing is None else f", {choice.executing} of which execute a changed file"
    return f"{key}: {counted(len(choice.cases), 'case')}{known}"


def name(every: Sequence[SetOfBothSides], device: str) -> str:
    """The directory of a comparison. The key of a set names the changes, so that equal requests share it."""
    first = every[0].replaced.key
    return f"pr-{device}-{first}" if len(every) == 1 else f"pr-{device}-{first}-and-{len(every) - 1}-more"


def measure(directory: Path, work: Work, run_request: RunRequest, wish: PrRequest) -> None:
    """Run the cells of one side that its directory lacks."""
    planned = sum(len(cases) for _, cases in work)
    request.run(
        replace(run_request, out=directory, resume=(directory / store.RUN).exists()),
        work=work,
        watcher=wish.watcher(planned),
        say=wish.say,
    )


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


def compared(base: Path, new: Path, every: Sequence[SetOfBothSides], notes: tuple[str, ...]) -> ResultDiff:
    """Compare both sides, restricted to the cells of this comparison."""
    before, now = sides.of_folder(base), sides.of_folder(new)
    old_keys, new_keys = ([each.original.key for each in every], [each.replaced.key for each in every])
    before = replace(before, name=", ".join(old_keys))
    now = replace(now, name=", ".join(new_keys), notes=(*now.notes, *notes))
    diff = compare.compare(before, now, list(zip(old_keys, new_keys, strict=True)))
    cells = {CellKey(each.replaced.key, case.id) for each in every for case in each.cases}
    return replace(diff, changes=tuple(each for each in diff.changes if CellKey(each.new_set, each.case) in cells))
