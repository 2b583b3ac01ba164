"""Draws what the map of the API knows of a missing name."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from reports.answers.api.moves import Move
    from reports.answers.api.name_answer import NameAnswer
    from reports.answers.api.users import NameUser

WIDTH: Final = 110
FIRST_RANGES: Final = 4
FIRST_MOVES: Final = 3


def lines(answer: NameAnswer) -> Iterator[str]:
    """Yield the cause, new names, and the smallest moves, with what they rest on."""
    yield f"{'missing-name' if answer.known else 'unknown-name'} (from the map of {answer.provider}'s releases)"
    yield f"  line:   {textwrap.shorten(answer.line, WIDTH - 10, placeholder=' ...')}"
    yield from indented(cause(answer), "  cause:  ")
    for each in answer.users:
        yield from indented(user_sentence(each), "  used:   ")
    if answer.renamed:
        yield f"  now:    `{answer.renamed}`, as {answer.provider} states it"
    for path in answer.instead:
        yield f"  now:    `{path}`"
    for path in answer.moved:
        yield f"  now:    `{path}` in {answer.provider} {answer.newest}"
    for move in answer.moves[:FIRST_MOVES]:
        yield from indented(move_sentence(move), "  fix:    ")
    if not answer.moves:
        yield from indented(together(answer), "  fits:   ")


def cause(answer: NameAnswer) -> str:
    name = f"`{answer.path}`"
    if not answer.known:
        return (
            f"no final release of {answer.provider} since June 2023 has {name}, up to {answer.newest}; it may be "
            "older, misspelt, or made at run time"
        )
    having = f"{answer.provider} {joined(answer.ranges, answer.newest)}"
    if answer.overrides and not answer.users:
        return f"{having} passes or has {name}; your class does not accept it: add the parameter, or **kwargs"
    lacks = (
        f"{answer.provider} {answer.installed} has no {name}; "
        if answer.installed
        else f"{name} is not in all releases: "
    )
    return f"{lacks}it is in {having}"


def user_sentence(user: NameUser) -> str:
    return (
        f"{user.package} {joined(user.ranges, '')}: {user.module} {user.how} it{' in a function' if user.later else ''}"
    )


def joined(ranges: Sequence[tuple[str, str]], newest: str) -> str:
    """Return ranges in words: ``4.30.0 to 4.45.2``, or ``4.46.0 and newer`` if the last one is the newest release."""
    words = [
        first if first == last else f"{first} and newer" if last == newest else f"{first} to {last}"
        for first, last in ranges
    ]
    shown = words if len(words) <= FIRST_RANGES else [*words[: FIRST_RANGES - 1], "...", words[-1]]
    return ", ".join(shown)


def move_sentence(move: Move) -> str:
    broken = f"; but {'; '.join(move.unmet)}" if move.unmet else ""
    basis = f"imported together: {move.measured}" if move.measured else "read from the releases, not run"
    return f"{move.typed}: {move.why}{broken}  [{basis}]"


def together(answer: NameAnswer) -> str:
    """Return which releases go together, if the log states too few versions for a move."""
    if not answer.known:
        return "nothing; check the name"
    provider = f"{answer.provider} {joined(answer.ranges, answer.newest)}"
    if answer.users:
        user = answer.users[0]
        return (
            f"{user.package} {joined(user.ranges, '')} with {provider}; name your versions with --versions for a move"
        )
    return provider


def indented(text: str, start: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=start, subsequent_indent=" " * len(start), break_on_hyphens=False)
