"""``ftmatrix bisect``: finds the package and the release that made a green cell red.

Exit codes: 0 found, 1 the difference does not reproduce, 2 bad input, such as a cell that is not green at the good end
or not red at the bad end, 130 interrupted.
"""

# ruff: noqa: FBT002 - typer reads parameters and their defaults
from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads it
from typing import Annotated

import typer
from rich.console import Console

from matrix.bisect import request as bisection
from matrix.bisect.ends import MINUTES, FlakyDifferenceError
from matrix.bisect.request import BisectRequest
from matrix.environments import disk
from matrix.run.execute import Suite
from matrix.run.request import RunRequest
from matrix.run.scripts import user_scripts
from matrix.versions import sets as known_sets
from reports.commands.options import AsJson, Device, KeepFree, Scripts, TorchBackend, Versions, Workers
from reports.commands.runs import bisect_report
from reports.render.text import bisect_text

NOT_REPRODUCED = 1


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
    minutes: Annotated[
        float, typer.Option(min=0, help="Refuse a failure that does not show in every run, if its search takes longer.")
    ] = MINUTES,
    scripts: Scripts = None,
    device: Device = "auto",
    torch_backend: TorchBackend = "auto",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Run directory; the same command continues it.", show_default="runs/bisect-CASE-GOOD-BAD"
        ),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(help="Also store the answer in this folder of published results, and draw its page."),
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
        minutes=minutes,
    )
    say = Console(stderr=True, highlight=False, soft_wrap=True, markup=False).print
    try:
        directory, answer = bisection.run(request, cause=bisect_report.cause, api=bisect_report.api_changes, say=say)
    except FlakyDifferenceError as error:
        typer.echo(f"ftmatrix: {error}", err=True)
        raise typer.Exit(NOT_REPRODUCED) from None
    say(bisect_report.write(directory, answer))
    if record is not None:
        say(f"Recorded in {bisect_report.recorded(answer, record)}")
    if as_json:
        typer.echo(answer.model_dump_json(by_alias=True, indent=1))
    else:
        typer.echo(bisect_text.text(answer, directory))
