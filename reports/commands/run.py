"""``ftmatrix run``: installs version sets, runs their cells and renders the matrix.

Exit codes: 0 finished (red cells are results, not errors), 1 at least one cell was lost or, with --fail-on-red, is red
or blocked, 2 bad input, 130 interrupted.
"""

# ruff: noqa: FBT002 - typer reads parameters and their defaults
from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from matrix.environments import disk
from matrix.run import both, location, request, run_plan
from matrix.run.execute import Suite
from matrix.run.scripts import user_scripts
from matrix.versions import sets as version_sets
from reports.commands.options import (
    KeepFree,
    Offline,
    Out,
    Profile,
    Repeat,
    Resume,
    RunDevice,
    Scripts,
    Sets,
    SystemPython,
    SystemTorch,
    TorchBackend,
    Versions,
    Where,
    With,
    Workers,
)
from reports.commands.report import show
from reports.render import progress_bar


def run(
    sets: Sets = "",
    where: Where = "",
    profile: Profile = "",
    device: RunDevice = "auto",
    torch_backend: TorchBackend = "auto",
    out: Out = None,
    resume: Resume = False,
    workers: Workers = None,
    keep_free: KeepFree = disk.BUDGET / disk.GIGABYTE,
    scripts: Scripts = None,
    with_: With = None,
    fail_on_red: Annotated[
        bool, typer.Option("--fail-on-red", help="Exit with 1 if a cell is red or blocked, for CI.")
    ] = False,
    cold: Annotated[
        bool, typer.Option("--cold", help="Start a new interpreter per rank instead of forking a warm one.")
    ] = False,
    repeat: Repeat = None,
    cold_sample: Annotated[
        int, typer.Option(help="Number of cells per version set to run a second time with --cold and compare.")
    ] = 1,
    locate: Annotated[
        str,
        typer.Option(
            help="Cells to run once more to find the first module that deviates: wrong, red (also those that raise), "
            "all or none."
        ),
    ] = location.NONE,
    versions: Versions = version_sets.PACKAGED,
    offline: Offline = None,
    system_torch: SystemTorch = False,
    system_python: SystemPython = "python3",
) -> None:
    """Install version sets, run their cells and render the matrix."""
    console = Console()
    run_request = request.RunRequest(
        sets=sets,
        where=where,
        profile=profile,
        device=device,
        torch_backend=torch_backend,
        out=out,
        resume=resume,
        workers=workers,
        keep_free_gb=keep_free,
        cold=cold,
        cold_sample=cold_sample,
        repeats=repeat,
        locate=locate,
        versions=versions,
        offline=offline,
        system_torch=system_torch,
        system_python=system_python,
        replacements=tuple(with_ or ()),
        suite=Suite(scripts=user_scripts.load_all(scripts or ())),
    )
    parts = both.parts(run_request, say=console.print)
    planned = sum(run_plan.cell_count(each.work() if work is None else work, each.repeat_count) for each, work in parts)
    directories = request.run_all(
        parts,
        watcher=progress_bar.choose(console, planned=planned),
        say=console.print,
        on_interruption=lambda directory: show(directory, console),
    )
    raise typer.Exit(max(show(each, console, fail_on_red=fail_on_red) for each in directories))
