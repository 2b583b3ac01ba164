"""The evidence for each signature as data: what ``ftmatrix explain`` says of it beside the diagnosis itself.

The fixes depend on the log, which admits some of the red cells and names versions, so each proof lists its red cells,
the nearest to the green one first, with the fix that each pair proves. ``static/diagnosis/proven.js`` selects of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matrix.keys import CellKey
from reports.answers.diagnosis import dangers, diagnose, observed_options
from reports.answers.diagnosis.explain import load_evidence, of_advice, red_elsewhere, usual_phase
from reports.answers.diagnosis.signatures import load
from reports.answers.fixes import proven
from reports.results import known_results, stored_results
from reports.site.diagnosis import consequence_data

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from matrix.known.known_problems import Problem
    from matrix.run.outcome import Outcome
    from reports.answers.diagnosis.signatures import Signature
    from reports.answers.fixes.proven import ProvenFix
    from reports.results.grid import Grid
    from reports.site.published_data import PublishedData

Red = dict[str, tuple["Outcome", ...]]
# The goals of red cells, each with the fix that it proves.
Proof = list[tuple[list[str] | None, dict[str, Any] | None]]


class SignatureEvidence:
    """Collects the evidence for every signature, and the jobs that its fixes concern."""

    def __init__(self, published: PublishedData) -> None:
        self.published = published
        self.evidence = load_evidence(load(), published.folder, grids_of_runs(published))
        self.jobs = consequence_data.by_device(published, self.evidence)

    def of(self, row: Signature) -> dict[str, Any]:
        red = self.red(row)
        every = [each for cells in red.values() for each in cells]
        threads = (*row.links, *(link for each in self.evidence.problems_of(row) for link in each.references))
        return {
            "phase": usual_phase(every, row),
            "isUnquantised": not all(map(observed_options.is_quantised, every)),
            "proofs": [each for device, cells in red.items() for each in self.proofs(row, cells, device)],
            "claims": [
                {
                    "says": each.says,
                    "holding": each.holding.value,
                    "holds_on": each.holds_on,
                    "fails_on": each.fails_on,
                    "device": each.device,
                }
                for each in self.evidence.claims(row)
            ],
            "needs": list(dict.fromkeys(self.evidence.needs(row, red))),
            "links": list(dict.fromkeys(map(known_results.address, threads))),
            "dangers": list(dict.fromkeys(of_advice(row, self.evidence, red))),
        }

    def red(self, row: Signature) -> Red:
        """Return the red cells of a signature as `PublishedEvidence.red` does, from what the site has diagnosed."""
        cases, own = self.evidence.cases_of(row), self.evidence.red_cases(row)
        return {
            device: tuple(
                each
                for each, failure in failures
                if each.case in cases
                and (
                    self.published.cause_of.get((device, each.case, each.set)) == row.id
                    or (each.case in own and diagnose.match_signature(row, failure) is not None)
                )
            )
            for device, failures in self.evidence.failures.items()
        }

    def proofs(self, row: Signature, red: Sequence[Outcome], device: str) -> Iterator[Proof]:
        for problem in self.evidence.problems_of(row):
            yield from self.proofs_of_problem(problem, red, device)
        for outcome in red:
            remedy = self.evidence.remedies.get(device, {}).get(outcome.cell)
            if remedy is not None and remedy.green:
                yield [(goal(outcome), self.fix_data(proven.from_search(remedy, device)))]

    def proofs_of_problem(self, problem: Problem, red: Sequence[Outcome], device: str) -> Iterator[Proof]:
        matrix = self.evidence.grids[device]
        pins = {column.key: column.pins for column in matrix.sets}
        for green, because, before in proven.proofs(problem, red, matrix, device, pins):
            fixes = (
                (
                    goal(each),
                    proven.by_comparable_pair(each, green, because, device, pins, keep_unquantised=True),
                )
                for each in first_of_goals(before)
            )
            yield [(values, self.fix_data(fix) if fix else None) for values, fix in fixes]

    def fix_data(self, fix: ProvenFix) -> dict[str, Any]:
        red, green = (self.evidence.cell(name, fix.device) for name in (fix.red, fix.green[0]))
        jobs = [dangers.job_of(each) if each is not None else None for each in (red, green)]
        return {
            "change": fix.change,
            "because": fix.because,
            "kind": fix.kind.value,
            "red": fix.red,
            "green": list(fix.green),
            "device": fix.device,
            "measured": fix.measured,
            "typed": list(fix.typed),
            "options": list(fix.options),
            "against": list(red_elsewhere(fix, self.evidence)),
            "set": CellKey.parse(fix.green[0]).set,
            "jobs": None if None in jobs else [self.jobs[fix.device].number(each) for each in jobs if each is not None],
        }

    def consequences(self) -> dict[str, Any]:
        """Return the data of all jobs that fixes concerned so far."""
        kinds = [kind.value for kind in proven.PREFERRED]
        return consequence_data.consequence_data(self.jobs, self.evidence.pins, kinds)


def goal(cell: Outcome) -> list[str] | None:
    """Return the values of a cell that a log may contradict; None for a call, which every log admits."""
    if "call" in cell.options:
        return None
    return [str(cell.options.get(name, observed_options.default(name))) for name in observed_options.NAMES]


def first_of_goals(cells: Sequence[Outcome]) -> Iterator[Outcome]:
    """Yield the first cell of each goal, up to the first one that every log admits."""
    seen: list[list[str]] = []
    for each in cells:
        values = goal(each)
        if values is None:
            yield each
            return
        if values not in seen:
            seen.append(values)
            yield each


def grids_of_runs(published: PublishedData) -> Mapping[str, Grid] | None:
    """The grids of a folder with run directories alone; None for published results, which `explain` reads itself."""
    return None if stored_results.locate_all(published.folder) else published.answers
