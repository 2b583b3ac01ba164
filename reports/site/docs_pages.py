"""The documentation on the site: a guide by question, every command, every verdict, and how to add things.

Commands and verdicts come from the code, so that none is missing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import typer.main

from reports import cli
from reports.results.verdict_style import LOOKS, UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reports.site.writer import SiteWriter

PAGES: Final = (
    ("index", "Questions"),
    ("commands", "Commands"),
    ("verdicts", "Verdicts and terms"),
    ("add", "Add to it"),
    ("runner", "Run it"),
)
SPACES: Final = re.compile(r"\s+")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandParameter:
    name: str
    words: str


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command with its arguments and options, as ``--help`` lists them."""

    name: str
    summary: str
    epilog: str
    parameters: tuple[CommandParameter, ...]


def commands() -> list[Command]:
    """Return every command of the command line, those of groups under their full names."""
    return [
        each for name, command in below(typer.main.get_command(cli.application())) for each in described(name, command)
    ]


def below(command: Any) -> list[tuple[str, Any]]:
    """Return the commands of a group; releases of typer have the classes of click in different packages."""
    return list(getattr(command, "commands", {}).items())


def described(name: str, command: Any) -> Iterator[Command]:
    group = below(command)
    if not group or command.invoke_without_command:
        yield Command(
            name=name,
            summary=plain(command.help),
            epilog=plain(command.epilog),
            parameters=tuple(
                parameter(each) for each in command.params if each.name != "help" and not getattr(each, "hidden", False)
            ),
        )
    for inner, each in group:
        yield from described(f"{name} {inner}", each)


def parameter(each: Any) -> CommandParameter:
    is_option = each.param_type_name == "option"
    return CommandParameter(
        name=", ".join(each.opts) if is_option else str(each.metavar or each.name).upper(),
        words=plain(getattr(each, "help", "")),
    )


def plain(text: str | None) -> str:
    return SPACES.sub(" ", text or "").strip()


def write(site: SiteWriter) -> None:
    for name, title in PAGES:
        site.page(
            f"docs/{name}.html",
            f"docs/{name}.html.j2",
            title=title,
            pages=PAGES,
            commands=commands() if name in ("index", "commands") else [],
            styles=[*LOOKS.values(), UNKNOWN],
        )
