"""``ftmatrix can-i-use``: lists the versions of each package with which a feature works.

Exit codes: 0 green, or green with a setting, in at least one version set, 1 in none, or no results for the device, 2
bad input.
"""

# ruff: noqa: FBT002 - typer reads parameters and their defaults
from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import TYPE_CHECKING, Annotated

import typer

from matrix.errors import UserError
from reports.answers import knowledge
from reports.answers.support.query import parse
from reports.answers.support.status import GOOD
from reports.answers.support.support import dumped, support_document, support_of
from reports.commands.options import AsJson, Results, ResultsDevice, results_device
from reports.render.support_text import lines
from reports.render.write import write_whole

if TYPE_CHECKING:
    from reports.answers.support.support import SupportDocument

NOWHERE = 1


def can_i_use(
    query: Annotated[
        list[str] | None,
        typer.Argument(help="Features, by name or as options: 'qlora fsdp2 dora', 'quant=nf4'.", show_default=False),
    ] = None,
    device: ResultsDevice = "auto",
    results: Results = knowledge.PUBLISHED,
    write: Annotated[
        Path | None, typer.Option("--write", help="Write the answers for every feature to this file, as support.json.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the versions of each package with which a feature is green, green with a setting, red or unknown."""
    if bool(query) == (write is not None):
        raise UserError("name either features, such as 'qlora fsdp2', or --write FILE for every feature")
    queries = (parse(" ".join(query)),) if query else ()
    for renaming in (renaming for each in queries for renaming in each.renamings):
        typer.echo(renaming, err=True)
    device = results_device(device)
    grids = knowledge.by_device(results)
    if write is not None:
        write_document(support_document(grids), write)
        typer.echo(f"Wrote {write}", err=True)
        return
    document = support_of(queries, device, grids)
    typer.echo(dumped(document).rstrip() if as_json else "\n".join(lines(document)))
    raise typer.Exit(0 if any(each.status in GOOD for each in document.devices[0].support[0].sets) else NOWHERE)


def write_document(document: SupportDocument, path: Path) -> None:
    try:
        write_whole(path, dumped(document))
    except OSError as error:
        raise UserError(f"{path}: cannot write the file ({error.strerror}); name another file") from None
