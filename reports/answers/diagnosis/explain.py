"""Explains a pasted log: its diagnoses, with the fixes that published runs prove for them.

A fix is proven if a cell with it is green and a comparable cell without it is red. Fixes from threads are unverified
advice. Every proof names the device that it ran on.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from matrix.keys import CellKey
from matrix.known import findings
from reports.answers import knowledge
from reports.answers.devices import nearness
from reports.answers.diagnosis import dangers, diagnose
from reports.answers.diagnosis.observed_options import observe
from reports.answers.fixes import proven, remedies
from reports.answers.judgement.consequences import Consequences
from reports.results import known_results, wording
from reports.results.known_results import AdviceResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from cases.space.verdict import Phase
    from matrix.known.known_problems import Problem
    from matrix.run.outcome import Outcome
    from reports.answers.diagnosis.diagnose import Diagnosis
    from reports.answers.diagnosis.signatures import Signature
    from reports.answers.diagnosis.symptoms import Symptom
    from reports.answers.fixes.proven import ProvenFix
    from reports.answers.fixes.remedies import Remedy
    from reports.results.grid import Grid

DEVICES: Final = ("cuda", "cpu")
LONGEST_LINE: Final = 500


@dataclass(frozen=True, kw_only=True)
class AdviceVerdict:
    """Advice from a thread, and the sets on which published runs confirm or refute it."""

    says: str
    holding: AdviceResult
    holds_on: tuple[str, ...]
    fails_on: tuple[str, ...]
    device: str


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """A diagnosis with its proven fixes, judged advice and links.

    ``needs`` names the hardware that a reproduction requires and no published run had. ``narrower`` holds more specific
    diagnoses, which apply if the job has options that the log does not state.
    """

    diagnosis: Diagnosis
    narrower: tuple[Diagnosis, ...]
    phase: str
    fixes: tuple[ProvenFix, ...]
    claims: tuple[AdviceVerdict, ...]
    needs: tuple[str, ...]
    links: tuple[str, ...]
    dangers: tuple[str, ...] = ()  # of the settings that the advice names

    @property
    def signature(self) -> Signature:
        return self.diagnosis.signature

    @property
    def line(self) -> str:
        return wording.trimmed(wording.plain(self.diagnosis.line), LONGEST_LINE)

    def as_json(self) -> dict[str, Any]:
        proof = [fix.as_json() for fix in self.fixes]
        advice = [{"says": self.signature.fix, "proven": False}] if self.signature.fix else []
        return {
            "id": self.signature.id,
            "cause": self.signature.cause,
            "kind": self.signature.kind.value,
            "phase": self.phase,
            "fixes": [*proof, *advice],
            "claims": [{**asdict(claim), "holding": claim.holding.value} for claim in self.claims],
            "needs": list(self.needs),
            "links": list(self.links),
            "dangers": list(self.dangers),
            "line": self.line,
            "confirmed": list(self.diagnosis.confirmed),
            "assumed": list(self.diagnosis.open),
            "narrower": [narrower_as_json(each) for each in self.narrower],
        }


def narrower_as_json(diagnosis: Diagnosis) -> dict[str, Any]:
    row = diagnosis.signature
    return {"id": row.id, "with": list(diagnosis.assumed), "cause": row.cause, "kind": row.kind.value, "fix": row.fix}


@dataclass(frozen=True, kw_only=True)
class PublishedEvidence:
    """The known problems of some signatures, published grids by device, and stored fixes by device and cell."""

    problems: Mapping[str, Problem]
    grids: Mapping[str, Grid]
    remedies: Mapping[str, Mapping[str, Remedy]]
    folder: Path

    @cached_property
    def consequences(self) -> Mapping[str, Consequences]:
        """Judges the jobs that fixes lead to. It needs every case, so that it is loaded for the first fix only."""
        everything = knowledge.by_device(self.folder)
        on_cpu = everything.get("cpu", next(iter(everything.values())))
        return {device: Consequences(each, on_cpu, device) for device, each in everything.items()}

    def cell(self, name: str, device: str) -> Outcome | None:
        key = CellKey.parse(name)
        return self.grids[device].lookup(key.case, key.set)

    @property
    def pins(self) -> Mapping[str, Mapping[str, str]]:
        """The versions that each set pins, by set key; the oldest set comes first."""
        return {column.key: column.pins for matrix in self.grids.values() for column in matrix.sets}

    def problems_of(self, row: Signature) -> list[Problem]:
        return [self.problems[name] for name in row.problems]

    def red(self, row: Signature) -> dict[str, tuple[Outcome, ...]]:
        """Return the red cells that a signature explains, by device, whatever else the evidence was loaded for.

        Cells of its known problems count even if a narrower signature explains them better.
        """
        cases = self.cases_of(row)
        return {
            device: tuple(
                each for each, failure in failures if each.case in cases and self.explains(row, each, failure)
            )
            for device, failures in self.failures.items()
        }

    @cached_property
    def failures(self) -> Mapping[str, tuple[tuple[Outcome, Symptom], ...]]:
        """The red cells of each device with their symptoms, which are compared with every signature."""
        return {
            device: tuple((each, diagnose.symptom(each, self.pins[each.set])) for each in matrix.red)
            for device, matrix in self.grids.items()
        }

    def explains(self, row: Signature, outcome: Outcome, failure: Symptom) -> bool:
        """Tell if a signature explains a red cell best, or fits it and names its case in a known problem."""
        if diagnose.match_signature(row, failure) is None:
            return False
        return outcome.case in self.red_cases(row) or diagnose.diagnose(failure)[0].signature == row

    def red_cases(self, row: Signature) -> frozenset[str]:
        return frozenset(cells.case for each in self.problems_of(row) for cells in each.red)

    def cases_of(self, row: Signature) -> frozenset[str]:
        """Return the cases that may show or fix what a signature explains."""
        return cases_of(self.problems_of(row), self.remedies)

    def fixes(self, row: Signature, red: Mapping[str, Sequence[Outcome]]) -> Iterator[ProvenFix]:
        for device, matrix in self.grids.items():
            for problem in self.problems_of(row):
                yield from proven.by_problem(problem, red[device], matrix, device, keep_unquantised=True)
            remedies_by_cell = self.remedies.get(device, {})
            for outcome in red[device]:
                remedy = remedies_by_cell.get(outcome.cell)
                if remedy is not None and remedy.green:
                    yield proven.from_search(remedy, device)

    def claims(self, row: Signature) -> Iterator[AdviceVerdict]:
        for device, matrix in self.grids.items():
            for problem in self.problems_of(row):
                for each in known_results.judge(problem, matrix).advice:
                    if each.holding is not AdviceResult.UNKNOWN:
                        yield AdviceVerdict(
                            says=each.says,
                            holding=each.holding,
                            holds_on=each.holds_on,
                            fails_on=each.fails_on,
                            device=device,
                        )

    def needs(self, row: Signature, red: Mapping[str, Sequence[Outcome]]) -> Iterator[str]:
        """Yield the hardware that the signature's problems require and no published run had."""
        measured_cases = {each.case for outcomes in red.values() for each in outcomes}
        for problem in self.problems_of(row):
            if problem.needs and measured_cases.isdisjoint(cells.case for cells in problem.red):
                yield problem.needs


def explain(failure: Symptom, folder: Path = knowledge.PUBLISHED) -> tuple[Explanation, ...]:
    """Return the explanations of a failure, best first; empty if it is unexplained.

    Raises:
        UserError: the published data or a table cannot be read.
    """
    diagnoses = diagnose.diagnose(failure)
    if not diagnoses:
        return ()
    published = load_evidence([each.signature for each in diagnoses], folder)
    return tuple(explain_diagnosis(each, published, failure) for each in diagnoses)


def load_evidence(
    rows: Sequence[Signature], folder: Path, grids: Mapping[str, Grid] | None = None
) -> PublishedEvidence:
    """Load the published evidence for some signatures.

    Without the grids of the folder it reads them, for speed those of the cases that may concern the signatures.
    """
    named = {name for row in rows for name in row.problems}
    problems = {each.id: each for each in findings.with_known_problems(only=named)}
    stored = {device: remedies.load(folder, device=device) for device in DEVICES}
    cases = cases_of(problems.values(), stored)
    known = knowledge.by_device(folder, only=cases) if grids is None else grids
    return PublishedEvidence(problems=problems, grids=known, remedies=stored, folder=folder)


def cases_of(problems: Iterable[Problem], stored: Mapping[str, Mapping[str, Remedy]]) -> frozenset[str]:
    """Return the cases that some problems name, and those of all stored fixes, before and after."""
    named = {case for each in problems for case in cases_named_by(each)}
    fixes = [each.fix for by_cell in stored.values() for each in by_cell.values()]
    return frozenset(named | {case for each in fixes for case in (each.case, each.to_case) if case})


def cases_named_by(problem: Problem) -> Iterator[str]:
    yield from (cells.case for cells in (*problem.red, *problem.green))
    yield from (case for _, case in problem.cells())


def explain_diagnosis(diagnosis: Diagnosis, published: PublishedEvidence, failure: Symptom) -> Explanation:
    row = diagnosis.signature
    red = published.red(row)
    ordered = proven.ordered(published.fixes(row, observe(failure).admitted(red)), failure.versions, published.pins)
    threads = (*row.links, *(link for problem in published.problems_of(row) for link in problem.references))
    return Explanation(
        diagnosis=diagnosis,
        narrower=diagnose.narrower(diagnosis, failure),
        phase=usual_phase([each for cells in red.values() for each in cells], row),
        fixes=tuple(with_dangers(fix, row, published, failure.versions) for fix in ordered),
        claims=tuple(published.claims(row)),
        needs=tuple(dict.fromkeys(published.needs(row, red))),
        links=tuple(dict.fromkeys(known_results.address(link) for link in threads)),
        dangers=tuple(dict.fromkeys(of_advice(row, published, red))),
    )


def with_dangers(
    fix: ProvenFix, row: Signature, published: PublishedEvidence, versions: Mapping[str, str]
) -> ProvenFix:
    """Return a fix with what the judgement of the changed job knows against it."""
    red, green = (published.cell(name, fix.device) for name in (fix.red, fix.green[0]))
    found = consequences(red, green, row, published, fix.device, versions) if red and green else ()
    return replace(fix, dangers=tuple(dict.fromkeys([*found, *red_elsewhere(fix, published)])))


def consequences(
    red: Outcome, green: Outcome, row: Signature, published: PublishedEvidence, device: str, versions: Mapping[str, str]
) -> Iterator[str]:
    """Yield what is red of the job of a green cell, with the versions of its set and with those of the user."""
    pins = published.pins[green.set]
    for each in (pins, {**pins, **versions}):
        yield from dangers.of_change(red, green, each, published.consequences[device], row.problems)


def red_elsewhere(fix: ProvenFix, published: PublishedEvidence) -> Iterator[str]:
    """Yield which of the cells that prove a fix another device contradicts."""
    for cell in fix.green:
        for where in nearness.red_elsewhere(cell, fix.device, published.grids):
            yield f"{cell} is {where}"


def of_advice(row: Signature, published: PublishedEvidence, red: Mapping[str, Sequence[Outcome]]) -> Iterator[str]:
    """Yield what is known against the settings that unverified advice names, for a job that the signature hits."""
    advised = dangers.settings_in(row.fix)
    for device, outcomes in red.items():
        for outcome in outcomes[:1] if advised else ():
            pins = published.pins[outcome.set]
            yield from dangers.of_settings(outcome, advised, pins, published.consequences[device], row.problems)


def usual_phase(red: Sequence[Outcome], row: Signature) -> str:
    """Return the phase in which most red cells failed, or else the signature's first phase, or else an empty string."""
    measured: list[tuple[Phase, int]] = Counter(each.phase for each in red if each.phase).most_common(1)
    phases = [*(phase for phase, _ in measured), *row.phases]
    return phases[0].value if phases else ""
