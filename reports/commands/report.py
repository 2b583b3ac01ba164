"""``ftmatrix report``: renders a run again, or published results, or publishes a run.

Exit codes: 0 rendered, 1 rendered and at least one cell was lost, 2 bad input.
"""

# ruff: noqa: FBT002 - typer reads parameters and their defaults
from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from cases.space.verdict import RED, Verdict
from matrix.errors import UserError
from matrix.run import request, store
from reports.answers import answer_index, knowledge
from reports.answers.overview import overview
from reports.render import write
from reports.render.files import write_whole
from reports.render.terminal import TerminalReport
from reports.results import stored_results
from reports.results.loading import load

if TYPE_CHECKING:
    from collections.abc import Sequence

LOST_OR_RED = 1


def report(
    directories: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Run directory, or folder of published results. Further directories hold runs on the other kind of "
            "device; the report compares with them instead of with the published results.",
            show_default="the latest run",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the rendered files.", show_default="the run directory")
    ] = None,
    publish: Annotated[
        Path | None,
        typer.Option(
            help="Write outcomes.parquet and the ends of logs of red cells to this folder, instead of a page."
        ),
    ] = None,
    index: Annotated[
        bool,
        typer.Option(
            "--index",
            help="Write the index of a folder of published results, which answers load, and matrix.md of its own run.",
        ),
    ] = False,
    site: Annotated[
        Path | None,
        typer.Option(
            help="Write the site of all results in a folder to this folder: a page per case, feature, cause and "
            "finding. The results may be published ones, a run, or several runs; by default those of ftmatrix itself."
        ),
    ] = None,
) -> None:
    """Render a run, finished or not: index.html, matrix.md, matrix.json, outcomes.parquet, junit.xml, terminal."""
    if site is not None:
        if index or publish is not None or out is not None or len(directories or []) > 1:
            raise UserError("--site takes one folder of results, and no other option")
        write_site((directories or [knowledge.PUBLISHED])[0], site)
        return
    first, *others = directories or [store.newest_runs(request.RUNS)[0]]
    if index:
        if publish is not None or others or out is not None:
            raise UserError("--index takes one folder of published results, and no other option")
        write_index(first)
        return
    runs = store.runs_in(first) if directories else store.newest_runs(request.RUNS)
    raise typer.Exit(show_all(runs, out=out, publish=publish, others=others))


def show_all(runs: Sequence[Path], *, out: Path | None, publish: Path | None, others: Sequence[Path]) -> int:
    """Render the results of each run; return the highest exit code.

    Raises:
        UserError: a run cannot be read or rendered, or an option takes one run and there are several.
    """
    if len(runs) > 1 and (publish is not None or others):
        names = ", ".join(each.name for each in runs)
        raise UserError(f"{runs[0].parent} holds a run for each device ({names}); give one of them")
    targets = [out / each.name if out is not None and len(runs) > 1 else out for each in runs]
    codes = [
        show(run, Console(), out=each, publish=publish, others=others) for run, each in zip(runs, targets, strict=True)
    ]
    return max(codes)


def write_index(folder: Path) -> None:
    """Write what a folder of published results keeps of them for answers and for readers on GitHub.

    Raises:
        UserError: the folder holds no results, or a file cannot be read or written.
    """
    write_whole(folder / answer_index.FILE, knowledge.index_content(folder))
    typer.echo(f"Index: {folder / answer_index.FILE}")
    if stored_results.locate(folder) is not None:
        typer.echo(f"Summary: {write.summarise(load(folder), folder)}")


def write_site(results: Path, folder: Path) -> None:
    """Write the site, and print its size.

    Raises:
        UserError: the results cannot be read, or the folder cannot be written.
    """
    from reports.site.build import build  # its pages need everything that answers questions

    site = build(results, folder)
    size = f"{site.files} files, {site.size / 1e6:.0f} MB"
    for problem in site.problems:
        typer.echo(problem, err=True)
    typer.echo(f"Site: {site.folder / 'index.html'} ({size}, {site.cells} cells, {site.seconds:.0f} s)")


def show(
    directory: Path,
    console: Console,
    *,
    out: Path | None = None,
    publish: Path | None = None,
    others: Sequence[Path] = (),
    fail_on_red: bool = False,
) -> int:
    """Render results, print them and the path of the report; return the exit code.

    It is 1 if a cell was lost or, with ``fail_on_red``, is red or blocked: a blocked cell was not measured at all.

    Raises:
        UserError: the results cannot be read, or the report cannot be written.
    """
    results = load(directory)
    record, matrix = results.record, results.matrix
    known = overview(record, matrix, knowledge.other_devices(record.device, others) if others else None)
    if publish is not None:
        path = write.publish(results, publish, evidence=directory, known=known)
    else:
        path = write.render(results, target(directory, out), evidence=directory, known=known)
    console.print(TerminalReport(record=record, grid=matrix, known=known))
    for problem in results.problems:
        console.print(problem, soft_wrap=True, highlight=False, style="bold yellow")
    console.print(f"Report: {path}", soft_wrap=True, highlight=False)
    failing = {Verdict.LOST, *((*RED, Verdict.BLOCKED) if fail_on_red else ())}
    return LOST_OR_RED if any(matrix.counts()[verdict] for verdict in failing) else 0


def target(directory: Path, out: Path | None) -> Path:
    """Return the folder to render into: ``out``, or the run directory.

    Raises:
        UserError: the directory holds published results, where no page belongs.
    """
    if out is None and not (directory / store.RUN).exists():
        raise UserError(f"{directory} holds published results; name a folder for the rendered files with --out")
    return out or directory
