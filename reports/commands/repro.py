"""``ftmatrix repro``: one file that shows what a red cell measured, for a bug report.

Exit codes: 0 it is made (and, with ``--check``, shows the same), 1 with ``--check`` it does not, 2 bad input, such as a
cell that is not red or that the generator does not cover.
"""

# ruff: noqa: FBT002 - typer reads parameters and their defaults
from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import Annotated

import typer

from reports.answers import knowledge
from reports.commands import repro_report

NOT_THE_SAME = 1


def repro(
    cell: Annotated[str, typer.Argument(help="SET__CASE, as the report names it.")],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="File to write, or a folder.", show_default="stdout")
    ] = None,
    issue: Annotated[bool, typer.Option("--issue", help="The text of the bug report, with the script in it.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Run it in a fresh environment: does it show the same?")
    ] = False,
    record: Annotated[Path | None, typer.Option(help="Of --check: the file that keeps what it showed.")] = None,
    results: Annotated[
        Path, typer.Option("--results", help="Folder of results.", show_default="the published ones")
    ] = knowledge.PUBLISHED,
    device: Annotated[str, typer.Option("--device", help="Whose results count: cpu (gloo) or cuda.")] = "cpu",
) -> None:
    """Write a red cell as one short script with exact pins, that `uv run` needs nothing else for."""
    asked = repro_report.Asked(cell=cell, issue=issue, check=check, record=record, results=results, device=device)
    made = repro_report.make(asked, say=lambda text: typer.echo(text, err=True))
    if out is not None:
        typer.echo(repro_report.write(made, out), err=True)
    else:
        typer.echo(made.text, nl=False)
    raise typer.Exit(NOT_THE_SAME if made.same is False else 0)
