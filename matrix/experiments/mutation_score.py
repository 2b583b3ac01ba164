"""The results of a mutation run: the fate of each mutant, and shares by package, file and kind."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from cases.injection.numbers import FACT
from cases.space.verdict import RED, Verdict
from matrix.experiments import located_mutants

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from cases.space.verdict import Scalar
    from matrix.experiments.line_shares import LineShare
    from matrix.experiments.located_mutants import LocatedMutant
    from matrix.experiments.mutant_sample import FileCounts
    from matrix.experiments.mutants import Mutant
    from matrix.run.outcome import Outcome

KILLED, SURVIVED, NOT_COVERED = "killed", "survived", "not covered"
SAME_NUMBERS: Final = "same numbers"  # green, and every compared number is bit for bit that of the unchanged stack
UNSEEN: Final = "unseen"  # of these, those with which a function of the stack takes, leaves or returns another value
SAME_VALUES: Final = "same values"  # of these, those with which none does, in the cells whose calls were recorded
LOST: Final = "lost"  # every cell was lost: the harness could not judge, or could not activate the mutant
NOT_RUN: Final = "not run"
STATUSES: Final = (KILLED, SURVIVED, UNSEEN, SAME_NUMBERS, SAME_VALUES, NOT_COVERED, LOST, NOT_RUN)
LONGEST: Final = 160


@dataclass(frozen=True, kw_only=True)
class MutatedCell:
    """A cell with a mutant. ``noticed`` are the missed checks, the error, or the reason.

    ``same_numbers``: its values are those of the unchanged stack, in the last place too. ``changes`` is the function of
    the stack that first has another value, empty if none has, and None if the calls were not compared.
    """

    case: str
    verdict: str
    noticed: tuple[str, ...]
    seconds: float
    same_numbers: bool = False
    changes: str | None = None
    located: LocatedMutant | None = None

    @property
    def is_red(self) -> bool:
        return Verdict(self.verdict) in RED

    def as_json(self) -> dict[str, Any]:
        found = asdict(self)
        located = found.pop("located")
        if self.changes is None:
            del found["changes"]
        return found if self.located is None else {**found, "located": {**located, "place": self.located.place}}


def numbers(outcome: Outcome) -> tuple[object, ...]:
    """What a cell computed: the digests of the numbers that it compared, and the value of each check.

    Values are rounded to six digits: they are distances to the reference, whose own last place differs between runs.
    """
    digests = {name: value for name, value in outcome.facts.items() if name.startswith(FACT)}
    return (*((check.name, rounded(check.value)) for check in outcome.checks), *sorted(digests.items()))


def rounded(value: Scalar) -> str:
    return f"{value:.6g}" if isinstance(value, float) else repr(value)


def cell_result(
    case: str,
    outcome: Outcome,
    clean: Collection[tuple[object, ...]] = (),
    *,
    changed: str = "",
    changes: str | None = None,
) -> MutatedCell:
    """The result of a mutated cell; ``clean`` are the numbers of the runs on the unchanged stack.

    If these differ from each other, the cell cannot show that a mutant changes no number. ``changed`` is the function
    that the mutant changes, with its file.
    """
    missed = tuple(check.name for check in outcome.checks if not check.ok)
    reason = (outcome.reason[:LONGEST],) if outcome.reason and not missed else ()
    return MutatedCell(
        case=case,
        verdict=outcome.verdict.value,
        noticed=missed or reason,
        seconds=outcome.seconds,
        same_numbers=set(clean) == {numbers(outcome)},
        changes=changes,
        located=located_mutants.of(outcome, changed),
    )


def silent_status(green: Sequence[MutatedCell]) -> str:
    """The status of a mutant that no cell notices."""
    if not all(cell.same_numbers for cell in green):
        return SURVIVED
    compared = [cell.changes for cell in green if cell.changes is not None]
    if any(compared):
        return UNSEEN
    return SAME_VALUES if compared else SAME_NUMBERS


@dataclass(frozen=True, kw_only=True)
class MutantResult:
    """A mutant with the cells that ran. ``covered``: a green cell executes its code."""

    mutant: Mutant
    cells: tuple[MutatedCell, ...]
    covered: bool = True

    @property
    def status(self) -> str:
        if any(cell.is_red for cell in self.cells):
            return KILLED
        if self.green:
            return silent_status(self.green)
        if self.cells:
            return LOST
        return NOT_RUN if self.covered else NOT_COVERED

    @property
    def green(self) -> tuple[MutatedCell, ...]:
        return tuple(cell for cell in self.cells if cell.verdict == Verdict.PASS.value)

    @property
    def noticed_by(self) -> str:
        """The verdict of the cell that noticed the mutant; empty if none did."""
        return next((cell.verdict for cell in self.cells if cell.is_red), "")

    @property
    def diff(self) -> str:
        """The lines that the mutant changes, as a diff."""
        mutant = self.mutant
        after = re.sub(r"\n+(?=,)", "", mutant.after)  # the empty lines in place of what was dropped
        lines = difflib.ndiff(mutant.before.splitlines(), after.splitlines())
        return "\n".join(line for line in lines if line[:1] in "+-" and line[1:].strip())

    def as_json(self) -> dict[str, Any]:
        mutant = self.mutant
        return {
            "id": mutant.name or mutant.id,
            "package": mutant.package,
            "file": mutant.file,
            "line": mutant.line,
            "function": mutant.where,
            "kind": mutant.kind,
            "diff": self.diff,
            "status": self.status,
            "cells": [cell.as_json() for cell in self.cells],
        }

    @property
    def located(self) -> LocatedMutant | None:
        """Where the deviation of the first located cell begins."""
        return next((cell.located for cell in self.cells if cell.located is not None), None)


@dataclass(frozen=True, kw_only=True)
class Share:
    """The mutants of one package, file or kind, by status."""

    name: str
    counts: Mapping[str, int]

    @property
    def judged(self) -> int:
        return self.counts[KILLED] + self.counts[SURVIVED] + self.counts[UNSEEN]

    @property
    def score(self) -> float | None:
        return self.counts[KILLED] / self.judged if self.judged else None

    def as_json(self) -> dict[str, Any]:
        share = None if self.score is None else round(self.score, 4)
        return {
            "name": self.name,
            **{status.replace(" ", "_"): self.counts[status] for status in STATUSES},
            "score": share,
        }


@dataclass(frozen=True, kw_only=True)
class SetScore:
    """The results of one version set. ``rejected`` are hand-written mutants that fit no file, with the reason."""

    set: str
    traced_cells: int
    mutants: tuple[MutantResult, ...]
    files: tuple[FileCounts, ...] = ()
    lines: tuple[LineShare, ...] = ()
    rejected: Mapping[str, str] = field(default_factory=dict)

    @property
    def total(self) -> Share:
        return Share(name="all", counts=Counter(each.status for each in self.mutants))

    def shares(self, of: Callable[[Mutant], str]) -> list[Share]:
        return shares(self.mutants, of)

    def of_status(self, status: str) -> list[MutantResult]:
        return [each for each in self.mutants if each.status == status]

    @property
    def places(self) -> Counter[str]:
        """The number of located mutants by where the module is that was named; empty if none was located."""
        return Counter(each.located.place for each in self.mutants if each.located is not None)

    @property
    def generated(self) -> list[dict[str, Any]]:
        """By package, how many mutants its files have, and how many of them a green cell executes."""
        found: dict[str, Counter[str]] = {}
        for each in self.files:
            count = {"generated": each.generated, "covered": each.covered, "import_time_statements": each.import_time}
            found.setdefault(each.package, Counter()).update({"files": 1, **count})
        return [{"package": name, **found[name]} for name in sorted(found)]

    def as_json(self) -> dict[str, Any]:
        return {
            "set": self.set,
            "traced_cells": self.traced_cells,
            "total": self.total.as_json(),
            "packages": [each.as_json() for each in self.shares(lambda mutant: mutant.package)],
            "files": [each.as_json() for each in self.shares(lambda mutant: mutant.file)],
            "kinds": [each.as_json() for each in self.shares(lambda mutant: mutant.kind)],
            "generated": self.generated,
            **({"lines": [each.as_json() for each in self.lines]} if self.lines else {}),
            "rejected": dict(self.rejected),
            **({"places": dict(self.places)} if self.places else {}),
            "mutants": [each.as_json() for each in self.mutants],
        }


def shares(results: Iterable[MutantResult], of: Callable[[Mutant], str]) -> list[Share]:
    counts: dict[str, Counter[str]] = {}
    for each in results:
        counts.setdefault(of(each.mutant), Counter())[each.status] += 1
    return [Share(name=name, counts=counts[name]) for name in sorted(counts)]


def document(scores: Sequence[SetScore], *, seed: int, run: Mapping[str, Any]) -> dict[str, Any]:
    return {"schema": 2, "seed": seed, **run, "sets": [each.as_json() for each in scores]}
