"""Prepares a fix search: selects its red cells and earlier results, runs it, and writes the fixes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Final

from cases.space.case import Case
from cases.space.options import Options
from cases.space.renamed import current_cell
from cases.space.verdict import RED, Verdict
from matrix.errors import UserError
from matrix.keys import CellKey
from matrix.known import known_problems
from matrix.run import store
from matrix.run.progress import Silent
from matrix.run.request import prepare_context
from matrix.search import fixes as known_fixes
from matrix.search.earlier import EarlierFixes
from matrix.search.finder import OFF_GRID, FixSearch
from matrix.search.fixes import Fixes, Kind
from matrix.search.moves import pinned
from matrix.search.neighbours import MAX_RADIUS
from matrix.search.target import FixTask
from matrix.versions import sets as known_sets
from reports.answers import knowledge
from reports.answers.fixes import remedies
from reports.answers.fixes.remedies import FIXES, PUBLISHED_FIXES, Remedy
from reports.answers.scripts import edits
from reports.render.files import write_whole
from reports.results import outcome_rows
from reports.results.loading import results
from reports.results.outcome_rows import have_same_code

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from matrix.known.known_problems import Problem
    from matrix.run.outcome import Outcome
    from matrix.run.request import RunRequest
    from matrix.search.fixes import Fix
    from matrix.versions.sets import VersionSet
    from reports.results.outcome_rows import AnyOutcome

CELLS: Final = "fixes"  # folder of the cells that a search ran, in a folder of published results

TAIL: Final = 500
INCONCLUSIVE: Final = (Verdict.LOST, Verdict.SKIP)

Cell = tuple["VersionSet", "Case"]


@dataclass(frozen=True, kw_only=True)
class FixOptions:
    """The options of ``ftmatrix fix``, as the user gave them."""

    cell: str = ""
    look_up: bool = False
    again: bool = False
    every: bool = False
    known: str = ""
    results: Path = knowledge.PUBLISHED
    only: str = ""
    environments: int = 6
    radius: int = MAX_RADIUS


@dataclass(frozen=True, kw_only=True)
class FixRequest:
    """A checked request: the red cells, their earlier results, and the limits of the search."""

    run_request: RunRequest
    cells: Sequence[Cell]
    before: Sequence[AnyOutcome]
    advised: Mapping[str, Sequence[Case]]
    kinds: frozenset[Kind]
    environments: int
    radius: int
    results: Path
    again: Mapping[str, Fix]  # earlier fixes by red cell; with any, the search only runs these


def order(run_request: RunRequest, wish: FixOptions) -> FixRequest:
    """Check the options, and look up the red cells.

    Raises:
        UserError: an option is invalid, or no red cell matches.
    """
    run_request.check()
    if wish.look_up and wish.again:
        raise UserError("--look-up runs nothing, and --again runs fixes; leave one of them out")
    measured = knowledge.outcomes(wish.results, only=needed_cases(wish))
    before = tuple(each for each in measured if of_device(each, run_request.resolved_device))
    cases = {**cases_outside_grid(before), **run_request.suite.cases}
    problems = known_problems.load()
    chosen_cells = cells(run_request, wish, cases, verdicts(before))
    again = earlier_fixes(wish, run_request.resolved_device) if wish.again else {}
    return FixRequest(
        run_request=run_request,
        cells=having(again, chosen_cells) if wish.again else chosen_cells,
        before=before,
        advised=advised(problems, cases, run_request.resolved_device),
        kinds=kinds(wish.only),
        environments=wish.environments,
        radius=wish.radius,
        results=wish.results,
        again=again,
    )


def earlier_fixes(wish: FixOptions, device: str) -> dict[str, Fix]:
    """Return the fixes of these kinds that earlier searches found, by red cell, with the machine and day of each."""
    known = remedies.load(wish.results, device=device).items()
    chosen_kinds = kinds(wish.only)
    return {
        cell: each.fix.model_copy(update={"within": each.searched})
        for cell, each in known
        if each.green and each.fix.kind in chosen_kinds
    }


def having(again: Mapping[str, Fix], chosen_cells: Sequence[Cell]) -> tuple[Cell, ...]:
    """Return the cells with an earlier fix.

    Raises:
        UserError: none of them has one.
    """
    found = tuple(each for each in chosen_cells if str(CellKey(each[0].key, each[1].id)) in again)
    if not found:
        raise UserError("no earlier search found a fix for any of these cells; search now without --again")
    return found


def needed_cases(wish: FixOptions) -> frozenset[str] | None:
    """Return the cases whose outcomes a request needs, None for all: to look up one cell needs its own case."""
    if not (wish.look_up and wish.cell):
        return None
    try:
        return frozenset({CellKey.parse(current_cell(wish.cell)).case})
    except ValueError:  # `named` reports it
        return None


def cells(
    run_request: RunRequest, wish: FixOptions, cases: Mapping[str, Case], known: Mapping[str, Verdict]
) -> tuple[Cell, ...]:
    """Return the red cells that the options select, each once."""
    if bool(wish.cell) == bool(wish.every or wish.known):
        raise UserError("name one cell (SET__CASE), or give --all or --known")
    table = run_request.known
    if wish.cell:
        return (not_green(named(wish.cell, table, cases), known),)
    red_cells: list[Cell] = []
    if wish.every:
        red_cells += red(known, run_request.version_sets(), run_request.cases())
    if wish.known:
        red_cells += of_problems(chosen(wish.known), table, cases, run_request.resolved_device)
    if not red_cells:
        raise UserError(f"{wish.results}: none of these cells is red there; `ftmatrix run` measures them")
    return tuple(
        {str(CellKey(version_set.key, case.id)): (version_set, case) for version_set, case in red_cells}.values()
    )


def chosen(known: str) -> tuple[Problem, ...]:
    problems = known_problems.load()
    if known == "families":
        return tuple(each for each in problems if each.family)
    return known_problems.select(problems, "" if known == "all" else known)


def kinds(only: str) -> frozenset[Kind]:
    """Return the kinds of change to search, all if none is named.

    Raises:
        UserError: a kind is unknown.
    """
    by_name = {each.value: each for each in (Kind.SETTINGS, Kind.VERSIONS, Kind.ALTERNATIVE)}
    names = [name.strip() for name in only.split(",") if name.strip()]
    for name in names:
        if name not in by_name:
            raise UserError(f"--only {name}: unknown kind of change; choose from {', '.join(by_name)}")
    return frozenset(by_name[name] for name in names) or frozenset(by_name.values())


def of_device(outcome: AnyOutcome, device: str) -> bool:
    return outcome.hardware.partition(":")[0] == device


def verdicts(before: Iterable[AnyOutcome]) -> dict[str, Verdict]:
    """Return the verdict of each cell with its newest case code: red if any run was red.

    Lost and skipped runs do not count.
    """
    newest: dict[str, AnyOutcome] = {}
    conclusive = (each for each in before if each.verdict not in INCONCLUSIVE)
    for each in sorted(conclusive, key=lambda each: each.started):
        last = newest.get(each.cell)
        if last is None or not have_same_code(last, each) or last.verdict not in RED:
            newest[each.cell] = each
    return {cell: each.verdict for cell, each in newest.items()}


def cases_outside_grid(before: Iterable[AnyOutcome]) -> dict[str, Case]:
    """Rebuild the measured cases that no grid has from their stored options."""
    cases: dict[str, Case] = {}
    for each in before:
        if each.group == OFF_GRID and each.case not in cases:
            cases[each.case] = Case(each.group, each.why, Options().but(**each.options))
    return cases


def looked_up(order: FixRequest, *, say: Callable[[str], None]) -> tuple[Remedy, ...]:
    """Return the fixes that earlier searches on this device found; report the cells without one.

    Raises:
        UserError: no earlier search covered any of these cells.
    """
    known = remedies.load(order.results, device=order.run_request.resolved_device)
    wanted = [str(CellKey(version_set.key, case.id)) for version_set, case in order.cells]
    unknown = [cell for cell in wanted if cell not in known]
    missing = [f"{cell}: no published search covers it on {order.run_request.resolved_device}" for cell in unknown]
    if len(missing) == len(wanted):
        raise UserError(f"{missing[0]}; search now without --look-up")
    for line in missing:
        say(line)
    return tuple(known[cell] for cell in wanted if cell in known)


def search(order: FixRequest, *, say: Callable[[str], None]) -> tuple[Path, tuple[Remedy, ...]]:
    """Search for fixes; return the run directory and the fixes. Its ``fixes.json`` has what is decided so far.

    Raises:
        UserError: the machine cannot run the cells, or the directory cannot be used.
    """
    from matrix.search.runner import PipelineRunner  # to look up fixes starts quicker without it

    run_request = order.run_request
    table = run_request.known
    ctx = prepare_context(run_request, [], watcher=Silent(), say=say)
    directory = ctx.store.directory
    try:
        chosen_search = partial(EarlierFixes, known=order.again) if order.again else FixSearch
        searching = chosen_search(
            runner=PipelineRunner(ctx=ctx, table=table, before=tuple(map(outcome_rows.whole, order.before))),
            tasks=[FixTask(version_set=version_set, case=case) for version_set, case in order.cells],
            table=table,
            cases=run_request.suite.cases,
            advised=order.advised,
            environments=order.environments,
            radius=order.radius,
            kinds=order.kinds,
            note=lambda so_far: write(so_far, directory),
        )
        fixes = searching.run()
        for cell, why in searching.left_out.items() if isinstance(searching, EarlierFixes) else ():
            say(f"{cell}: its earlier fix did not run ({why})")
    except UserError:
        ctx.store.abandon()
        raise
    finally:
        ctx.store.close()
    whole = write(fixes, directory)
    return directory, tuple(Remedy(fix=each, found=whole) for each in whole.fixes)


def write(so_far: Iterable[Fix], directory: Path) -> Fixes:
    """Write ``fixes.json`` into a run directory."""
    record, _, _ = store.read(directory)
    document = Fixes(
        generated=datetime.now(UTC),
        device=record.device,
        hardware=record.hardware,
        code=record.code,
        fixes=tuple(so_far),
    )
    write_whole(directory / FIXES, document.model_dump_json(by_alias=True, indent=1) + "\n")
    return document


def fix_texts(fixes: Iterable[Remedy], order: FixRequest) -> Iterator[str]:
    """Yield each fix with its edit."""
    by_key = {str(CellKey(version_set.key, case.id)): (version_set, case) for version_set, case in order.cells}
    for each in fixes:
        version_set, case = by_key[str(CellKey(each.fix.set, each.fix.case))]
        before = edits.Stack(pins=pinned(version_set), options=case.options, set=version_set.key)
        yield edits.fix_text(each, before, edits.options_after(each.fix, case.options, order.run_request.suite.cases))


def fixes_json(fixes: Iterable[Remedy]) -> str:
    """Return the fixes as JSON, each with the machine and the date of its search."""
    rows = [
        {**each.found.model_dump(mode="json", exclude={"fixes", "schema_"}), **each.fix.model_dump(mode="json")}
        for each in fixes
    ]
    return json.dumps({"schema": known_fixes.SCHEMA, "fixes": rows}, indent=1)


def publish(directory: Path, folder: Path) -> None:
    """Write the fixes, and the cells that were run for them, into a folder of published results.

    Raises:
        UserError: there is no run, or the folder cannot be written.
    """
    from reports.render.write import write_results  # to look up fixes starts quicker without it

    record, sets, outcomes = store.read(directory)
    run = results(record, sets, map(shortened, outcomes))
    try:
        (folder / CELLS).mkdir(parents=True, exist_ok=True)
        write_results(run, folder / CELLS, generated=datetime.now(UTC))
        write_whole(folder / PUBLISHED_FIXES, (directory / FIXES).read_text(encoding="utf-8"))
        (folder / FIXES).unlink(missing_ok=True)  # of an older version, which did not compress them
    except OSError as error:
        raise UserError(f"{folder}: cannot be written ({error.strerror}); choose another folder") from None


def shortened(outcome: Outcome) -> Outcome:
    """Shorten an outcome to its failure; for a case outside the grid, also cut the traceback to its end."""
    error = outcome.error
    if error is not None and outcome.group == OFF_GRID:
        error = error.model_copy(update={"traceback": error.traceback[-TAIL:]})
    missed = tuple(check for check in outcome.checks if not check.ok)
    left_out: dict[str, object] = {"evidence": {}, "metrics": {}, "facts": {}}
    return outcome.model_copy(update={**left_out, "checks": missed, "error": error})


def named(cell: str, sets: Iterable[VersionSet], cases: Mapping[str, Case]) -> Cell:
    """Return the cell that a user named as ``SET__CASE``.

    Raises:
        UserError: the set or the case does not exist.
    """
    try:
        key, name = CellKey.parse(current_cell(cell))
    except ValueError:
        raise UserError(f"{cell!r} is no cell: a set and a case, e.g. 2026-11__train-lora-fsdp1-bf16") from None
    version_set = known_sets.find(key, {each.key: each for each in sets})
    try:
        return version_set, cases[name]
    except KeyError:
        near = get_close_matches(name, cases, n=3)
        hint = f"; did you mean {' or '.join(near)}?" if near else "; `ftmatrix plan` lists them"
        raise UserError(f"there is no case {name!r}{hint}") from None


def red(known: Mapping[str, Verdict], sets: Sequence[VersionSet], cases: Sequence[Case]) -> Iterator[Cell]:
    """Yield the red cells, set by set."""
    for version_set in sets:
        for case in cases:
            if known.get(str(CellKey(version_set.key, case.id))) in RED:
                yield version_set, case


def of_problems(
    problems: Iterable[Problem], sets: Sequence[VersionSet], cases: Mapping[str, Case], device: str
) -> Iterator[Cell]:
    """Yield the cells that known problems state as red on a device."""
    by_key = {each.key: each for each in sets}
    for problem in problems:
        for cells in problem.red:
            known = cells.case in cases
            yield from ((by_key[key], cases[cells.case]) for key in cells.sets_on(device) if known and key in by_key)


def advised(problems: Iterable[Problem], cases: Mapping[str, Case], device: str) -> dict[str, tuple[Case, ...]]:
    """Return the cases that a known problem states as green on a device, by red cell on the same set."""
    greens_by_cell: dict[str, tuple[Case, ...]] = {}
    for problem in problems:
        for cells in problem.red:
            for key in cells.sets_on(device):
                stated = (each.case for each in problem.green if key in each.sets_on(device))
                greens = tuple(cases[case] for case in stated if case in cases)
                greens_by_cell[str(CellKey(key, cells.case))] = (
                    *greens_by_cell.get(str(CellKey(key, cells.case)), ()),
                    *greens,
                )
    return greens_by_cell


def not_green(cell: Cell, known: Mapping[str, Verdict]) -> Cell:
    """Return the cell, unless it is green.

    Raises:
        UserError: the cell is green.
    """
    version_set, case = cell
    key = str(CellKey(version_set.key, case.id))
    if known.get(key) is Verdict.PASS:
        raise UserError(f"{key} is green: there is nothing to fix")
    return cell
