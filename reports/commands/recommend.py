"""``ftmatrix recommend``: the newest version set on which everything needed is green.

Exit codes: 0 there is one, 1 there is none, or nothing was measured on the device, 2 bad input.
"""

# ruff: noqa: FBT002 - typer reads parameters and their defaults
from __future__ import annotations

import json
from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import TYPE_CHECKING, Annotated

import typer

from matrix.errors import UserError
from reports.answers import knowledge
from reports.answers.support.query import parse
from reports.answers.support.recommend import lock_text, recommend_on, requirement
from reports.render.recommend_text import lines
from reports.render.write import write_whole

if TYPE_CHECKING:
    from matrix.run.outcome import SetRecord
    from reports.results.grid import Grid

NONE = 1
DEVICES = ("cpu", "cuda")


def recommend(
    need: Annotated[
        list[str], typer.Option("--need", help="Words or terms: 'qlora fsdp2', 'quant=nf4 loop!=eval'; repeatable.")
    ],
    have: Annotated[
        list[str] | None, typer.Option("--have", help="What is given, e.g. torch==2.8.0; repeatable.")
    ] = None,
    device: Annotated[str, typer.Option("--device", help="Whose results count: cpu (gloo) or cuda.")] = "cpu",
    lock: Annotated[Path | None, typer.Option("--lock", help="Write the set's hash-locked requirements there.")] = None,
    results: Annotated[
        Path, typer.Option("--results", help="Folder of results.", show_default="the published ones")
    ] = knowledge.PUBLISHED,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Name the newest version set on which everything needed is green, and what shows it."""
    needs, given = [parse(each) for each in need], [requirement(each) for each in have or ()]
    found = recommend_on(device, grids_of(results, device), needs, given)
    if as_json:
        typer.echo(json.dumps(found.as_json(), indent=1))
    else:
        typer.echo("\n".join(lines(found)))
    if lock is not None:
        if found.best is not None:
            write_lock(found.best.column, lock)
        typer.echo(f"Locked: {lock}" if found.best is not None else f"{lock}: not written, for want of a set", err=True)
    raise typer.Exit(0 if found.best is not None else NONE)


def grids_of(results: Path, device: str) -> dict[str, Grid]:
    """What was measured, by device.

    Raises:
        UserError: there is no such device, or a result cannot be read.
    """
    if device not in DEVICES:
        raise UserError(f"--device {device!r}: results are of {' or '.join(DEVICES)}")
    return knowledge.by_device(results)


def write_lock(column: SetRecord, path: Path) -> None:
    text = lock_text(column)
    try:
        write_whole(path, text)
    except OSError as error:
        raise UserError(f"{path}: the lock cannot be written ({error.strerror}); name another file") from None
