"""``ftmatrix fix``: finds the green cell nearest to a red one, and prints the edit that leads there.

Exit codes: 0 a fix for every cell, 1 no fix for at least one cell within the changes tried, 2 bad input, 130
interrupted.
"""

# ruff: noqa: FBT002 - typer reads parameters and their defaults
from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads it
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from matrix.environments import disk
from matrix.run.request import RunRequest
from matrix.search.fixes import Kind
from matrix.search.neighbours import MAX_RADIUS
from matrix.versions import sets as known_sets
from reports.answers import knowledge
from reports.answers.fixes import remedies
from reports.commands.options import (
    AsJson,
    Device,
    KeepFree,
    Offline,
    Out,
    Resume,
    SystemPython,
    SystemTorch,
    TorchBackend,
    Versions,
    Workers,
)
from reports.commands.runs import fix_search

if TYPE_CHECKING:
    from reports.answers.fixes.remedies import Remedy

NONE_FOUND = 1


def fix(
    cell: Annotated[str, typer.Argument(help="Red cell, SET__CASE, as the report names it.", show_default=False)] = "",
    every: Annotated[bool, typer.Option("--all", help="Fix every red cell of --profile on --sets.")] = False,
    known: Annotated[str, typer.Option(help="Fix the red cells of known problems: ids, families, or all.")] = "",
    sets: Annotated[
        str,
        typer.Option(
            "--sets",
            help="With --all: default, slices, all, or keys.",
            show_default="slices; with --offline all of its sets",
        ),
    ] = "",
    profile: Annotated[str, typer.Option("--profile", help="With --all: quick, default, full or nightly.")] = "default",
    results: Annotated[
        Path,
        typer.Option("--from", help="Results to start from: a run directory or a folder.", show_default="published"),
    ] = knowledge.PUBLISHED,
    look_up: Annotated[bool, typer.Option("--look-up", help="Only look up earlier fixes; run nothing.")] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Only run the fixes of earlier searches again; search for no other.")
    ] = False,
    only: Annotated[str, typer.Option(help="Only these kinds of change: settings, versions, alternative.")] = "",
    environments: Annotated[
        int, typer.Option(min=0, help="Maximum number of further version sets to run for the cells of one set.")
    ] = 6,
    radius: Annotated[
        int, typer.Option(min=1, max=MAX_RADIUS, help="Maximum number of changes to combine.")
    ] = MAX_RADIUS,
    device: Device = "auto",
    torch_backend: TorchBackend = "auto",
    out: Out = None,
    resume: Resume = False,
    workers: Workers = None,
    keep_free: KeepFree = disk.BUDGET / disk.GIGABYTE,
    versions: Versions = known_sets.PACKAGED,
    offline: Offline = None,
    system_torch: SystemTorch = False,
    system_python: SystemPython = "python3",
    publish: Annotated[
        Path | None, typer.Option(help="Write fixes.json.gz, and the cells that were run, to this folder.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find the nearest green cell by settings, then versions, then alternatives; prove it by running it."""
    run_request = RunRequest(
        device=device,
        torch_backend=torch_backend,
        out=out,
        resume=resume,
        workers=workers,
        keep_free_gb=keep_free,
        versions=versions,
        profile=profile,
        sets=sets or ("slices" if offline is None else "all"),
        offline=offline,
        system_torch=system_torch,
        system_python=system_python,
        cold_sample=0,
        repeats=1,
    )
    wish = fix_search.FixOptions(
        cell=cell,
        look_up=look_up,
        again=again,
        every=every,
        known=known,
        results=results,
        only=only,
        environments=environments,
        radius=radius,
    )
    order = fix_search.order(run_request, wish)
    say = Console(stderr=True, highlight=False, soft_wrap=True).print
    remedies = fix_search.looked_up(order, say=say) if look_up else searched(order, publish)
    typer.echo(fix_search.fixes_json(remedies) if as_json else "\n\n".join(fix_search.fix_texts(remedies, order)))
    raise typer.Exit(NONE_FOUND if any(each.fix.kind is Kind.NONE for each in remedies) else 0)


def searched(order: fix_search.FixRequest, publish: Path | None) -> tuple[Remedy, ...]:
    console = Console(stderr=True, highlight=False)
    directory, fixes = fix_search.search(order, say=console.print)
    if publish is not None:
        fix_search.publish(directory, publish)
    console.print(f"Fixes: {directory / remedies.FIXES}", soft_wrap=True)
    return fixes
