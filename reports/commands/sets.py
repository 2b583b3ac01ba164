"""``ftmatrix sets``: lists, adds and locks version sets.

Exit codes: 0 done, 2 bad input.
"""

# ruff: noqa: FBT002 - typer reads parameters and their defaults
from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from cases.space.plural import counted
from matrix.environments.environment import cache_folder
from matrix.evidence import Evidence
from matrix.versions import locking, locks, uv
from matrix.versions import sets as version_sets
from reports.commands.options import AsJson, Versions
from reports.render.text import sets_text

if TYPE_CHECKING:
    from matrix.versions.locks import Lock

UNLIMITED = sys.maxsize  # for a pipe or a file

app = typer.Typer(help="List, add and lock version sets.", invoke_without_command=True)


@app.callback()
def list_sets(context: typer.Context, versions: Versions = version_sets.PACKAGED, as_json: AsJson = False) -> None:
    """List the version sets."""
    if context.invoked_subcommand is not None:
        return
    known = version_sets.load(versions)
    if as_json:
        rows = [{"set": s.key, "as_of": str(s.as_of), "pins": dict(s.pins), "default": s.default} for s in known]
        typer.echo(json.dumps(rows, indent=1))
        return
    console = Console(highlight=False)
    width = console.width if console.is_terminal else UNLIMITED
    for line in sets_text.lines(known, width=width):
        console.print(line, soft_wrap=True, markup=False)


@app.command("add")
def add(
    key: Annotated[str, typer.Argument(help="Key of the new set, e.g. 2024-09+peft0.13.2.")],
    pins: Annotated[list[str], typer.Argument(help="Pins that differ from the base set, e.g. peft==0.13.2.")],
    base: Annotated[str, typer.Option("--from", help="Key of the base set.")],
    why: Annotated[str, typer.Option(help="Purpose of the set, in one sentence.")] = "",
    versions: Versions = version_sets.PACKAGED,
) -> None:
    """Add and lock a version set that differs from another one in a few pins."""
    (start,) = version_sets.select(version_sets.load(versions), base)
    tool = uv.on_this_machine(cache_folder())
    added, lock_or_evidence = locking.add(
        key, version_sets.parsed_pins(pins), base=start, uv=tool, path=versions, why=why
    )
    typer.echo(lock_words(added.key, lock_or_evidence))


@app.command("lock")
def lock(
    keys: Annotated[str, typer.Argument(help="Version sets: all, or keys separated by commas.")],
    versions: Versions = version_sets.PACKAGED,
) -> None:
    """Resolve version sets again, each with the packages released by its date, and write their locks."""
    tool = uv.on_this_machine(cache_folder())
    for each in version_sets.select(version_sets.load(versions), keys):
        made = locking.resolve(each, uv=tool)
        if isinstance(made, locks.Lock):
            locks.write(made, folder=locks.locks_folder(versions))
        typer.echo(lock_words(each.key, made))


def lock_words(key: str, lock_or_evidence: Lock | Evidence) -> str:
    if isinstance(lock_or_evidence, Evidence):
        return f"{key}: blocked: {lock_or_evidence.reason}"
    return f"{key}: locked, {counted(len(lock_or_evidence.versions), 'package')}, digest {lock_or_evidence.digest}"
