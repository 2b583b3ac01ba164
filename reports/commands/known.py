"""``ftmatrix known``: reruns the cells of known problems and reports which ones still reproduce.

Exit codes: 0 finished, 1 at least one cell was lost, 2 bad input, 130 interrupted.
"""

# ruff: noqa: FBT002 - typer reads parameters and their defaults
from __future__ import annotations

import json
from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from cases.space.verdict import Verdict
from matrix.environments import disk
from matrix.errors import UserError
from matrix.known import known_problems as problems
from matrix.run import request
from matrix.versions import sets as version_sets
from reports.commands.options import Device, KeepFree, Out, Resume, TorchBackend, Versions, Workers
from reports.commands.report import show
from reports.render import known_page, progress_bar
from reports.render.write import write_whole
from reports.results import known_results
from reports.results.loading import load

if TYPE_CHECKING:
    from collections.abc import Sequence

LOST = 1


def known(
    sets: Annotated[
        str, typer.Option("--sets", help="Only on these version sets.", show_default="every set of a known problem")
    ] = "all",
    only: Annotated[str, typer.Option(help="Only these problems: ids separated by commas.")] = "",
    device: Device = "auto",
    torch_backend: TorchBackend = "auto",
    out: Out = None,
    resume: Resume = False,
    workers: Workers = None,
    keep_free: KeepFree = disk.BUDGET / disk.GIGABYTE,
    versions: Versions = version_sets.PACKAGED,
    findings: Annotated[
        bool, typer.Option("--findings", help="Run our own findings instead of upstream issues.")
    ] = False,
    table: Annotated[
        Path, typer.Option(help="TOML file of known problems.", show_default="the packaged file")
    ] = problems.PACKAGED,
) -> None:
    """Run known upstream issues and report each as reproduced, not reproduced, or needing other hardware."""
    console = Console()
    if findings and table != problems.PACKAGED:
        raise UserError("--findings and --table name different tables; give one of them")
    run_request = request.RunRequest(
        sets=sets,
        device=device,
        torch_backend=torch_backend,
        out=out,
        resume=resume,
        workers=workers,
        keep_free_gb=keep_free,
        cold_sample=0,
        repeats=1,
        versions=versions,
    )
    chosen = problems.select(problems.load(problems.FINDINGS if findings else table), only)
    work = problems.work(chosen, run_request.version_sets(), run_request.suite.cases)
    watcher = progress_bar.choose(console, planned=sum(len(cases) for _, cases in work))
    directory = request.run(run_request, work=work, watcher=watcher, say=console.print)
    show(directory, console)
    raise typer.Exit(show_known(directory, chosen, console, findings=findings))


def show_known(directory: Path, chosen: Sequence[problems.Problem], console: Console, *, findings: bool) -> int:
    """Write the known problems with their results, print one line for each; return the exit code."""
    results = load(directory)
    problem_results = known_results.judged(chosen, results.matrix)
    name, draw = ("findings", known_page.findings) if findings else ("known_problems", known_page.markdown)
    write_whole(directory / f"{name}.md", draw(results.record, problem_results))
    write_whole(directory / f"{name}.json", json.dumps(known_results.document(problem_results), indent=1) + "\n")
    for each in problem_results:
        console.print(f"{each.status.value:20} {each.problem.id}", highlight=False, markup=False)
    console.print(f"Details: {directory / name}.md", soft_wrap=True, highlight=False)
    return LOST if results.matrix.counts()[Verdict.LOST] else 0
