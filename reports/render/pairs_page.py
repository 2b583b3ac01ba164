"""Draws the page of pairs: with which releases of another package each release breaks, and on which name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from matrix.api_map.crossings import Breaks
from reports.render.markdown import table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from matrix.api_map.pairs import BrokenRange, UserRelease

INTRODUCTION = """\
# Pairs of releases

For the last patch of each minor release: the releases of another package that lack a name which it uses, read from the
wheels and not run. *At import*: `import` of the package fails. *When a part is imported*: a module fails that the
package imports on first use. *When it is used*: a function fails when it reaches the name. Releases that no column
names have every name that is used without an unknown condition. Each cell names one example. `ftmatrix map pairs --out
FILE` writes this page.
"""
COLUMNS: Final = {
    Breaks.AT_IMPORT: "at import",
    Breaks.AT_MODULE: "when a part is imported",
    Breaks.AT_USE: "when it is used",
}


def markdown(tables: Mapping[tuple[str, str], Sequence[UserRelease]], newest: Mapping[str, str]) -> str:
    """Return the page. ``newest`` are the newest releases of the map by package."""
    return "\n".join([INTRODUCTION, *lines(tables, newest)]).rstrip() + "\n"


def lines(tables: Mapping[tuple[str, str], Sequence[UserRelease]], newest: Mapping[str, str]) -> Iterator[str]:
    for (user, provider), rows in tables.items():
        if any(each.broken for each in rows):
            yield f"## {user} with {provider}"
            yield ""
            head = [user, *(f"breaks {name}, with {provider}" for name in COLUMNS.values())]
            yield table(head, [[f"`{each.version}`", *cells(each, newest[provider])] for each in rows])
            yield ""


def cells(release: UserRelease, newest: str) -> Iterator[str]:
    for breaks in COLUMNS:
        found = [range_words(each, newest) for each in release.broken if each.breaks is breaks]
        yield "; ".join(found) or "-"


def range_words(each: BrokenRange, newest: str) -> str:
    span = each.first if each.first == each.last else f"{each.first} to {each.last}"
    if each.last == newest and each.first != each.last:
        span = f"{each.first} and newer"
    return f"{span} (`{each.target}`)"
