"""Explains a pasted log: its diagnoses, with the fixes that published runs prove for them.

A fix is proven if a cell with it is green and a comparable cell without it is red. Fixes from threads are unverified
advice. Every proof names the device that it ran on.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from cases.space.verdict import RED
from matrix.known import known_problems as tables
from reports.answers import knowledge
from reports.answers.diagnosis import diagnose
from reports.answers.diagnosis.observed_options import observe
from reports.answers.fixes import proven, remedies
from reports.results import known_results, wording
from reports.results.known_results import AdviceResult

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence
    from pathlib import Path

    from cases.space.verdict import Phase
    from matrix.known.known_problems import Problem
    from matrix.run.outcome import Outcome
    from reports.answers.diagnosis.diagnose import Diagnosis, Symptom
    from reports.answers.diagnosis.signatures import Signature
    from reports.answers.fixes.proven import ProvenFix
    from reports.answers.fixes.remedies import Remedy
    from reports.results.grid import Grid

DEVICES: Final = ("cuda", "cpu")
LONGEST_LINE: Final = 500


@dataclass(frozen=True, kw_only=True)
class AdviceVerdict:
    """Advice from a thread, which runs judged."""

    says: str
    holding: AdviceResult
    holds_on: tuple[str, ...]
    fails_on: tuple[str, ...]
    device: str


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """A diagnosis and what is known beside it. ``needs`` is the hardware without which it cannot be shown.

    ``narrower``: what it is more exactly with options that a log does not say.
    """

    diagnosis: Diagnosis
    narrower: tuple[Diagnosis, ...]
    phase: str
    fixes: tuple[ProvenFix, ...]
    claims: tuple[AdviceVerdict, ...]
    needs: tuple[str, ...]
    links: tuple[str, ...]

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
            "line": self.line,
            "confirmed": list(self.diagnosis.confirmed),
            "assumed": list(self.diagnosis.open),
            "narrower": [narrowed(each) for each in self.narrower],
        }


def narrowed(found: Diagnosis) -> dict[str, Any]:
    row = found.signature
    return {"id": row.id, "with": list(found.assumed), "cause": row.cause, "kind": row.kind.value, "fix": row.fix}


@dataclass(frozen=True, kw_only=True)
class PublishedEvidence:
    """What was published about some problems: the cells, and the fixes that were searched for, by device."""

    problems: Mapping[str, Problem]
    grids: Mapping[str, Grid]
    remedies: Mapping[str, Mapping[str, Remedy]]

    @property
    def pins(self) -> Mapping[str, Mapping[str, str]]:
        """Of every set, the oldest first."""
        return {column.key: column.pins for matrix in self.grids.values() for column in matrix.sets}

    def of(self, row: Signature) -> list[Problem]:
        return [self.problems[name] for name in row.problems]

    def red(self, row: Signature) -> dict[str, tuple[Outcome, ...]]:
        """Red cells that the row explains, by device; those of its problems, a narrower row may explain better."""
        cases = {cells.case for each in self.of(row) for cells in each.red}
        return {device: tuple(self.fitting(row, matrix, cases)) for device, matrix in self.grids.items()}

    def fitting(self, row: Signature, matrix: Grid, cases: Container[str]) -> Iterator[Outcome]:
        for outcome in matrix.outcomes:
            if outcome.verdict in RED:
                shown = diagnose.symptom(outcome, self.pins[outcome.set])
                if diagnose.fitted(row, shown) is not None and (
                    outcome.case in cases or diagnose.diagnose(shown)[0].signature == row
                ):
                    yield outcome

    def fixes(self, row: Signature, red: Mapping[str, Sequence[Outcome]]) -> Iterator[ProvenFix]:
        for device, matrix in self.grids.items():
            for problem in self.of(row):
                yield from proven.by_problem(problem, red[device], matrix, device, keep_unquantised=True)
            found = self.remedies.get(device, {})
            for outcome in red[device]:
                remedy = found.get(outcome.cell)
                if remedy is not None and remedy.green:
                    yield proven.searched(remedy, device)

    def claims(self, row: Signature) -> Iterator[AdviceVerdict]:
        for device, matrix in self.grids.items():
            for problem in self.of(row):
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
        """The hardware that problems wait for, which no published run had."""
        shown = {each.case for outcomes in red.values() for each in outcomes}
        for problem in self.of(row):
            if problem.needs and shown.isdisjoint(cells.case for cells in problem.red):
                yield problem.needs


def explain(shown: Symptom, folder: Path = knowledge.PUBLISHED) -> tuple[Explanation, ...]:
    """Every cause that is known of it, best first; none if nothing is.

    Raises:
        UserError: the published data or a table cannot be read.
    """
    found = diagnose.diagnose(shown)
    measured = about([each.signature for each in found], folder) if found else None
    return tuple(explained(each, measured, shown) for each in found if measured)


def about(rows: Sequence[Signature], folder: Path) -> PublishedEvidence:
    """What was published of these rows. Only cases that may be of them are read: an answer should be there at once."""
    named = {name for row in rows for name in row.problems}
    every = (*tables.load(tables.PACKAGED), *tables.load(tables.FINDINGS))
    problems = {each.id: each for each in every if each.id in named}
    found = {device: remedies.load(folder, device=device) for device in DEVICES}
    cases = {case for each in problems.values() for _, case in each.cells()}
    cases |= {each.fix.case for by_cell in found.values() for each in by_cell.values()}
    return PublishedEvidence(problems=problems, grids=knowledge.by_device(folder, only=cases), remedies=found)


def explained(found: Diagnosis, measured: PublishedEvidence, shown: Symptom) -> Explanation:
    row = found.signature
    red = measured.red(row)
    threads = (*row.links, *(link for problem in measured.of(row) for link in problem.links))
    return Explanation(
        diagnosis=found,
        narrower=diagnose.narrower(found, shown),
        phase=usual([each for cells in red.values() for each in cells], row),
        fixes=proven.ordered(measured.fixes(row, observe(shown).admitted(red)), shown.versions, measured.pins),
        claims=tuple(measured.claims(row)),
        needs=tuple(dict.fromkeys(measured.needs(row, red))),
        links=tuple(dict.fromkeys(known_results.address(link) for link in threads)),
    )


def usual(red: Sequence[Outcome], row: Signature) -> str:
    """The phase in which it was measured most often, or in which the row says it happens; empty if neither is known."""
    measured: list[tuple[Phase, int]] = Counter(each.phase for each in red if each.phase).most_common(1)
    phases = [*(phase for phase, _ in measured), *row.phases]
    return phases[0].value if phases else ""
