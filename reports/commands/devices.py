"""``ftmatrix devices``: lists the cases whose results on a CPU and on GPUs differ.

Exit codes: 0 at least one case ran on both, 1 none did, 2 bad input.
"""

# ruff: noqa: FBT002 - typer reads parameters and their defaults
from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import Annotated

import typer

from matrix.errors import UserError
from reports.answers import knowledge
from reports.answers.devices import own_locks
from reports.answers.devices.compare import dumped, everything
from reports.commands.options import AsJson, Results
from reports.render.files import write_whole
from reports.render.gpu_families import section
from reports.render.gpu_page import gpu_page as drawn
from reports.render.markdown import differences
from reports.render.text.devices_text import lines

NOTHING = 1


def devices(
    results: Results = knowledge.PUBLISHED,
    write: Annotated[
        Path | None,
        typer.Option("--write", help="Write the comparison to this .json file, and to a .md file of the same name."),
    ] = None,
    gpu_page: Annotated[
        Path | None,
        typer.Option("--gpu-page", help="Write the GPU results of the dated sets, from their own locks, to this file."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the cases that differ between CPU and GPU, each compared on the nearest version sets."""
    if write is not None and write.suffix != ".json":
        raise UserError(f"--write {write}: expected a name that ends in .json")
    if gpu_page is not None:
        everywhere = own_locks.whole_grid(results)
        matrix = own_locks.restricted(everywhere)
        write_file(gpu_page, drawn(matrix, own_locks.columns(matrix, results)) + section(everywhere))
        typer.echo(f"Wrote {gpu_page}", err=True)
        return
    comparison = everything(knowledge.by_device(results))
    if write is not None:
        write_file(write, dumped(comparison))
        write_file(write.with_suffix(".md"), differences(comparison))
        typer.echo(f"Wrote {write} and {write.with_suffix('.md').name}", err=True)
    else:
        typer.echo(dumped(comparison).rstrip() if as_json else "\n".join(lines(comparison)))
    raise typer.Exit(0 if comparison.pairs else NOTHING)


def write_file(path: Path, text: str) -> None:
    try:
        write_whole(path, text)
    except OSError as error:
        raise UserError(f"{path}: cannot write the file ({error.strerror}); name another file") from None
