"""``ftmatrix pr``: shows which cells a change of a package makes red or green, against a set or an earlier run.

The base side runs once: later comparisons take its cells from the cache while the lock, the case code and the hardware
are the same.

Exit codes: 0 no regression, 1 at least one regression, 2 bad input, such as a change that does not fit the set, 130
interrupted.
"""

# ruff: noqa: FBT002 - typer reads parameters and their defaults
from __future__ import annotations

import time
from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import Annotated

import typer
from rich.console import Console

from matrix.environments import disk
from matrix.errors import UserError
from matrix.run.execute import Suite
from matrix.run.request import RunRequest
from matrix.versions import sets as version_sets
from reports.commands.options import Device, KeepFree, TorchBackend, Versions, Where, Workers
from reports.commands.runs.pr_comparison import compare_with_base
from reports.commands.runs.pr_request import PrRequest
from reports.render import diff_documents, progress_bar
from reports.render.files import write_whole
from reports.render.text import diff_text

REGRESSED = 1


def pr(
    with_: Annotated[
        list[str],
        typer.Option(
            "--with",
            help="The change: a folder with a checkout, peft=git+https://HOST/OWNER/peft@BRANCH, a wheel, or "
            "peft==0.18.1; repeatable.",
            show_default=False,
        ),
    ],
    base: Annotated[
        str, typer.Option("--base", help="What to compare with: newest, a version set, or the directory of a run.")
    ] = "newest",
    profile: Annotated[
        str, typer.Option("--profile", help="Profile of cases: quick, default, full, nightly or gpu.")
    ] = "quick",
    where: Where = "",
    minutes: Annotated[
        float | None,
        typer.Option(
            "--minutes",
            help="Leave out cells that do not fit into this time, by past timings. Cells that execute a changed file "
            "come first, where `ftmatrix mutate` measured which lines they execute.",
        ),
    ] = None,
    repeat: Annotated[
        int,
        typer.Option(
            "--repeat", min=0, help="Run each cell that became red or green this many times more, where it is red."
        ),
    ] = 2,
    summary: Annotated[
        Path | None, typer.Option("--summary", help="Also write the comparison as Markdown to this file.")
    ] = None,
    device: Device = "auto",
    torch_backend: TorchBackend = "auto",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Directory of both runs; the same command continues it.", show_default="runs/pr-..."
        ),
    ] = None,
    workers: Workers = None,
    keep_free: KeepFree = disk.BUDGET / disk.GIGABYTE,
    every: Annotated[bool, typer.Option("--all", help="List every cell and every moved package.")] = False,
    versions: Versions = version_sets.PACKAGED,
) -> None:
    """Compare a set with and without the change of a package: which cells become red, and which green."""
    began = time.monotonic()
    progress = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)
    wish = PrRequest(
        run_request=RunRequest(
            replacements=tuple(with_),
            where=where,
            profile=profile,
            device=device,
            torch_backend=torch_backend,
            out=out,
            workers=workers,
            keep_free_gb=keep_free,
            versions=versions,
            suite=Suite(),
        ),
        base=base,
        minutes=minutes,
        repeats=repeat,
        watcher=lambda count: progress_bar.choose(progress, planned=count),
        say=progress.print,
    )
    diff, directory = compare_with_base(wish)
    if summary is not None:
        write_summary(diff_documents.as_markdown(diff), summary)
    console = Console()
    console.print(diff_text.TerminalDiff(diff=diff, every=every))
    console.print(f"Runs: {directory}, {time.monotonic() - began:.0f} s", highlight=False, soft_wrap=True)
    raise typer.Exit(REGRESSED if diff.regressions else 0)


def write_summary(text: str, path: Path) -> None:
    """Write the Markdown file.

    Raises:
        UserError: the file cannot be written.
    """
    try:
        write_whole(path, text)
    except OSError as error:
        raise UserError(f"--summary {path}: cannot be written ({error.strerror}); choose another file") from None
