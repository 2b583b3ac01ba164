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
NO_FILE: Final = "(unknown location)"  # in the message of an ImportError


def lines(answer: NameAnswer) -> Iterator[str]:
    """Yield the cause, new names, and the smallest moves, with what they rest on."""
    yield f"{heading(answer)} (from the map of {answer.provider}'s releases)"
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


def heading(answer: NameAnswer) -> str:
    if answer.is_requirement:
        return "unmet-requirement"
    return "missing-name" if answer.known else "unknown-name"


def cause(answer: NameAnswer) -> str:
    name = f"`{answer.path}`"
    having = f"{answer.provider} {joined(answer.ranges, answer.newest)}"
    if answer.is_requirement:
        return requirement(answer, having)
    if not answer.known:
        return (
            f"no final release of {answer.provider} since June 2023 has {name}, up to {answer.newest}; it may be "
            "older, misspelt, or made at run time"
        )
    if answer.contradicts:
        return contradiction(answer, having)
    return difference(answer, name, having)


def unlocated(answer: NameAnswer) -> str:
    """Return what Python means by a module without a file: a folder without ``__init__.py``, not the package."""
    package = answer.provider
    is_folder = NO_FILE in answer.line and answer.path.count(".") == 1
    return f"; Python imported no file of {package}: a folder of that name may hide it" if is_folder else ""


def difference(answer: NameAnswer, name: str, having: str) -> str:
    """Return in which releases a name is that others lack."""
    if answer.read_from:
        return (
            f"no release of `{answer.read_from}` has it; {name} is in {having}: pass an object of that class, or of "
            "your trainer's configuration class"
        )
    if answer.accepts_any:
        return f"{having} accepts any argument, and with it {name}; other releases do not accept it"
    if answer.left_out:
        return f"{having} takes {name}; its caller does not pass it"
    if answer.overrides and not answer.users:
        return f"{having} passes or has {name}; your class does not accept it: add the parameter, or **kwargs"
    lacks = (
        f"{answer.provider} {answer.installed} has no {name}; "
        if answer.installed
        else f"{name} is not in all releases: "
    )
    return f"{lacks}it is in {having}{unlocated(answer)}"


def requirement(answer: NameAnswer, having: str) -> str:
    found = f", but the log has {answer.provider} {answer.installed}" if answer.installed else ""
    met = f"{having} meets it" if answer.known else f"no final release of {answer.provider} since June 2023 meets it"
    return f"`{answer.path}` is required{found}; {met}"


def contradiction(answer: NameAnswer, having: str) -> str:
    """Return what a log means that misses a name which its version has."""
    other = (
        "another installation, or a file or folder of that name, was imported, its module fails for another reason, or "
        "the process had started before an upgrade"
    )
    stated = f"{answer.provider} {answer.installed}, which the log names,"
    if answer.is_before_the_map:
        return f"`{answer.path}` is in every release since June 2023 ({having}); {stated} is older and may lack it"
    if answer.installed:
        return f"{stated} has `{answer.path}` (it is in {having}): {other}"
    return f"`{answer.path}` is in every release since June 2023 ({having}): yours is older; if not, {other}"


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
        return "no release of the map" if answer.is_requirement else "nothing; check the name"
    provider = f"{answer.provider} {joined(answer.ranges, answer.newest)}"
    if answer.users:
        user = answer.users[0]
        return (
            f"{user.package} {joined(user.ranges, '')} with {provider}; name your versions with --versions for a move"
        )
    return provider


def indented(text: str, start: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=start, subsequent_indent=" " * len(start), break_on_hyphens=False)
