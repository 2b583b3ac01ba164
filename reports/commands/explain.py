"""``ftmatrix explain``: names the cause of a traceback or log, and the changes that fix it.

Exit codes: 0 explained, 1 no known cause, 2 bad input.
"""

# ruff: noqa: FBT002 - typer reads parameters and their defaults
from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from matrix.errors import UserError
from matrix.versions import sets
from reports.answers.diagnosis import logs, outside
from reports.answers.diagnosis.diagnose import UNEXPLAINED
from reports.answers.diagnosis.explain import explain as explanations
from reports.answers.diagnosis.symptoms import Symptom
from reports.commands.options import AsJson
from reports.render.text.explain_text import lines, versions_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reports.answers.api.name_answer import NameAnswer

NOTHING_KNOWN: Final = 1
STANDARD_INPUT: Final = "-"


def explain(
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="Log file, or - for standard input.")] = STANDARD_INPUT,
    versions: Annotated[
        str,
        typer.Option(
            "--versions",
            help="Installed versions, e.g. torch==2.8.0,peft==0.17.",
            show_default="the versions that the log names",
        ),
    ] = "",
    as_json: AsJson = False,
    everything: Annotated[bool, typer.Option("--all", help="All fixes with their proofs, causes and threads.")] = False,
) -> None:
    """Explain a failure from its log: the cause, fixes with their proof, and links to upstream issues."""
    given = stated(versions)
    text = logs.read(None if file == STANDARD_INPUT else Path(file))
    clean = Symptom(text=text).clean
    used = {**logs.versions(clean), **given}
    failure = Symptom(text=text, versions=used)
    answers = explanations(failure)
    is_shown = not answers or everything or as_json  # a signature states more than the name
    known = {**logs.library_versions(clean), **used}
    named = missing_name(failure, known) if is_shown else None
    ended = None if answers or named else outside.end(failure) or outside.foreign_code(failure)
    if as_json:
        document = {"versions": used, "diagnoses": [each.as_json() for each in answers]}
        if named:
            document["missing_name"] = named.as_json()
        unknown = {"standing": UNEXPLAINED, **({"outside": asdict(ended)} if ended else {})}
        typer.echo(json.dumps(document if answers or named else {**document, **unknown}, indent=1))
    elif named is None:
        typer.echo("\n".join(lines(answers, used, ended, everything=everything)))
    else:
        from reports.render.text import api_text

        typer.echo("\n".join([*(lines(answers, used) if answers else [versions_line(known)]), *api_text.lines(named)]))
    raise typer.Exit(0 if answers or (named and named.known) else NOTHING_KNOWN)


def missing_name(failure: Symptom, versions: Mapping[str, str]) -> NameAnswer | None:
    from matrix.api_map.query import ApiMap
    from reports.answers.api.explain_name import explain_name

    return explain_name(failure, versions, ApiMap())


def stated(versions: str) -> Mapping[str, str]:
    """Return the pins that ``--versions`` gives, by package.

    Raises:
        UserError: a pin is malformed, or names a package outside the stack.
    """
    pins = sets.parsed_pins(word for word in versions.split(",") if word.strip())
    for name in pins:
        if name not in sets.PACKAGES:
            raise UserError(f"--versions: unknown package {name!r}; choose from {', '.join(sets.PACKAGES)}")
    return pins
