"""Collects what a report adds to the verdicts of a run: causes of red cells, fixes, known problems, recommendations."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from cases import suite
from matrix.keys import CellKey
from matrix.versions import sets as known_sets
from reports.answers import knowledge
from reports.answers import known_problems as problems
from reports.answers.devices.compare import of_run
from reports.answers.diagnosis import diagnose
from reports.answers.fixes import remedies
from reports.answers.fixes.green_neighbours import green_neighbour
from reports.answers.judgement.known_errors import MeasuredErrors, cases_of, packaged
from reports.answers.support import support
from reports.answers.support.recommend import recommended
from reports.answers.support.status import SupportIndex
from reports.results.comparison import Comparison
from reports.results.grid import findings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matrix.run.outcome import RunRecord
    from reports.answers.diagnosis.diagnose import Cause
    from reports.answers.fixes.green_neighbours import GreenNeighbour
    from reports.answers.fixes.remedies import Remedy
    from reports.answers.known_problems import ReproducedProblem
    from reports.answers.support.recommend import Recommendation, UsualJob
    from reports.answers.support.support import Support
    from reports.results.grid import CaseFailure, Grid


@dataclass(frozen=True, slots=True, kw_only=True)
class FixOnSets:
    """A fix for the cells of a finding, with the sets that it applies to."""

    remedy: Remedy | GreenNeighbour
    sets: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Overview:
    """The conclusions from a run's results.

    ``causes`` are those of all red cells, the most frequent first. ``fixes`` are by cell, and ``edits`` are the same as
    diffs of the user's files. ``problems`` are known problems that published runs reproduced on the same sets.
    ``recommended`` covers the usual jobs, based on the run's own cells and on the known errors of their versions.
    ``support`` is that of ``ftmatrix can-i-use``, based on all published results of the device, or on the run's own
    cells if there are none. ``devices`` compares the run with results of the other kind of device.
    """

    causes: tuple[Cause, ...]
    fixes: Mapping[str, Remedy | GreenNeighbour]
    edits: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[ReproducedProblem, ...] = ()
    recommended: tuple[tuple[UsualJob, Recommendation], ...] = ()
    support: tuple[Support, ...] = ()
    devices: Comparison = field(default_factory=Comparison)

    @property
    def red(self) -> int:
        """Number of red cells."""
        return sum(len(cause.cells) for cause in self.causes)

    @property
    def unexplained(self) -> int:
        """Number of red cells that no signature explains."""
        return sum(len(cause.cells) for cause in self.causes if cause.signature is None)

    @property
    def compared(self) -> Comparison | None:
        """The comparison with the other kind of device; None if no pair of sets was compared."""
        return self.devices if self.devices.pairs else None

    @cached_property
    def by_cell(self) -> Mapping[str, Cause]:
        return {outcome.cell: cause for cause in self.causes for outcome in cause.cells}

    def findings(self, cause: Cause) -> tuple[CaseFailure, ...]:
        return findings(cause.cells)

    def ways(self, finding: CaseFailure) -> tuple[FixOnSets, ...]:
        """Return the fixes of a finding's cells, each once."""
        alike: dict[str, list[str]] = {}
        first: dict[str, Remedy | GreenNeighbour] = {}
        for key in finding.sets:
            remedy = self.fixes.get(str(CellKey(key, finding.case)))
            if remedy is not None:
                alike.setdefault(remedy.words, []).append(key)
                first.setdefault(remedy.words, remedy)
        return tuple(FixOnSets(remedy=first[words], sets=tuple(sets)) for words, sets in alike.items())


def overview(record: RunRecord, matrix: Grid, others: Mapping[str, Grid] | None = None) -> Overview:
    """Return the overview of a run. Published results apply to sets with the same pins only.

    ``others`` are the grids to compare with, by device; the default is the published ones.

    Raises:
        UserError: published data cannot be read.
    """
    packaged = {each.key: each for each in known_sets.load()}
    same = {each.key for each in matrix.sets if each.key in packaged and packaged[each.key].pins == each.pins}
    every = remedies.load(device=record.device)
    columns = {each.key: each for each in matrix.sets}
    fixes: dict[str, Remedy | GreenNeighbour] = {}
    edits: dict[str, str] = {}
    for red in matrix.red:
        if red.cell in every and red.set in same:
            known = fixes[red.cell] = every[red.cell].for_cell(red)
            edits[red.cell] = known.edit(red, packaged[red.set], suite.CASES)
        elif (neighbour := green_neighbour(red, matrix)) is not None:
            fixes[red.cell] = neighbour
            edits[red.cell] = neighbour.edit(red, columns[red.set])
    jobs = SupportIndex(matrix, known=known_errors(), device=record.device)
    return Overview(
        causes=diagnose.causes(matrix),
        fixes=fixes,
        edits=edits,
        problems=problems.reproduced_problems({each.key: each.pins for each in matrix.sets}, device=record.device),
        recommended=tuple(
            each for each in recommended(jobs, device=record.device) if each[1].best or each[1].obstacles
        ),
        devices=of_run(record.device, matrix, published(matrix) if others is None else others),
        support=support.published(record.device) or tuple(each for each in support.usual(jobs) if each.sets),
    )


def known_errors() -> MeasuredErrors | None:
    """Return the errors of released versions, with the published cells of a CPU, where all of them ran."""
    cells = knowledge.by_device(only=cases_of(packaged())).get("cpu")
    return None if cells is None else MeasuredErrors(cells)


def published(matrix: Grid) -> Mapping[str, Grid]:
    """Return the published results of the same cases, by device."""
    return knowledge.by_device(only=set(matrix.cases))
