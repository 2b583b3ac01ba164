"""Judges known problems by the results of a run: which ones reproduce, and which advice holds."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any

from cases.space.verdict import RED, Verdict
from matrix.known.findings import Finding
from reports.results.wording import headline, measurements

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from matrix.known.known_problems import Cells, Claim, Problem
    from matrix.run.outcome import Outcome
    from reports.results.grid import Grid

SCHEMA = 1
LINK = "https://github.com/{}/issues/{}"


class Reproduction(StrEnum):
    """The result of running a reported problem."""

    REPRODUCED = "reproduced"  # red, with the text that was reported
    OTHER_ERROR = "red with another error"  # red before the problem could show
    NOT_REPRODUCED = "not reproduced"  # its cells ran, and none showed it
    NEEDS_HARDWARE = "needs other hardware"  # its cells were skipped on this machine
    NOT_RUN = "not run"


class AdviceResult(StrEnum):
    """The result of testing a piece of advice."""

    HOLDS = "holds"
    DOES_NOT = "does not hold"
    ONLY = "holds only on some sets"
    UNKNOWN = "not tested here"


@dataclass(frozen=True, kw_only=True)
class CellResult:
    """A cell of a problem. ``as_said``: it has the result that the table of problems states.

    ``device`` is that of a cell that the table names for one device; ``measured`` is where and when such a cell ran:
    hardware, driver and day.
    """

    set: str
    case: str
    verdict: str
    headline: str
    as_said: bool
    device: str | None = None
    measured: str = ""

    def as_json(self) -> dict[str, Any]:
        own = {name: value for name in ("device", "measured") if (value := getattr(self, name))}
        return {**{name: getattr(self, name) for name in ("set", "case", "verdict", "headline", "as_said")}, **own}


@dataclass(frozen=True, kw_only=True)
class GpuResults:
    """Results on GPUs, which judge the cells that the table of problems names for GPUs.

    ``drivers`` holds the driver of a set on some hardware; a run from before drivers were recorded has none.
    """

    matrix: Grid
    drivers: Mapping[tuple[str, str], str] = field(default_factory=dict)

    def measured(self, outcome: Outcome) -> str:
        """Where and when an outcome was measured."""
        driver = self.drivers.get((outcome.set, outcome.hardware), "")
        words = (outcome.hardware, f"driver {driver}" if driver else "", f"{outcome.started:%Y-%m-%d}")
        return ", ".join(filter(None, words))


@dataclass(frozen=True, kw_only=True)
class JudgedAdvice:
    says: str
    holding: AdviceResult
    holds_on: tuple[str, ...]
    fails_on: tuple[str, ...]
    note: str


@dataclass(frozen=True, kw_only=True)
class ProblemResult:
    problem: Problem
    status: Reproduction
    red: tuple[CellResult, ...]
    green: tuple[CellResult, ...]
    advice: tuple[JudgedAdvice, ...]

    @property
    def has_green_cell(self) -> bool:
        return any(each.as_said for each in self.green)

    def as_json(self) -> dict[str, Any]:
        row = self.problem
        return {
            "id": row.id,
            "title": row.title,
            "family": row.family,
            "entries": list(row.entries),
            "links": [address(link) for link in row.references],
            "silent": row.silent,
            "standing": self.status.value,
            "needs": row.needs,
            "note": row.note,
            "red": [each.as_json() for each in self.red],
            "green": [each.as_json() for each in self.green],
            "claims": [{**asdict(each), "holding": each.holding.value} for each in self.advice],
            **(of_finding(row) if isinstance(row, Finding) else {}),
        }


def of_finding(row: Finding) -> dict[str, Any]:
    """Return what the document has about a finding beside the keys of every problem."""
    return {
        **row.model_dump(
            mode="json",
            include={
                "kind",
                "package",
                "versions",
                "when",
                "numbers_only",
                "meet",
                "searched",
                "documented",
                "stock_api",
                "size",
                "former",
            },
        ),
        "threads": [{**each.model_dump(mode="json"), "link": address(each.link)} for each in row.threads],
    }


def judged(problems: Iterable[Problem], matrix: Grid, gpus: GpuResults | None = None) -> tuple[ProblemResult, ...]:
    return tuple(judge(problem, matrix, gpus) for problem in problems)


def judge(problem: Problem, matrix: Grid, gpus: GpuResults | None = None) -> ProblemResult:
    """Judge a problem by the grid of a run, and the cells that it names for GPUs by results on GPUs."""
    red = tuple(
        each for cells in problem.red for each in shown(cells, matrix, gpus, partial(is_shown, wanted=cells.shows))
    )
    green = tuple(each for cells in problem.green for each in shown(cells, matrix, gpus, passed))
    advice = tuple(judge_claim(claim, matrix) for claim in problem.claims)
    return ProblemResult(problem=problem, status=reproduction(problem, red, green), red=red, green=green, advice=advice)


def is_shown(outcome: Outcome, wanted: str) -> bool:
    """Tell whether a cell is red, and its reason, error or failed checks match the report."""
    error = f"{outcome.error.type}: {outcome.error.message}" if outcome.error else ""
    text = f"{outcome.reason}\n{measurements(outcome)}\n{error}"
    return outcome.verdict in RED | {Verdict.BLOCKED} and re.search(wanted, text) is not None


def passed(outcome: Outcome) -> bool:
    return outcome.verdict is Verdict.PASS


def shown(
    cells: Cells, matrix: Grid, gpus: GpuResults | None, is_expected: Callable[[Outcome], bool]
) -> Iterator[CellResult]:
    """Yield the result of each set."""
    for key in cells.sets:
        if cells.device is None:
            yield cell_result(matrix, key, cells.case, is_expected)
        else:
            yield gpu_result(cells, gpus, key, is_expected)


def gpu_result(cells: Cells, gpus: GpuResults | None, key: str, is_expected: Callable[[Outcome], bool]) -> CellResult:
    outcome = gpus.matrix.lookup(cells.case, key) if gpus is not None else None
    if gpus is None or outcome is None:
        not_run = Reproduction.NOT_RUN.value
        return CellResult(set=key, case=cells.case, verdict=not_run, headline="", as_said=False, device=cells.device)
    found = cell_result(gpus.matrix, key, cells.case, is_expected)
    return replace(found, device=cells.device, measured=gpus.measured(outcome))


def cell_result(matrix: Grid, key: str, case: str, is_expected: Callable[[Outcome], bool]) -> CellResult:
    outcome = matrix.lookup(case, key)
    verdict = matrix.verdict(case, key)
    return CellResult(
        set=key,
        case=case,
        verdict=verdict.value if verdict is not None else Reproduction.NOT_RUN.value,
        headline=headline(outcome) if outcome and outcome.verdict is not Verdict.PASS else "",
        as_said=outcome is not None and is_expected(outcome),
    )


def reproduction(problem: Problem, red: Sequence[CellResult], green: Sequence[CellResult]) -> Reproduction:
    """Return the result of a problem. A problem without red cells was tried if its green cells ran.

    A red cell with another text shows nothing about the problem: it is not reproduced only if its cells pass.
    A problem that needs hardware was tried if the cells of its red cases ran that it names for GPUs.
    """
    if any(each.as_said for each in red):
        return Reproduction.REPRODUCED
    if problem.needs:
        cases = {cells.case for cells in problem.red}
        red, green = ([each for each in cells if each.device and each.case in cases] for cells in (red, green))
    elif any(each.verdict == Verdict.SKIP.value and "GPU" in each.headline for each in red):
        return Reproduction.NEEDS_HARDWARE
    tried = {each.verdict for each in red or [each for each in green if each.as_said]}
    if not tried.isdisjoint(verdict.value for verdict in RED):
        return Reproduction.OTHER_ERROR
    if Verdict.PASS.value in tried:
        return Reproduction.NOT_REPRODUCED
    return Reproduction.NEEDS_HARDWARE if problem.needs else Reproduction.NOT_RUN


def judge_claim(claim: Claim, matrix: Grid) -> JudgedAdvice:
    """Judge a claim: it holds on a set if all its cells have the stated result. A set needs every cell to have run."""
    holds: list[str] = []
    fails: list[str] = []
    for key in claim.sets:
        greens = [matrix.verdict(case, key) for case in claim.green]
        reds = [matrix.verdict(case, key) for case in claim.red]
        if any(verdict not in RED | {Verdict.PASS} for verdict in (*greens, *reds)):
            continue
        right = all(verdict is Verdict.PASS for verdict in greens) and all(verdict in RED for verdict in reds)
        (holds if right else fails).append(key)
    return JudgedAdvice(
        says=claim.says,
        holding=holding(holds, fails),
        holds_on=tuple(holds),
        fails_on=tuple(fails),
        note=" ".join(part for part in (f"needs {claim.needs}" if claim.needs else "", claim.note) if part),
    )


def holding(holds: Sequence[str], fails: Sequence[str]) -> AdviceResult:
    if not holds and not fails:
        return AdviceResult.UNKNOWN
    if not fails:
        return AdviceResult.HOLDS
    return AdviceResult.ONLY if holds else AdviceResult.DOES_NOT


def counts(results: Iterable[ProblemResult]) -> Counter[Reproduction]:
    return Counter(each.status for each in results)


def entries(results: Iterable[ProblemResult]) -> Counter[Reproduction]:
    """Count upstream reports by result; a problem may cover several reports."""
    return Counter(each.status for each in results for _ in each.problem.entries)


def address(link: str) -> str:
    """Return the URL of a thread written as ``owner/repository#number``."""
    if link.startswith("https://"):
        return link
    repository, _, number = link.partition("#")
    return LINK.format(repository, number)


def document(results: Sequence[ProblemResult]) -> dict[str, Any]:
    """Return the content of ``known_problems.json.gz``."""
    return {
        "schema": SCHEMA,
        "counts": {each.value: number for each, number in counts(results).items()},
        "entries": {each.value: number for each, number in entries(results).items()},
        "problems": [each.as_json() for each in results],
    }
