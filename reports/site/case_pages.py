"""A page per case: its verdicts, what it does as user code, why cells are red, and what turns them green.

The page itself has what all cells of the case share. The checks, the traceback and the environment of each cell are in
one data file of the case, which the page loads.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from cases import api
from cases.space.options import IllegalError, Options
from cases.space.verdict import RED, shown
from matrix.errors import UserError
from matrix.keys import CellKey
from reports.answers.scripts import user_script
from reports.answers.scripts.calls import ApiVersions
from reports.answers.scripts.edits import function_source
from reports.answers.scripts.repro_cells import pins_of
from reports.answers.scripts.repro_script import reproducer
from reports.answers.support.set_locks import lock_text
from reports.results.grid import findings
from reports.results.location_words import location_words
from reports.results.log_ends import log_ends
from reports.results.wording import LIMITS, again, headline, is_distance, rates
from reports.site.chart import charted, charted_cell
from reports.site.names import device_name
from reports.site.writer import file_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from matrix.run.outcome import CheckRecord, Outcome
    from reports.results.grid import CaseFailure
    from reports.site.case_fixes import CellFix
    from reports.site.cause_pages import CausePage
    from reports.site.chart import ChartedCell
    from reports.site.problem_pages import ProblemPage
    from reports.site.published_data import PublishedData
    from reports.site.writer import SiteWriter

METRICS: Final = {
    "peak_rss_mib": "peak memory, MiB",
    "peak_cuda_mib": "peak GPU memory, MiB",
    "longest_silence_s": "longest silence, s",
}
MOST_HISTORY: Final = 100  # measurements of one case on its page, the newest ones


@dataclass(frozen=True, kw_only=True)
class ExplainedFailure:
    """A failure of the case on one device, with its cause and the fixes of its cells."""

    device: str
    finding: CaseFailure
    cause: CausePage | None
    fixes: tuple[CellFix, ...]

    @property
    def anchor(self) -> str:
        return f"{self.device}-{file_name(self.finding.sets[0])}"


@dataclass(frozen=True, kw_only=True)
class CaseWriter:
    """What the pages of all cases need."""

    site: SiteWriter
    published: PublishedData
    causes: Mapping[str, CausePage]
    fixes: Mapping[tuple[str, str, str], CellFix]
    problems: Mapping[str, Sequence[ProblemPage]]
    locks: frozenset[str]

    def write(self, case: str, group: str) -> None:
        outcomes = self.published.outcomes_of(case)
        newest = outcomes[-1][1]
        file = file_name(case)
        scripts = dict(self.scripts(outcomes))
        charts = charted(outcomes)
        history = self.published.measurements_by_case.get(case, [])
        self.site.page(
            f"case/{file}.html",
            "case.html.j2",
            case=case,
            file=file,
            group=group,
            why=next((each.why for _, each in reversed(outcomes) if each.why), ""),
            options=newest.options,
            code=code_of(newest, self.pins(outcomes[-1][0], newest.set)),
            strips={device: list(self.strip(case, device)) for device in self.published.grids},
            charts=charts,
            failures=list(self.failures(outcomes)),
            problems=self.problems.get(case, ()),
            disagreements=list(self.disagreements(case)),
            history=history[:MOST_HISTORY],
            measurements=len(history),
            scripts=scripts,
            device_name=device_name,
        )
        self.site.data(
            f"cases/{file}",
            {
                f"{device} {outcome.set}": self.cell(device, outcome, scripts)
                | self.logs(device, outcome)
                | chart_data(device, outcome, charts)
                for device, outcome in outcomes
            },
        )

    def pins(self, device: str, key: str) -> Mapping[str, str]:
        record = self.published.set_record(device, key)
        return record.pins if record is not None else {}

    def strip(self, case: str, device: str) -> Iterator[tuple[str, str, Any]]:
        """Yield the column, the version set and the verdict of each cell of a device, newest first."""
        grid = self.published.grids[device]
        for column in reversed(self.published.columns):
            record = column.sets.get(device)
            verdict = grid.verdicts.get((case, record.key)) if record is not None else None
            if record is not None and verdict is not None:
                yield column.key, record.key, verdict

    def failures(self, outcomes: Sequence[tuple[str, Outcome]]) -> Iterator[ExplainedFailure]:
        for device in self.published.grids:
            red = [each for on, each in outcomes if on == device and each.verdict in RED]
            for finding in sorted(findings(red), key=lambda each: each.sets[-1], reverse=True):
                ids = {self.published.cause_of[device, finding.case, key] for key in finding.sets}
                ways = (self.fixes.get((device, finding.case, key)) for key in reversed(finding.sets))
                once = {each.words: each for each in ways if each is not None}
                cause = next((self.causes[each] for each in ids if each in self.causes), None)
                yield ExplainedFailure(device=device, finding=finding, cause=cause, fixes=best_first(once.values()))

    def disagreements(self, case: str) -> Iterator[tuple[str, str]]:
        """Yield the columns on which devices disagree, with how near their versions are."""
        for column in self.published.columns:
            verdicts = {
                self.published.grids[device].verdicts.get((case, record.key)) for device, record in column.sets.items()
            }
            ran = {each for each in verdicts if each is not None and (each in RED or each.value == "pass")}
            if len({each in RED for each in ran}) > 1:
                yield column.key, column.near.value if column.near else ""

    def scripts(self, outcomes: Sequence[tuple[str, Outcome]]) -> Iterator[tuple[str, str]]:
        """Write the reproducer of the newest red cell of each device that has one; yield its cell and path."""
        for device, grid in self.published.grids.items():
            for on, red in reversed(outcomes):
                if on != device or red.verdict not in RED:
                    continue
                try:
                    made = reproducer(red, pins_of(red, grid))
                except (UserError, KeyError, ValueError):  # the generator does not cover this cell
                    continue
                path = f"download/cells/{device}-{file_name(red.cell)}.py"
                self.site.text(path, made.text)
                yield f"{device} {red.set}", path
                break

    def logs(self, device: str, outcome: Outcome) -> dict[str, str]:
        """Write the ends of a cell's log files to a file of their own; return its name, if there are any."""
        row = self.published.grids[device].rows[outcome.case, outcome.set]
        found = log_ends(row, outcome) or self.published.logs_of_same_failure(device, outcome)
        if not found:
            return {}
        name = f"logs/{device}-{file_name(outcome.cell)}"
        self.site.data(name, found)
        return {"logs": name}

    def cell(self, device: str, outcome: Outcome, scripts: Mapping[str, str]) -> dict[str, Any]:
        """Return what the page shows of one cell; empty values are left out."""
        record = self.published.set_record(device, outcome.set)
        error, key = outcome.error, (device, outcome.case, outcome.set)
        flaky = self.published.grids[device].flaky.get((outcome.case, outcome.set))
        values = {
            "device": device,
            "set": outcome.set,
            "verdict": outcome.verdict.value,
            "headline": headline(outcome, 600) if outcome.verdict.value != "pass" else "",
            "phase": outcome.phase.value if outcome.phase else "",
            "rates": rates(flaky) if flaky else "",
            "cause": self.published.cause_of.get(key, ""),
            "traceback": error.traceback or f"{error.type}: {error.message}" if error else "",
            "checks": [check_row(each) for each in outcome.checks],
            "location": location_words(outcome.location),
            "metrics": {words: outcome.metrics[name] for name, words in METRICS.items() if name in outcome.metrics},
            "pins": dict(record.pins) if record else {},
            "python": record.python if record else "",
            "facts": {name: value for name, value in outcome.facts.items() if value is not None},
            "hardware": outcome.hardware,
            "started": f"{outcome.started:%Y-%m-%d %H:%M} UTC",
            "seconds": round(outcome.seconds, 2),
            "lock": outcome.lock,
            "lockFile": f"download/locks/{file_name(outcome.set)}.txt" if outcome.set in self.locks else "",
            "code": outcome.code,
            "command": again(outcome.set, outcome.case, backend=record.torch_backend if record else ""),
            "repro": f"ftmatrix repro {CellKey(outcome.set, outcome.case)}" if outcome.verdict in RED else "",
            "script": scripts.get(f"{device} {outcome.set}", ""),
        }
        return {name: value for name, value in values.items() if value not in ("", None, [], {})}


def chart_data(device: str, outcome: Outcome, drawn: Sequence[ChartedCell]) -> dict[str, Any]:
    """Return the charts of a cell for the script of the page, or that the page itself has them."""
    if any((each.device, each.set) == (device, outcome.set) for each in drawn):
        return {"isCharted": True}
    cell = charted_cell(device, outcome)
    return {} if cell is None else {"series": cell.data}


def best_first(fixes: Iterable[CellFix]) -> tuple[CellFix, ...]:
    """Return verified fixes, then green neighbours; if there are none, one note on what was tried."""
    ordered = sorted(fixes, key=lambda each: (not each.proven, not each.green))
    return tuple(each for each in ordered if each.green) or tuple(ordered[:1])


def check_row(check: CheckRecord) -> list[Any]:
    """Return a check in words: what it compares, the value, the limit, and if it holds."""
    limit = "allowed" if is_distance(check) else LIMITS.get(check.op, check.op).rstrip(":")
    return [check.name, shown(check.value), f"{limit} {shown(check.bound)}", check.ok]


def code_of(outcome: Outcome, pins: Mapping[str, str]) -> str:
    """Return what a case does as the code that a user would write; empty for options that this version lacks."""
    call = outcome.options.get("call")
    if isinstance(call, str):
        return "\n".join(function_source(call)) if call in calls() else ""
    try:
        return "\n".join(user_script.lines(Options().but(**outcome.options), ApiVersions(pins)))
    except IllegalError:
        return ""


@cache
def calls() -> frozenset[str]:
    """Return the names of all calls of an API; to find them imports every module that has some."""
    return frozenset(api.load())


def write_locks(site: SiteWriter, published: PublishedData) -> frozenset[str]:
    """Write the locks of all sets that have one with the digest of their results; return their keys."""
    written = set()
    for (_, key), record in published.records.items():
        try:
            text = lock_text(record, folder=published.folder)
        except UserError:  # a set of a single question, or one that this installation cannot lock
            continue
        site.text(f"download/locks/{file_name(key)}.txt", text)
        written.add(key)
    return frozenset(written)
