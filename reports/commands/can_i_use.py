"""``ftmatrix can-i-use``: lists the versions of each package with which a feature works.

Exit codes: 0 green, or green with a setting, in at least one version set, 1 in none, or no results for the device or
for a part of the question, 2 bad input.
"""

# ruff: noqa: FBT002 - typer reads parameters and their defaults
from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import TYPE_CHECKING, Annotated

import typer

from matrix.api_map.measured import import_results
from matrix.api_map.query import ApiMap
from matrix.errors import UserError
from reports.answers import knowledge
from reports.answers.pairs.pair_answers import pair_answers, without_release
from reports.answers.support.question import asked
from reports.answers.support.status import GOOD
from reports.answers.support.support import dumped, support_document, support_of
from reports.commands.options import AsJson, Have, Results, ResultsDevice, results_device
from reports.render.files import write_whole
from reports.render.text.support_text import lines

if TYPE_CHECKING:
    from reports.answers.support.support import SupportDocument

NOWHERE = 1


def can_i_use(
    query: Annotated[
        list[str] | None,
        typer.Argument(
            help="Features or a question: 'qlora fsdp2 dora', 'quant=nf4', 'can I use 4-bit LoRA on two GPUs'.",
            show_default=False,
        ),
    ] = None,
    have: Have = None,
    device: ResultsDevice = "auto",
    results: Results = knowledge.PUBLISHED,
    write: Annotated[
        Path | None,
        typer.Option(
            "--write", help="Write the answers for every feature to this file, compressed if its name ends in .gz."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the versions of each package with which a feature is green, green with a setting, red or unknown."""
    if bool(query) == (write is not None):
        raise UserError("name either features, such as 'qlora fsdp2', or --write FILE for every feature")
    if write is not None:
        write_document(support_document(knowledge.by_device(results)), write)
        typer.echo(f"Wrote {write}", err=True)
        return
    question = asked([" ".join(query or ())], have or (), device)
    for renaming in question.renamings:
        typer.echo(renaming, err=True)
    device = results_device(device, implied=question.device)
    grids = knowledge.by_device(results)
    question = question.with_results(grids)
    document = support_of(question.queries, device, grids, question.have).model_copy(
        update={"not_measured": question.not_measured, "notes": question.notes}
    )
    if len(question.have) > 1 and not any(each.sets for of in document.devices for each in of.support):
        api = ApiMap()
        pairs = pair_answers(question.have, api, list(import_results.load()))
        notes = (*document.notes, *without_release(question.have, api))
        document = document.model_copy(update={"pairs": pairs, "notes": notes})
    typer.echo(dumped(document).rstrip() if as_json else "\n".join(lines(document)))
    sets = document.devices[0].support[0].sets if document.devices else ()
    raise typer.Exit(0 if any(each.status in GOOD for each in sets) and not question.not_measured else NOWHERE)


def write_document(document: SupportDocument, path: Path) -> None:
    try:
        write_whole(path, dumped(document))
    except OSError as error:
        raise UserError(f"{path}: cannot write the file ({error.strerror}); name another file") from None
