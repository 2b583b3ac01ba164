"""Runs the base side and the changed side of ``ftmatrix pr``, and compares them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cases.space.plural import counted
from matrix.environments.environment import cache_folder
from matrix.errors import UserError
from matrix.evidence import Evidence
from matrix.keys import CellKey, EnvironmentKey
from matrix.run import timings
from matrix.run.request import RUNS, RunRequest
from matrix.versions import uv
from reports.answers.diff import compare, sides
from reports.answers.diff.changes import ChangeKind
from reports.commands.runs import diff_repeats, pr_cells
from reports.commands.runs.pr_base import base_outcomes, base_runs, measure, run_base
from reports.commands.runs.pr_request import SetOfBothSides, request_of_both, sets_of_both, stored_base

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from matrix.replacements.replaced_sets import ReplacedSets
    from reports.answers.diff.changes import ResultDiff
    from reports.commands.runs.pr_cells import ChosenCases
    from reports.commands.runs.pr_request import PrRequest

BASE, NEW = "base", "new"  # run directories inside the directory of the comparison


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


def compared(base: Path, new: Path, every: Sequence[SetOfBothSides], notes: tuple[str, ...]) -> ResultDiff:
    """Compare both sides, restricted to the cells of this comparison."""
    before, now = sides.of_folder(base), sides.of_folder(new)
    old_keys, new_keys = ([each.original.key for each in every], [each.replaced.key for each in every])
    before = replace(before, name=", ".join(old_keys))
    now = replace(now, name=", ".join(new_keys), notes=(*now.notes, *notes))
    diff = compare.compare(before, now, list(zip(old_keys, new_keys, strict=True)))
    cells = {CellKey(each.replaced.key, case.id) for each in every for case in each.cases}
    selected = (each for each in diff.changes if CellKey(each.new_set, each.case) in cells)
    return replace(diff, changes=tuple(map(compare.with_moved_checks, selected)))
