"""``ftmatrix recommend``: names the newest version set on which the given features are green.

Exit codes: 0 found, 1 no such set, or no results for the device or for a part of the question, 2 bad input.
"""

# ruff: noqa: FBT002 - typer reads parameters and their defaults
from __future__ import annotations

import json
import re
from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import TYPE_CHECKING, Annotated, Final

import typer

from matrix.api_map.query import ApiMap
from matrix.errors import UserError
from reports.answers import knowledge
from reports.answers.support.question import VERSIONS_ALONE, asked
from reports.answers.support.recommend import Recommendation, recommend_on
from reports.answers.support.set_locks import lock_text
from reports.commands.options import AsJson, Have, Results, ResultsDevice, results_device
from reports.render.files import write_whole
from reports.render.text.question_text import question_lines
from reports.render.text.recommend_text import lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matrix.run.outcome import SetRecord
    from reports.answers.support.question import Question

NONE = 1
VERSION: Final = re.compile(r"v?\d+(\.\d+)+\S*")


def recommend(
    words: Annotated[list[str] | None, typer.Argument(help="Features, as with --need.", show_default=False)] = None,
    query: Annotated[
        list[str] | None,
        typer.Option("--need", help="Features: 'qlora fsdp2', 'quant=nf4 loop!=eval', or a question; repeatable."),
    ] = None,
    have: Have = None,
    device: ResultsDevice = "auto",
    lock: Annotated[
        Path | None, typer.Option("--lock", help="Write the set's requirements, with hashes, to this file.")
    ] = None,
    results: Results = knowledge.PUBLISHED,
    as_json: AsJson = False,
) -> None:
    """Name the newest version set on which all the given features are green, and the cells that prove it."""
    question = asked(needs(words or (), query or (), have or ()), have or (), device)
    for renaming in question.renamings:
        typer.echo(f"--need {renaming}", err=True)
    device, grids = results_device(device, implied=question.device), knowledge.by_device(results)
    question = question.with_results(grids)
    if question.queries:
        recommendation = recommend_on(device, grids, question.queries, question.have, ApiMap())
    else:
        recommendation = Recommendation(queries=(), have=question.have, device=device, considered=0)
    typer.echo(json_text(question, recommendation) if as_json else "\n".join(text_lines(question, recommendation)))
    is_answered = recommendation.best is not None and not question.not_measured
    if lock is not None:
        if recommendation.best is not None and is_answered:
            write_lock(recommendation.best.column, lock)
        why = "a part of the question was not measured" if question.not_measured else "no set to lock"
        typer.echo(f"Wrote {lock}" if is_answered else f"{lock}: not written: {why}", err=True)
    raise typer.Exit(0 if is_answered else NONE)


def needs(words: Sequence[str], query: Sequence[str], have: Sequence[str]) -> list[str]:
    """Return the questions of the command line; with versions alone, one that names no feature.

    Raises:
        UserError: there is none, or a version stands apart from its package.
    """
    apart = next((word for word in words if VERSION.fullmatch(word)), None)
    if apart is not None and have:
        raise UserError(f"--have {have[-1]} {apart}: write it as one word, such as --have {have[-1]}=={apart}")
    every = [*query, *([" ".join(words)] if words else [])]
    if not every and not have:
        raise UserError("name features with --need, such as --need 'qlora fsdp2', or versions with --have")
    return every or [VERSIONS_ALONE]


def json_text(question: Question, recommendation: Recommendation) -> str:
    extra = {"not_measured": list(question.not_measured), "notes": list(question.notes)}
    return json.dumps({**recommendation.as_json(), **extra}, indent=1)


def text_lines(question: Question, recommendation: Recommendation) -> list[str]:
    head = question_lines(question.not_measured, question.notes, rest=bool(question.queries))
    return [*head, *(lines(recommendation) if question.queries else ())]


def write_lock(column: SetRecord, path: Path) -> None:
    text = lock_text(column)
    try:
        write_whole(path, text)
    except OSError as error:
        raise UserError(f"{path}: cannot write the lock ({error.strerror}); name another file") from None
