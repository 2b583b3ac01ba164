"""``ftmatrix devices``: which cases a CPU and GPUs do not agree on.

Exit codes: 0 something ran on both (differences are findings), 1 nothing did, 2 bad input.
"""

# ruff: noqa: FBT002 - typer reads parameters and their defaults
from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import Annotated

import typer

from matrix.errors import UserError
from reports.answers import knowledge
from reports.answers.devices import dumped, everything
from reports.render.devices_text import lines
from reports.render.markdown import differences
from reports.render.write import write_whole

NOTHING = 1


def devices(
    results: Annotated[
        Path, typer.Option("--results", help="Folder of results.", show_default="the published ones")
    ] = knowledge.PUBLISHED,
    write: Annotated[
        Path | None, typer.Option("--write", help="Write it there, as devices.json, and devices.md beside it.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """List where CPU and GPU differ: the same case on both, on the nearest sets."""
    found = everything(knowledge.by_device(results))
    if write is not None:
        if write.suffix != ".json":
            raise UserError(f"--write {write}: the name ends in .json; the same as .md is written beside it")
        write_file(write, dumped(found))
        write_file(write.with_suffix(".md"), differences(found))
        typer.echo(f"Written: {write} and {write.with_suffix('.md').name}", err=True)
    else:
        typer.echo(dumped(found).rstrip() if as_json else "\n".join(lines(found)))
    raise typer.Exit(0 if found.pairs else NOTHING)


def write_file(path: Path, text: str) -> None:
    try:
        write_whole(path, text)
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror}); name another file") from None
