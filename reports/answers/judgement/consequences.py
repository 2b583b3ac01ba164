"""Judges the job that a fix leads to: what is red after it, and which known errors it brings.

A fix is proven by one green cell. The job does more than that cell: it saves what it trained, with the user's versions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from reports.answers.judgement.coverage import MeasuredCells
from reports.answers.judgement.facts import facts_of
from reports.answers.judgement.flows import TRAIN, WORDS, JobFlows
from reports.answers.judgement.judge import JudgedJob, Judgement, judge
from reports.answers.judgement.known_errors import MeasuredErrors

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from cases.space.options import Options
    from reports.results.grid import Grid

WHOLE: Final = (TRAIN, "save_reload", "resume")


@dataclass(frozen=True, eq=False)
class Consequences:
    """Judges changed jobs on one device. ``on_cpu`` has the results of a CPU, where all known errors were run."""

    matrix: Grid
    on_cpu: Grid
    device: str

    @cached_property
    def cells(self) -> MeasuredCells:
        return MeasuredCells(self.matrix, on_cpu=self.device == "cpu")

    @cached_property
    def known(self) -> MeasuredErrors:
        return MeasuredErrors(self.on_cpu)

    def judged(self, options: Options, versions: Mapping[str, str]) -> Judgement:
        """Judge a job that trains, saves and may resume, or the one flow that its options name."""
        flows = flows_after(options)
        facts = facts_of(options, flows, device=self.device)
        return judge(JudgedJob(options=options, flows=flows, facts=facts), versions, self.cells, self.known)

    def errors(self, options: Options, versions: Mapping[str, str]) -> dict[str, str]:
        """Return the errors that the job meets if it uses the Trainer, whatever the cell did: titles by id.

        Documented behaviour counts too: a user who follows advice did not choose it.
        """
        facts = {**facts_of(options, flows_after(options), device=self.device), "front_end": "trainer"}
        met = self.known.met_by(facts, versions)
        return {each.finding.id: each.finding.title for each in met if each.certain and not each.finding.numbers_only}

    def new_dangers(
        self, before: Options, after: Options, versions: Mapping[str, str], explained: Collection[str] = ()
    ) -> Iterator[str]:
        """Yield what is red of the changed job and was not known of the job before, each as one sentence.

        ``explained`` are the findings that the fix is for.
        """
        old, new = self.judged(before, versions), self.judged(after, versions)
        causes = {red.cause for red in old.reds}
        for red in new.reds:
            if red.cause not in causes and not red.near:
                yield f"{WORDS[str(red.cell.stated['flow'])]} is then red: {red.cell.outcome.cell}"
        met = {*explained, *(each.finding.id for each in old.errors), *self.errors(before, versions)}
        brought = {each.finding.id: each.finding.title for each in new.errors} | self.errors(after, versions)
        yield from (f"{title} ({name})" for name, title in brought.items() if name not in met)


def flows_after(options: Options) -> JobFlows:
    return JobFlows(certain=WHOLE if options.flow == TRAIN else (options.flow,), possible=())
