"""The judgement of the jobs that fixes lead to, as data: the browser repeats it for the versions of a log.

The cells that may decide about a job and the conditions that its facts fulfil do not depend on versions, so Python
selects them here. ``static/diagnosis/consequences.js`` takes those of some versions, and compares two jobs.
"""

from __future__ import annotations

from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Final

from matrix.known.conditions import any_holds
from reports.answers.diagnosis.signatures import load
from reports.answers.judgement.consequences import flows_after
from reports.answers.judgement.coverage import (
    covers,
    differing_options,
    extends,
    has_no_extra_setting,
    has_same_goal,
    is_near,
    turned_by,
)
from reports.answers.judgement.facts import facts_of
from reports.answers.judgement.flows import WORDS, in_flow
from reports.results.wording import gist

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cases.space.options import Options, Value
    from matrix.known.findings import Finding
    from reports.answers.diagnosis.explain import PublishedEvidence
    from reports.answers.diagnosis.signatures import Signature
    from reports.answers.judgement.consequences import Consequences
    from reports.answers.judgement.coverage import MeasuredCell, Stated
    from reports.answers.judgement.known_errors import MeasuredErrors
    from reports.site.published_data import PublishedData

GREEN: Final = -1  # the verdict of a cell; red cells have the number of their cause


def by_device(published: PublishedData, evidence: PublishedEvidence) -> dict[str, JudgedJobs]:
    return {device: JudgedJobs(evidence, device, published) for device in evidence.grids}


def consequence_data(
    jobs: Mapping[str, JudgedJobs], pins: Mapping[str, Mapping[str, str]], kinds: list[str]
) -> dict[str, Any]:
    """Return the judged jobs by device, with the known errors, and the pins of all sets, oldest first."""
    judged = [each for each in jobs.values() if each.numbers]
    if not judged:  # no fix concerns a job, and nothing is loaded to judge it
        return {"sets": pins, "kinds": kinds, "findings": [], "devices": {}}
    known = judged[0].consequences.known
    return {
        "sets": pins,
        "kinds": kinds,
        "findings": [
            {"id": row.id, "title": row.title, "cases": [each.case for each in row.red], **versions_data(row, known)}
            for row in known.rows
        ],
        "devices": {device: each.data() for device, each in jobs.items() if each.numbers},
    }


def versions_data(row: Finding, known: MeasuredErrors) -> dict[str, Any]:
    """Return the versions that have an error, stated or measured, for ``static/known_errors.js``."""
    measured = {str(version): red for version, red in known.by_version(row).items()}
    return {"package": row.package, "versions": row.versions, "measured": measured}


class JudgedJobs:
    """Collects jobs of one device, and the cells and errors that decide about them.

    A row is a case with the options that a run recorded; its verdicts are in the order of the sets.
    """

    def __init__(self, evidence: PublishedEvidence, device: str, published: PublishedData) -> None:
        self.evidence = evidence
        self.device = device
        self.published = published
        self.numbers: dict[Options, int] = {}
        self.causes: dict[str, int] = {}
        self.turned = cache(self.causes_turned_by)

    @cached_property
    def consequences(self) -> Consequences:
        """The judgement that the command uses, with the cells in the same order."""
        return self.evidence.consequences[self.device]

    def number(self, job: Options) -> int:
        """Return the number of a job, which is exported from now on."""
        return self.numbers.setdefault(job, len(self.numbers))

    @cached_property
    def rows(self) -> tuple[dict[str, MeasuredCell], ...]:
        """The cells of each row by the key of their set."""
        found: dict[tuple[str, int], dict[str, MeasuredCell]] = {}
        for key, by_packages in self.consequences.cells.by_set.items():
            for cells in by_packages.values():
                for cell in cells:
                    found.setdefault((cell.case, id(cell.job)), {})[key] = cell
        return tuple(found.values())

    def data(self) -> dict[str, Any]:
        jobs = [self.job_data(job) for job in self.numbers]
        used = sorted({row for job in jobs for flow in job["flows"] for row, *_ in flow["rows"]})
        sets = [each for each in self.consequences.cells.columns if each.key in self.consequences.cells.by_set]
        rows = {row: self.row_data(self.rows[row], [each.key for each in sets]) for row in used}
        return {
            "sets": [{"key": each.key, "pins": each.pins} for each in sets],
            "jobs": jobs,
            "rows": rows,
            "causes": [self.cause_data(cause) for cause in self.causes],
        }

    def job_data(self, job: Options) -> dict[str, Any]:
        """Return the rows of a job by flow, and the errors whose conditions its facts fulfil."""
        flows, known = flows_after(job), self.consequences.known
        facts = facts_of(job, flows, device=self.consequences.device)
        of_trainer = {**facts, "front_end": "trainer"}
        rows = [(number, row) for number, row in enumerate(known.rows) if not row.numbers_only]
        in_flows = ((flow, in_flow(job, flow)) for flow in flows.certain)
        return {
            "flows": [self.flow_data(flow, options.stated) for flow, options in in_flows if options is not None],
            "errors": [number for number, row in rows if row.is_bug and any_holds(row.when, facts) is True],
            "ofTrainer": [number for number, row in rows if any_holds(row.when, of_trainer) is True],
        }

    def flow_data(self, flow: str, job: Stated) -> dict[str, Any]:
        """Return the rows with the goal of a job: how far each is from it, and what speaks against its red cells."""
        rows = list(self.rows_near(job))
        covered = [(number, cell) for number, cell in rows if covers(job, cell.stated)]
        extended = {number: [other for other, green in covered if extends(green, cell)] for number, cell in covered}
        avoided = {number: self.avoided(job, cell) for number, cell in rows}
        return {
            "words": WORDS[flow],
            "rows": [
                [number, len(differing_options(job, cell.stated)), is_near(job, cell.stated)] for number, cell in rows
            ],
            "extended": {number: others for number, others in extended.items() if others},
            "avoided": {number: causes for number, causes in avoided.items() if causes},
        }

    def rows_near(self, job: Stated) -> Iterator[tuple[int, MeasuredCell]]:
        for number, cells in enumerate(self.rows):
            cell = next(iter(cells.values()))
            if has_same_goal(job, cell.stated) and has_no_extra_setting(job, cell.stated):
                yield number, cell

    def avoided(self, job: Stated, cell: MeasuredCell) -> list[str]:
        """Return the causes that the job's value avoids, of the one option in which it differs from a cell."""
        differing = differing_options(job, cell.stated)
        if len(differing) != 1:
            return []
        name = differing[0]
        return sorted(self.turned(name, cell.stated.get(name), job.get(name)))

    def causes_turned_by(self, name: str, old: Value | None, new: Value | None) -> frozenset[str]:
        every = (cells for by_packages in self.consequences.cells.by_set.values() for cells in by_packages.values())
        return frozenset(self.cause(cell) for cells in every for cell in turned_by(cells, name, old, new))

    def row_data(self, cells: Mapping[str, MeasuredCell], keys: list[str]) -> dict[str, Any]:
        cell = next(iter(cells.values()))
        return {
            "case": cell.case,
            "uses": cell.job.uses,
            "settings": cell.settings,
            "verdicts": [self.verdict(cells.get(key)) for key in keys],
        }

    def verdict(self, cell: MeasuredCell | None) -> int | None:
        if cell is None or cell.green:
            return GREEN if cell else None
        return self.causes.setdefault(self.cause(cell), len(self.causes))

    def cause_data(self, cause: str) -> dict[str, Any]:
        row = signatures().get(cause)
        return {
            "cause": cause,
            "problems": row.problems if row else (),
            "isOfMachine": self.consequences.cells.depends_on_machine(row),
        }

    def cause(self, cell: MeasuredCell) -> str:
        """Return the cause of a red cell as `MeasuredCell.cause` does, from what the site has diagnosed already."""
        known = self.published.cause_of[self.consequences.device, cell.case, cell.column.key]
        return known or gist(cell.outcome)


@cache
def signatures() -> Mapping[str, Signature]:
    return {row.id: row for row in load()}
