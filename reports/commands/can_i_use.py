"""``ftmatrix can-i-use``: in which versions of each package something works.

Exit codes: 0 there is a version with which it is green, or green with a setting, 1 there is none, or nothing was
measured on the device, 2 bad input.
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
from reports.commands.recommend import grids_of
from reports.render.support_text import lines
from reports.render.write import write_whole

if TYPE_CHECKING:
    from reports.answers.support.support import SupportDocument

NOWHERE = 1


def can_i_use(
    need: Annotated[
        list[str] | None, typer.Argument(help="Words or terms: 'qlora fsdp2 dora', 'quant=nf4'.", show_default=False)
    ] = None,
    device: Annotated[str, typer.Option("--device", help="Whose results count: cpu (gloo) or cuda.")] = "cpu",
    results: Annotated[
        Path, typer.Option("--results", help="Folder of results.", show_default="the published ones")
    ] = knowledge.PUBLISHED,
    write: Annotated[
        Path | None, typer.Option("--write", help="Write all that is known of every need there, as support.json.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Say in which versions of each package something works: green, with a setting, red or unknown."""
    if bool(need) == (write is not None):
        raise UserError("can-i-use takes either what is needed, such as 'qlora fsdp2', or --write FILE for everything")
    needs = (parse(" ".join(need)),) if need else ()
    grids = grids_of(results, device)
    if write is not None:
        write_document(support_document(grids), write)
        typer.echo(f"Written: {write}", err=True)
        return
    found = support_of(needs, device, grids)
    typer.echo(dumped(found).rstrip() if as_json else "\n".join(lines(found)))
    raise typer.Exit(0 if any(each.standing in GOOD for each in found.devices[0].support[0].sets) else NOWHERE)


def write_document(found: SupportDocument, path: Path) -> None:
    try:
        write_whole(path, dumped(found))
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror}); name another file") from None
