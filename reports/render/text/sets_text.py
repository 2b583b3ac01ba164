"""Draws the list of version sets as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cases.space.plural import counted
from matrix.versions.sets import PACKAGES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matrix.versions.sets import VersionSet


def lines(sets: Sequence[VersionSet], *, width: int) -> Iterator[str]:
    """Yield a table of the pins, if it fits ``width`` columns, and the purpose of each set.

    The key is never cut: on a narrow terminal, the pins of each set are below its key.
    """
    rows = [("set", *PACKAGES), *((key(each), *(each.pins[name] for name in PACKAGES)) for each in sets)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    yield f"{counted(len(sets), 'version set')}, * = run by default"
    yield ""
    if sum(widths) + 2 * (len(widths) - 1) <= width:
        yield from ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    else:
        for each in sets:
            yield key(each)
            yield "  " + ", ".join(f"{name} {each.pins[name]}" for name in PACKAGES)
    yield ""
    yield from (f"{each.key}: {each.why}" for each in sets)


def key(each: VersionSet) -> str:
    return f"{each.key} *" if each.default else each.key
