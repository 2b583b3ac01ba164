"""Writes what a bisection found beside its run: the answer as Markdown, and a bug report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from matrix.api_map.query import ApiMap
from matrix.errors import UserError
from matrix.run import store
from reports.answers.api import release_changes
from reports.answers.diagnosis import diagnose
from reports.answers.scripts.repro_cells import host_pins
from reports.answers.scripts.repro_script import reproducer
from reports.render import bisections_page
from reports.render.files import write_whole
from reports.render.text import bisect_text
from reports.render.text.issue_text import issue
from reports.results import bisections
from reports.results.grid import grid

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from matrix.bisect.answer import BisectAnswer
    from matrix.run.outcome import Outcome
    from matrix.versions.moved_packages import MovedPackage

REPORT: Final = "bisect.md"
ISSUE: Final = "issue.md"


def write(directory: Path, answer: BisectAnswer) -> str:
    """Write both; return a sentence about the bug report."""
    write_whole(directory / REPORT, bisect_text.markdown(answer, directory))
    return write_issue(directory, answer)


def recorded(answer: BisectAnswer, results: Path) -> Path:
    """Store an answer in a folder of published results, and draw the page of all of them; return the page.

    Raises:
        UserError: the folder cannot be written, or has a damaged answer.
    """
    bisections.record(answer, results)
    page = results / bisections_page.PAGE
    write_whole(page, bisections_page.markdown(bisections.load(results)))
    return page


def cause(outcome: Outcome) -> str:
    """The id of the signature that explains a failure; empty if none does."""
    best = next(iter(diagnose.diagnose(diagnose.symptom(outcome, {}))), None)
    return best.signature.id if best else ""


def api_changes(moved: MovedPackage, failure: Outcome) -> str:
    """What a release changed in its API, names of the failure first; empty if nothing, or if the map lacks it."""
    return release_changes.sentence(ApiMap(), moved, failure="\n".join(symptom_texts(failure)))


def symptom_texts(failure: Outcome) -> Iterator[str]:
    yield failure.reason
    if failure.error is not None:
        yield failure.error.message


def write_issue(directory: Path, answer: BisectAnswer) -> str:
    """Write the text of a bug report of the first red candidate; return a sentence about it."""
    record, sets, outcomes = store.read(directory)
    matrix = grid(record, sets, outcomes)
    first = answer.culprits[0].first_bad_set
    outcome = matrix.lookup(answer.case, first)
    column = next((each for each in sets if each.key == first), None)
    if outcome is None or column is None:
        return "No bug report: the first red candidate has no outcome."
    try:
        script = reproducer(outcome, host_pins(column))
    except UserError as error:
        return f"No script for a bug report: {error}"
    report = issue(script, outcome, matrix)
    write_whole(directory / ISSUE, report.rstrip() + "\n\n" + bisect_text.markdown_section(answer))
    return f"Bug report, for the repository of {answer.culprits[0].package}: {directory / ISSUE}"
