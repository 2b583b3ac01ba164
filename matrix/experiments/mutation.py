"""Measures a mutation score: the share of small changes of the installed stack that the cells of the grid notice.

Each mutant runs in cells that execute its code and that are green on the unchanged stack, one after the other, until
one is red. A mutant that leaves every compared number as it is, bit for bit, is counted apart: it changes speed,
memory, messages, or what no cell looks at. Any other survivor shows what checks or cases lack, or is equivalent.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from cases.injection import mutated_modules
from cases.injection.mutant_suite import INFIX, MUTANTS, NONE, NOTICED, mutated_case, unchanged
from cases.space.verdict import RED, Verdict
from matrix.experiments import executed_lines, mutant_reviews, mutant_sample, mutant_values
from matrix.experiments.cell_choice import CellChoice
from matrix.experiments.mutation_score import (
    SAME_NUMBERS,
    SAME_VALUES,
    MutantResult,
    MutatedCell,
    SetScore,
    cell_result,
    numbers,
)
from matrix.run import location, store
from matrix.run import request as run_request
from matrix.run.execute import Suite

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from cases.space.case import Case
    from matrix.experiments.executed_lines import TracedCell
    from matrix.experiments.mutant_sample import Sample
    from matrix.experiments.mutants import Mutant
    from matrix.run.outcome import Outcome
    from matrix.run.progress import Progress
    from matrix.run.request import RunRequest
    from matrix.versions.sets import VersionSet

    Plan = Sequence[tuple[Mutant, Sequence[Case]]]
    CleanRuns = Mapping[str, Sequence[tuple[object, ...]]]  # the numbers of each run, by case

BATCH: Final = 20  # mutants that share a test session, for each cell that runs at once
TWICE: Final = 2  # runs of each cell on the unchanged stack: equal numbers prove that it is deterministic
SUITE: Final = Suite(module="cases.injection.mutant_suite", unchanged=unchanged)
MUTANTS_FOLDER: Final = "mutants"  # for each set, a file with the edits that ranks read
CLEAN, MUTATED, COMPARED = "clean", "mutated", "compared"


@dataclass(frozen=True, kw_only=True)
class MutationRequest:
    """``count`` mutants for each set, each in ``most`` cells at most; ``minutes`` limits the mutated runs of a set.

    ``hand_written`` names a file with other mutants, ``again`` holds results whose unnoticed mutants run once more.
    ``locate``: a cell that a mutant makes red runs once more to name the first module that is off. ``values``: cells
    that notice nothing run again to tell whether the mutant changes any value of the stack's functions.
    """

    run: RunRequest
    directory: Path
    count: int = 100
    seed: int = 0
    most: int = 3
    minutes: float = 60.0
    files: str = ""
    hand_written: Path | None = None
    again: Mapping[str, Any] | None = None
    locate: bool = False
    values: bool = False
    watcher: Callable[[int], Progress] = field(repr=False)
    say: Callable[[str], None] = print


def run(request: MutationRequest) -> tuple[SetScore, ...]:
    """The scores of the sets; what is measured already in the directory is not measured again.

    Raises:
        UserError: bad input, or the machine cannot run the request.
    """
    return tuple(score(each, request) for each in request.run.version_sets())


def score(version_set: VersionSet, request: MutationRequest) -> SetScore:
    cases = {case.id: case for case in request.run.cases() if case.options.flow != "script"}
    request.say(f"{version_set.key}: measuring which lines of the stack {len(cases)} cells execute")
    cells = executed_lines.measure(
        version_set, list(cases.values()), request.run, watcher=request.watcher, say=request.say
    )
    sample = chosen_sample(version_set, cells, cases, request)
    note_mutants(sample, mutants_file(version_set, request))
    clean = clean_runs(version_set, sample, cases, request)
    plan = [(mutant, [cases[name] for name in names if name in clean]) for mutant, names in sample.mutants]
    request.say(f"{version_set.key}: {len(plan)} mutants in {len(clean)} green cells")
    began = time.monotonic()
    batch = BATCH * request.run.worker_count
    for start in range(0, len(plan), batch):
        if time.monotonic() - began > 60 * request.minutes:
            request.say(f"{version_set.key}: --minutes is over; --resume runs the rest")
            break
        run_batch(version_set, plan[start : start + batch], request)
        judged = [result for result in results(version_set, plan, clean, request) if result.cells]
        killed = sum(each.status == "killed" for each in judged)
        request.say(f"{version_set.key}: {killed} of {len(judged)} mutants killed, {time.monotonic() - began:.0f} s")
    if request.values:
        compare_values(version_set, results(version_set, plan, clean, request), cases, request)
    return SetScore(
        set=version_set.key,
        traced_cells=len(cells),
        mutants=tuple(results(version_set, plan, clean, request)),
        files=sample.files,
        lines=sample.lines,
        rejected=dict(sample.rejected),
    )


def chosen_sample(
    version_set: VersionSet, cells: Sequence[TracedCell], cases: Mapping[str, Case], request: MutationRequest
) -> Sample:
    choice = CellChoice(most=request.most, locate=request.locate)
    if request.hand_written is not None:
        return mutant_sample.hand_written(request.hand_written, cells, cases, choice=choice)
    if request.again is not None:
        wanted = mutant_reviews.to_run_again(request.again, version_set.key)
        return mutant_sample.again(wanted, cells, cases, choice=choice)
    return mutant_sample.draw(cells, cases, count=request.count, seed=request.seed, choice=choice, files=request.files)


def mutants_file(version_set: VersionSet, request: MutationRequest) -> Path:
    return request.directory / MUTANTS_FOLDER / f"{version_set.key}.jsonl"


def note_mutants(sample: Sample, path: Path) -> None:
    """Add mutants to the file that ranks read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    known = set(path.read_text(encoding="utf-8").splitlines()) if path.exists() else set()
    with path.open("a", encoding="utf-8") as sink:
        for mutant, _ in sample.mutants:
            line = json.dumps(mutant.to_line())
            if line not in known:
                sink.write(line + "\n")


def clean_runs(version_set: VersionSet, sample: Sample, cases: dict[str, Case], request: MutationRequest) -> CleanRuns:
    """The numbers of the chosen cells on the unchanged stack, untraced; of cells that are green in every run."""
    names = dict.fromkeys(name for _, names in sample.mutants for name in names)
    measure(version_set, [mutated_case(cases[name], NONE) for name in names], request, CLEAN, repeats=TWICE)
    found: dict[str, list[Outcome]] = defaultdict(list)
    for each in outcomes(version_set, request, CLEAN):
        found[clean_of(each)].append(each)
    return {
        case: tuple(map(numbers, runs))
        for case, runs in found.items()
        if all(each.verdict is Verdict.PASS for each in runs)
    }


def measure(
    version_set: VersionSet, cases: Sequence[Case], request: MutationRequest, name: str, *, repeats: int = 1
) -> None:
    if not cases:
        return
    is_located = request.locate and name == MUTATED
    whole = prepared(version_set, request, name)
    variables = {**whole.variables, mutated_modules.REQUESTED: "1"} if is_located else whole.variables
    choice = location.RED if is_located else location.NONE
    whole = replace(whole, repeats=repeats, variables=variables, locate=choice)
    run_request.run(whole, work=[(version_set, cases)], watcher=request.watcher(len(cases)), say=request.say)


def prepared(version_set: VersionSet, request: MutationRequest, name: str) -> RunRequest:
    """A run of mutated cells in a folder of its own, which continues the one that is there."""
    out = request.directory / name
    return replace(
        request.run,
        out=out,
        resume=(out / store.RUN).exists(),
        cold_sample=0,
        suite=replace(SUITE, in_order=name == MUTATED),
        variables={MUTANTS: str(mutants_file(version_set, request).absolute())},
        profile="",
    )


def compare_values(
    version_set: VersionSet, found: Sequence[MutantResult], cases: Mapping[str, Case], request: MutationRequest
) -> None:
    """Compare the values of the first cells of each mutant that changes no compared number with the unchanged stack."""
    silent = [each for each in found if each.status in {SAME_NUMBERS, SAME_VALUES}]
    done = mutant_values.known(request.directory / COMPARED)
    chosen = [(cell.case, each.mutant.id) for each in silent for cell in each.green[: mutant_values.MOST]]
    mutated = [mutated_case(cases[case], mutant) for case, mutant in chosen]
    left = [each for each in mutated if each.id not in done]
    if not left:
        return
    request.say(f"{version_set.key}: comparing the values of {len(silent)} mutants in {len(left)} cells")
    whole = replace(
        prepared(version_set, request, COMPARED), afterwards=partial(mutant_values.compare, version_set, left)
    )
    run_request.run(whole, work=[], watcher=request.watcher(3 * len(left)), say=request.say)


def run_batch(version_set: VersionSet, batch: Plan, request: MutationRequest) -> None:
    """Run the cells of each mutant until one is red: a cell that is red spares those after it.

    A run that was interrupted may have left red cells that are not located: they are only located.
    """
    known = outcomes(version_set, request, MUTATED)
    killed = {mutant_of(each) for each in known if each.verdict in RED}
    open_cells = unlocated(known) if request.locate else frozenset()
    cells = [
        mutated
        for mutant, cases in batch
        for mutated in (mutated_case(case, mutant.id) for case in cases)
        if mutant.id not in killed or mutated.id in open_cells
    ]
    measure(version_set, cells, request, MUTATED)


def unlocated(known: Sequence[Outcome]) -> frozenset[str]:
    """The red cells that ``--locate`` would locate and that have no location."""
    wanted = location.VERDICTS[location.RED]
    return frozenset(each.case for each in known if each.verdict in wanted and each.location is None)


def outcomes(version_set: VersionSet, request: MutationRequest, name: str) -> list[Outcome]:
    """The latest outcome of each cell of a set that ran, and of each repeat."""
    directory = request.directory / name
    if not (directory / store.RUN).exists():
        return []
    _, _, found = store.read(directory)
    mine = (each for each in found if each.set == version_set.key and each.reason != NOTICED)
    return list({(each.case, each.repeat): each for each in mine}.values())


def mutant_of(outcome: Outcome) -> str:
    return outcome.case.rpartition(INFIX)[2]


def clean_of(outcome: Outcome) -> str:
    return outcome.case.rpartition(INFIX)[0]


def results(version_set: VersionSet, plan: Plan, clean: CleanRuns, request: MutationRequest) -> list[MutantResult]:
    """The results so far. A mutant whose cells are all red without it counts as not covered."""
    changed = {mutant.id: mutant.changed for mutant, _ in plan}
    changes = mutant_values.known(request.directory / COMPARED)
    by_mutant: dict[str, list[MutatedCell]] = defaultdict(list)
    for each in outcomes(version_set, request, MUTATED):
        numbers_of_clean = clean.get(clean_of(each), ())
        cell = cell_result(
            clean_of(each),
            each,
            numbers_of_clean,
            changed=changed.get(mutant_of(each), ""),
            changes=changes.get(each.case),
        )
        by_mutant[mutant_of(each)].append(cell)
    return [
        MutantResult(mutant=mutant, cells=tuple(by_mutant[mutant.id]), covered=bool(cells)) for mutant, cells in plan
    ]
