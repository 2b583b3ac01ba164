"""``ftmatrix recommend``: names the newest version set on which the given features are green.

Exit codes: 0 found, 1 no such set, or no results for the device, 2 bad input.
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
from reports.commands.options import AsJson, Results, ResultsDevice, results_device
from reports.render.recommend_text import lines
from reports.render.write import write_whole

if TYPE_CHECKING:
    from matrix.run.outcome import SetRecord

NONE = 1


def recommend(
    query: Annotated[
        list[str], typer.Option("--need", help="Features: 'qlora fsdp2', 'quant=nf4 loop!=eval'; repeatable.")
    ],
    have: Annotated[
        list[str] | None, typer.Option("--have", help="Version constraint to respect, e.g. torch==2.8.0; repeatable.")
    ] = None,
    device: ResultsDevice = "auto",
    lock: Annotated[
        Path | None, typer.Option("--lock", help="Write the set's requirements, with hashes, to this file.")
    ] = None,
    results: Results = knowledge.PUBLISHED,
    as_json: AsJson = False,
) -> None:
    """Name the newest version set on which all the given features are green, and the cells that prove it."""
    queries, given = [parse(each) for each in query], [requirement(each) for each in have or ()]
    for renaming in (renaming for each in queries for renaming in each.renamings):
        typer.echo(f"--need {renaming}", err=True)
    recommendation = recommend_on(results_device(device), knowledge.by_device(results), queries, given)
    if as_json:
        typer.echo(json.dumps(recommendation.as_json(), indent=1))
    else:
        typer.echo("\n".join(lines(recommendation)))
    if lock is not None:
        if recommendation.best is not None:
            write_lock(recommendation.best.column, lock)
        typer.echo(
            f"Wrote {lock}" if recommendation.best is not None else f"{lock}: not written: no set to lock", err=True
        )
    raise typer.Exit(0 if recommendation.best is not None else NONE)


def write_lock(column: SetRecord, path: Path) -> None:
    text = lock_text(column)
    try:
        write_whole(path, text)
    except OSError as error:
        raise UserError(f"{path}: cannot write the lock ({error.strerror}); name another file") from None
