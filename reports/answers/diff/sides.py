"""Finds the two sides of a comparison: runs, published results, the accepted baseline, or two sets of one folder."""

from __future__ import annotations

from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from matrix.errors import UserError
from matrix.keys import SEPARATOR
from matrix.run import store
from matrix.versions import locks
from reports.answers import knowledge
from reports.answers.diff.changes import DiffSide
from reports.answers.support.set_locks import lock_text
from reports.results import document as data
from reports.results.grid import Grid, grouped
from reports.results.loading import RunResults, load, results

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from cases.space.verdict import Verdict
    from matrix.run.outcome import Outcome, SetRecord
    from reports.results.stored_results import StoredResults

BASELINE: Final = "baseline"
REPEATS: Final = "repeats"  # the run of --repeat, inside the run whose cells it repeats


class DamagedBaselineError(UserError):
    """The file of a baseline cannot be read."""


@dataclass(frozen=True, kw_only=True)
class Sides:
    """Two sides with the keys of the sets to compare; an empty key stands for a side without the set."""

    base: DiffSide
    new: DiffSide
    pairs: tuple[tuple[str, str], ...]


def find(
    base: str,
    new: str,
    *,
    results_folder: Path = knowledge.PUBLISHED,
    device: str = "cpu",
    baselines: Path = Path(BASELINE),
    across_hardware: bool = False,
) -> Sides:
    """Return the two sides that a user named.

    Raises:
        UserError: a name is neither a folder of results nor a set, a result cannot be read, or the two cannot be
            compared.
    """
    if new == BASELINE:
        raise UserError("the baseline is the base side; write: ftmatrix diff baseline RUN")
    if base == BASELINE:
        run = of_folder(Path(new))
        return of_runs(of_baseline(baselines, run.device), run, across_hardware=across_hardware)
    folders = [Path(each).is_dir() for each in (base, new)]
    if all(folders):
        return of_runs(of_folder(Path(base)), of_folder(Path(new)), across_hardware=across_hardware)
    if any(folders) or any("/" in each for each in (base, new)):
        missing = [each for each, is_folder in zip((base, new), folders, strict=True) if not is_folder]
        wrong = next((each for each in missing if "/" in each), missing[0])
        raise UserError(
            f"{wrong or repr(wrong)}: no such folder; name two folders of results, or two sets of --results"
        )
    return of_sets(base, new, results_folder, device)


def of_runs(base: DiffSide, new: DiffSide, *, across_hardware: bool) -> Sides:
    """Pair the sets of two runs by key; if each has exactly one set, these two.

    Raises:
        UserError: the devices or the hardware differ, or no set is common.
    """
    if base.device != new.device:
        raise UserError(
            f"{base.name} ran on {base.device} and {new.name} on {new.device}; `ftmatrix devices` compares devices"
        )
    if base.hardware != new.hardware and not across_hardware:
        raise UserError(
            f"{base.name} ran on {base.hardware!r} and {new.name} on {new.hardware!r}; add --across-hardware to compare"
            " them all the same"
        )
    return Sides(base=base, new=new, pairs=paired(base.matrix.sets, new.matrix.sets, base.name, new.name))


def paired(
    base: Sequence[SetRecord], new: Sequence[SetRecord], base_name: str, new_name: str
) -> tuple[tuple[str, str], ...]:
    old_keys, new_keys = [each.key for each in base], [each.key for each in new]
    if len(old_keys) == len(new_keys) == 1:
        return ((old_keys[0], new_keys[0]),)
    common = [key for key in new_keys if key in old_keys]
    if not common:
        raise UserError(
            f"{base_name} has the sets {', '.join(old_keys) or 'none'} and {new_name} {', '.join(new_keys) or 'none'}; "
            "sets pair up by key, so compare runs of the same sets, or of one set each"
        )
    added = [("", key) for key in new_keys if key not in common]
    gone = [(key, "") for key in old_keys if key not in common]
    return (*((key, key) for key in common), *added, *gone)


def of_baseline(folder: Path, device: str) -> DiffSide:
    """Return the accepted baseline of a device.

    Raises:
        DamagedBaselineError: its file is damaged.
        UserError: none was accepted yet, or a newer harness wrote it.
    """
    path = folder / device
    if data.locate(path) is None:
        raise UserError(f"{path}: no baseline accepted yet; accept a run with `ftmatrix baseline accept RUN`")
    try:
        return replace(of_folder(path), name=BASELINE)
    except data.DamagedDocumentError as error:
        raise DamagedBaselineError(
            f"{path}: the baseline is damaged ({error.problem}); `ftmatrix baseline accept RUN` replaces it"
        ) from None


def of_folder(directory: Path) -> DiffSide:
    """Return a run, with the repeats stored inside it, or a folder of published results.

    Raises:
        UserError: the folder holds neither, or cannot be read.
    """
    found, notes = repeated_run(directory)
    return DiffSide(
        name=str(directory),
        device=found.record.device,
        hardware=found.record.hardware,
        matrix=found.matrix,
        locks=known_locks(found.sets, directory),
        notes=(*(f"{directory}: {each}" for each in found.problems), *notes),
    )


def repeated_run(directory: Path) -> tuple[RunResults, tuple[str, ...]]:
    """Return a run with the outcomes of its ``repeats``, and a note about those that do not count.

    Raises:
        UserError: the folder holds no results, or they cannot be read.
    """
    run, folder = load(directory), directory / REPEATS
    if not (directory / store.RUN).exists() or not (folder / store.RUN).exists():
        return run, ()
    _, _, more = store.read(folder)
    last = {(each.set, each.case, each.repeat): each for each in more}
    repeats, strange = [], 0
    for each in last.values():
        original = run.matrix.lookup(each.case, each.set)
        if original is None or not knowledge.are_repeats(each, original):
            strange += 1
            continue
        repeats.append(each.model_copy(update={"repeat": highest(run.outcomes) + each.repeat}))
    note = f"{strange} repeats in {folder} ran with another lock, machine or case code, and do not count"
    combined = results(run.record, run.sets, (*run.outcomes, *repeats), problems=run.problems)
    return combined, (note,) if strange else ()


def highest(outcomes: Iterable[Outcome]) -> int:
    return max((each.repeat for each in outcomes), default=0)


def known_locks(sets: Iterable[SetRecord], folder: Path) -> Mapping[str, Mapping[str, str]]:
    """Return the versions of each set's lock, for the sets whose lock this installation or the folder has."""
    found = {}
    for column in sets:
        if column.lock:
            try:
                found[column.key] = locks.versions_in(lock_text(column, folder=folder))
            except UserError:
                continue
    return found


def of_sets(base: str, new: str, folder: Path, device: str) -> Sides:
    """Return two sets of one folder of results.

    Of each case it takes the two cells that fit best: on the same hardware, with the same case code, and the newest.

    Raises:
        UserError: a set is unknown, or both are the same.
    """
    if base == new:
        raise UserError(f"both sides are {base}; name two different sets")
    grids, known = stored_grids(folder, device, (base, new))
    for key in (base, new):
        if key not in known:
            raise UserError(unknown_set(key, known, folder, device))
    return of_grids(base, new, grids, folder, device)


def of_grids(base: str, new: str, grids: Sequence[Grid], folder: Path, device: str) -> Sides:
    """Return two sets of the results of one device, which a caller has read already."""
    columns = {each.key: each for matrix in grids for each in matrix.sets if each.key in (base, new)}  # the newest last
    pairs = [
        best
        for case in dict.fromkeys(case for matrix in grids for case in matrix.cases)
        if (best := best_pair(measured(grids, case, columns[base]), measured(grids, case, columns[new])))
    ]
    locks_of = known_locks(columns.values(), folder)
    old, now = ([each for pair in pairs if (each := pair[number]) is not None] for number in (0, 1))
    return Sides(
        base=one_set(columns[base], old, grids, device, locks_of),
        new=one_set(columns[new], now, grids, device, locks_of),
        pairs=((base, new),),
    )


class Measured(NamedTuple):
    """A cell's outcome in one of several results, with the verdicts of its repeats."""

    outcome: Outcome
    repeats: tuple[Verdict, ...]


def stored_grids(folder: Path, device: str, keys: Sequence[str]) -> tuple[list[Grid], set[str]]:
    """Return the grids that have cells of some sets, oldest first, and the keys of all sets.

    Raises:
        UserError: there is no result of this device, or one cannot be read.
    """
    if (folder / store.RUN).exists():
        matrix = of_folder(folder).matrix
        return [matrix], {each.key for each in matrix.sets}
    of_device = [each for each in knowledge.stored(folder) if each.device == device]
    if not of_device:
        raise UserError(f"{folder}: holds no results of {device}; name another folder with --results, or --device")
    known = {column.key for each in of_device for column in each.sets}
    of_device.sort(key=lambda each: each.record.started)
    found = (only_sets(each, keys) for each in of_device)
    return [each.grid() for each in found if each.sets], known


def only_sets(results: StoredResults, keys: Sequence[str]) -> StoredResults:
    """Return results with the cells of some sets only."""
    starts = tuple(f"{key}{SEPARATOR}" for key in keys)
    planned = tuple(each for each in results.record.planned if each.startswith(starts))
    header = results.header
    if header is not None:
        header = header.model_copy(update={"flaky": tuple(each for each in header.flaky if each.set in keys)})
    return replace(
        results,
        record=results.record.model_copy(update={"planned": planned}),
        sets=tuple(each for each in results.sets if each.key in keys),
        outcomes=tuple(each for each in results.outcomes if each.set in keys),
        header=header,
    )


def measured(grids: Iterable[Grid], case: str, column: SetRecord) -> list[Measured]:
    """Return the outcomes of a cell under the lock of its set, the newest last."""
    found = ((matrix, matrix.lookup(case, column.key)) for matrix in grids)
    return [
        Measured(each, matrix.repeats[case, column.key])
        for matrix, each in found
        if each is not None and knowledge.has_lock(each.lock, column.lock)
    ]


def best_pair(base: Sequence[Measured], new: Sequence[Measured]) -> tuple[Measured | None, Measured | None] | None:
    """Return the outcomes that compare best: on the same hardware, with the same case code, and the newest."""
    if not base or not new:
        return (base[-1] if base else None, new[-1] if new else None) if base or new else None

    def fit(pair: tuple[Measured, Measured]) -> tuple[bool, bool, datetime]:
        old, now = (each.outcome for each in pair)
        return old.hardware == now.hardware, old.has_same_code(now), min(old.started, now.started)

    return max(product(base, new), key=fit)


def one_set(
    column: SetRecord,
    cells: Sequence[Measured],
    grids: Sequence[Grid],
    device: str,
    known: Mapping[str, Mapping[str, str]],
) -> DiffSide:
    """Return a side with the chosen cells of one set."""
    hardware = ", ".join(dict.fromkeys(each.outcome.hardware for each in cells)) or device
    planned = frozenset(pair for matrix in grids for pair in matrix.planned if pair[1] == column.key)
    by_cell = {(each.outcome.case, column.key): each for each in cells}
    matrix = Grid(
        sets=(column,),
        groups=tuple(
            grouped(list(dict.fromkeys(case for case, _ in (*by_cell, *planned))), (each.outcome for each in cells))
        ),
        cells={cell: each.outcome for cell, each in by_cell.items()},
        verdicts={cell: each.outcome.verdict for cell, each in by_cell.items()},
        options={cell: each.outcome.options for cell, each in by_cell.items()},
        planned=planned,
        repeats={cell: each.repeats for cell, each in by_cell.items()},
    )
    return DiffSide(name=column.key, device=device, hardware=hardware, matrix=matrix, locks=known)


def unknown_set(key: str, known: Iterable[str], folder: Path, device: str) -> str:
    near = get_close_matches(key, sorted(known), n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"choose from {', '.join(sorted(known))}"
    return f"{key}: neither a folder of results nor a set measured on {device} in {folder}; {hint} Or add --device"
