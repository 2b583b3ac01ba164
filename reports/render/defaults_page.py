"""Draws the page of a package's moved defaults: for each release the parameters and fields, with both values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reports.render.markdown import table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matrix.api_map.changes import ChangedDefault, ReleaseDefaults

INTRODUCTION: Final = """\
# Moved defaults of {package}

Parameters and configuration fields of the names that {package} exports, without models, whose default differs from the
release before; read from the wheels and not run. A job that does not state such a value does something else after the
upgrade. Fields that a class inherits from another package count for that package. `ftmatrix map changes {package} OLD
NEW` compares two releases, `ftmatrix map defaults --out FOLDER` writes this page.
"""


def markdown(package: str, releases: Sequence[ReleaseDefaults], first: str, last: str) -> str:
    """Return the page. ``first`` and ``last`` are the oldest and the newest release of the map."""
    head = INTRODUCTION.format(package=package)
    count = sum(len(each.defaults) for each in releases)
    summary = f"{count} defaults moved in {len(releases)} of the releases from {first} to {last}."
    return "\n".join([head, summary, "", *lines(package, releases)]).rstrip() + "\n"


def lines(package: str, releases: Sequence[ReleaseDefaults]) -> Iterator[str]:
    for each in releases:
        yield f"## {package} {each.version} ({each.uploaded})"
        yield ""
        yield table(
            ["parameter or field", f"default in {each.before}", f"default in {each.version}"],
            [row(moved) for moved in each.defaults],
        )
        yield ""


def row(moved: ChangedDefault) -> list[str]:
    return [f"`{moved.path}({moved.parameter})`", code(moved.old), code(moved.new)]


def code(text: str) -> str:
    """Return source text for a cell of a table; an empty text is an empty literal."""
    return f"`{text.replace('|', chr(92) + '|')}`" if text else "(empty)"
