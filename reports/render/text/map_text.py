"""Draws answers of the map of the API for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cases.space.plural import counted
from reports.render.text.api_text import joined

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from matrix.api_map.defaults import ChangedDefault
    from matrix.api_map.query import Having
    from matrix.api_map.store import MappedRelease
    from reports.answers.api.users import NameUser


def overview(releases: Mapping[str, Sequence[MappedRelease]], size: int) -> Iterator[str]:
    """Yield a line for each package: its releases, and the day of the newest. ``size`` is in bytes."""
    for name, rows in releases.items():
        newest = max(each.uploaded for each in rows)
        lacking = [each.version for each in rows if each.unreadable]
        unreadable = f"; not readable: {', '.join(lacking)}" if lacking else ""
        span = f"{rows[0].version} to {rows[-1].version}, until {newest}"
        yield f"{name:16} {counted(len(rows), 'release')}, {span}{unreadable}"
    yield f"{counted(sum(map(len, releases.values())), 'release')}, {size / 1e6:.1f} MB"


def name_lines(found: Having, users: Sequence[NameUser], newest: str) -> Iterator[str]:
    if not found.known:
        unsure = f"; {counted(len(found.unknown), 'release')} may make it at run time" if found.unknown else ""
        yield f"no release of {found.package} in the map has {found.path}{unsure}"
    else:
        yield f"{found.path}: {found.package} {joined(found.ranges, newest)}"
    for each in users:
        when = "in functions" if each.later else "at import"
        yield f"  {each.package} {joined(each.ranges, '')} uses it {when} ({each.module})"


def default_lines(found: Sequence[ChangedDefault], package: str, old: str, new: str) -> Iterator[str]:
    if not found:
        yield f"{package} {old} and {new}: no default of an exported class or function differs"
    for each in found:
        yield f"{each.path}({each.parameter}): {each.old} -> {each.new}"
