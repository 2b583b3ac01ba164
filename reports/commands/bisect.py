"""``ftmatrix bisect``: finds the package and the release that made a green cell red.

Exit codes: 0 found, 1 the difference does not reproduce, 2 bad input, such as a cell that is not green at the good end
or not red at the bad end, 130 interrupted.
"""

# ruff: noqa: FBT002 - typer reads parameters and their defaults
from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads it
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from matrix.bisect import request as bisection
from matrix.bisect.request import BisectRequest
from matrix.bisect.search import FlakyDifferenceError
from matrix.environments import disk
from matrix.errors import UserError
from matrix.run import store, user_scripts
from matrix.run.execute import Suite
from matrix.run.request import RunRequest
from matrix.versions import sets as known_sets
from reports.answers.diagnosis import diagnose
from reports.answers.scripts.repro_cells import host_pins
from reports.answers.scripts.repro_script import reproducer
from reports.commands.options import AsJson, Device, KeepFree, Scripts, TorchBackend, Versions, Workers
from reports.render.files import write_whole
from reports.render.text import bisect_text
from reports.render.text.issue_text import issue
from reports.results.grid import grid

if TYPE_CHECKING:
    from matrix.bisect.answer import BisectAnswer
    from matrix.run.outcome import Outcome

NOT_REPRODUCED = 1
REPORT, ISSUE = "bisect.md", "issue.md"  # in the run directory


def bisect(
    cell: Annotated[str, typer.Argument(help="Red cell, SET__CASE, or its case with --bad.", show_default=False)],
    good: Annotated[str, typer.Option(help="Version set on which the case is green.", show_default=False)] = "",
    bad: Annotated[str, typer.Option(help="Version set on which it is red.", show_default="the set of the cell")] = "",
    since: Annotated[
        str,
        typer.Option(help="Instead of --good: the red set with a package at this release, e.g. peft==0.11.1."),
    ] = "",
    pre: Annotated[bool, typer.Option("--pre", help="Try pre-releases as well.")] = False,
    git: Annotated[
        str, typer.Option(help="Repository of the guilty package, to go on to its commits; pure-Python packages only.")
    ] = "",
    scripts: Scripts = None,
    device: Device = "auto",
    torch_backend: TorchBackend = "auto",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Run directory; the same command continues it.", show_default="runs/bisect-CASE-GOOD-BAD"
        ),
    ] = None,
    workers: Workers = None,
    keep_free: KeepFree = disk.BUDGET / disk.GIGABYTE,
    versions: Versions = known_sets.PACKAGED,
    as_json: AsJson = False,
) -> None:
    """Find the package, the release, and with --git the commit, that made a green cell red."""
    request = BisectRequest(
        run_request=RunRequest(
            device=device,
            torch_backend=torch_backend,
            out=out,
            workers=workers,
            keep_free_gb=keep_free,
            versions=versions,
            suite=Suite(scripts=user_scripts.load_all(scripts or ())),
        ),
        cell=cell,
        good=good,
        bad=bad,
        since=since,
        pre=pre,
        git=git,
    )
    say = Console(stderr=True, highlight=False, soft_wrap=True, markup=False).print
    try:
        directory, answer = bisection.run(request, cause=cause, say=say)
    except FlakyDifferenceError as error:
        typer.echo(f"ftmatrix: {error}", err=True)
        raise typer.Exit(NOT_REPRODUCED) from None
    write_whole(directory / REPORT, bisect_text.markdown(answer, directory))
    say(write_issue(directory, answer))
    typer.echo(answer.model_dump_json(by_alias=True, indent=1) if as_json else bisect_text.text(answer, directory))


def cause(outcome: Outcome) -> str:
    """The id of the signature that explains a failure; empty if none does."""
    best = next(iter(diagnose.diagnose(diagnose.symptom(outcome, {}))), None)
    return best.signature.id if best else ""


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
