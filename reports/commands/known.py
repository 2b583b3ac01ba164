"""``ftmatrix known``: reruns the cells of known problems or findings and reports which ones still reproduce.

Exit codes: 0 finished, 1 at least one cell was lost, 2 bad input, 130 interrupted.
"""

# ruff: noqa: FBT002 - typer reads parameters and their defaults
from __future__ import annotations

import json
from functools import partial
from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console

from cases.space.verdict import Verdict
from matrix.environments import disk
from matrix.errors import UserError
from matrix.known import findings as own_findings
from matrix.known import known_problems as problems
from matrix.known import script_runs
from matrix.run import request
from matrix.versions import sets as version_sets
from reports.answers.devices import named_cells
from reports.answers.devices.compare import CUDA
from reports.answers.knowledge import PUBLISHED
from reports.commands.options import Device, KeepFree, Out, Resume, TorchBackend, Versions, Workers
from reports.commands.report import show
from reports.commands.runs import known_scripts
from reports.render import findings_page, known_page, progress_bar
from reports.render.files import write_whole
from reports.results import known_results
from reports.results.known_results import Reproduction
from reports.results.loading import load

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from matrix.known.script_runs import ScriptRecord
    from matrix.run.outcome import RunRecord
    from reports.results.known_results import GpuResults, ProblemResult
    from reports.results.loading import RunResults

    Draw = Callable[[RunRecord, Sequence[ProblemResult]], str]

LOST = 1
WIDTH: Final = max(len(each) for each in Reproduction)
PROBLEM_PAGES: Final[Mapping[str, Draw]] = {"known_problems.md": known_page.markdown}


def pages_of_findings(scripts: ScriptRecord) -> Mapping[str, Draw]:
    """The pages of findings, with the runs of their scripts."""
    pages = {"findings.md": findings_page.bugs, "by_design.md": findings_page.by_design}
    return {name: partial(draw, scripts=scripts) for name, draw in pages.items()}


def known(
    sets: Annotated[
        str,
        typer.Option(
            "--sets",
            help="Only on these version sets.",
            show_default="every set of a known problem; with --reproduce, the dated sets",
        ),
    ] = "",
    only: Annotated[str, typer.Option(help="Only these problems: ids separated by commas.")] = "",
    device: Device = "auto",
    torch_backend: TorchBackend = "auto",
    out: Out = None,
    resume: Resume = False,
    workers: Workers = None,
    keep_free: KeepFree = disk.BUDGET / disk.GIGABYTE,
    versions: Versions = version_sets.PACKAGED,
    findings: Annotated[
        bool, typer.Option("--findings", help="Run the findings of the grid instead of upstream issues.")
    ] = False,
    reproduce: Annotated[
        bool,
        typer.Option(
            "--reproduce",
            help="With --findings, run the script of each instead of cells, and add the results to reproducers.json.gz "
            "in --out. With --resume, leave out what that file has.",
        ),
    ] = False,
    results: Annotated[
        Path | None,
        typer.Option(
            help="Run nothing: judge these stored results, a run directory or published results, and write to --out."
        ),
    ] = None,
    gpu_results: Annotated[
        Path,
        typer.Option(
            help="Judge the cells that a problem names for GPUs by published results in this folder and below it, "
            "unless the run itself is on GPUs.",
            show_default="the published results",
        ),
    ] = PUBLISHED,
    table: Annotated[
        Path, typer.Option(help="TOML file of known problems.", show_default="the packaged file")
    ] = problems.PACKAGED,
) -> None:
    """Run known upstream issues: reproduced, red with another error, not reproduced, or needing other hardware."""
    console = Console()
    if findings and table != problems.PACKAGED:
        raise UserError("--findings and --table name different tables; give one of them")
    every = own_findings.load() if findings else problems.load(table)
    chosen = problems.select(every, only)
    if reproduce and (not findings or out is None or results is not None):
        raise UserError("--reproduce runs the scripts of findings: add --findings and --out, leave out --results")
    if results is not None:
        run = load(results)
        gpus = judging_gpus(run.record.device, chosen, gpu_results)
        raise typer.Exit(show_known(run, results, chosen, console, findings=findings, gpus=gpus, out=out))
    run_request = request.RunRequest(
        sets=sets or ("slices" if reproduce else "all"),
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
    if reproduce and out is not None:
        raise typer.Exit(known_scripts.reproduce(run_request, chosen, out, say=partial(print, flush=True)))
    gpus = judging_gpus(run_request.resolved_device, chosen, gpu_results)  # bad input ends here, before any cell runs
    work = problems.work(
        chosen, run_request.version_sets(), run_request.suite.cases, device=run_request.resolved_device
    )
    watcher = progress_bar.choose(console, planned=sum(len(cases) for _, cases in work))
    directory = request.run(run_request, work=work, watcher=watcher, say=console.print)
    show(directory, console)
    raise typer.Exit(show_known(load(directory), directory, chosen, console, findings=findings, gpus=gpus))


def judging_gpus(device: str, chosen: Sequence[problems.Problem], folder: Path) -> GpuResults | None:
    """Return the stored results on GPUs that judge the cells for GPUs; none if the run itself is on GPUs.

    Raises:
        UserError: the folder has no such results.
    """
    return None if device == CUDA else named_cells.stored(chosen, folder)


def show_known(
    run: RunResults,
    directory: Path,
    chosen: Sequence[problems.Problem],
    console: Console,
    *,
    findings: bool,
    gpus: GpuResults | None,
    out: Path | None = None,
) -> int:
    """Write the known problems with their results, print one line for each; return the exit code."""
    target = out or directory
    target.mkdir(parents=True, exist_ok=True)
    own = named_cells.of_run(run) if run.record.device == CUDA else gpus
    problem_results = known_results.judged(chosen, run.matrix, own)
    name = "findings" if findings else "known_problems"
    scripts = script_runs.read(directory / script_runs.FILE)
    for page, draw in (pages_of_findings(scripts) if findings else PROBLEM_PAGES).items():
        write_whole(target / page, draw(run.record, problem_results))
    write_whole(target / f"{name}.json.gz", json.dumps(known_results.document(problem_results), indent=1) + "\n")
    for each in problem_results:
        console.print(f"{each.status.value:{WIDTH}} {each.problem.id}", highlight=False, markup=False)
    console.print(f"Details: {target / name}.md", soft_wrap=True, highlight=False)
    return LOST if run.matrix.counts()[Verdict.LOST] else 0
