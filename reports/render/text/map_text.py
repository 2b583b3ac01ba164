"""Draws answers of the map of the API for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cases.space.plural import counted
from reports.render.text.api_text import joined

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from matrix.api_map.changes import ApiChanges
    from matrix.api_map.measured.evaluation import Evaluation
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


def change_lines(found: ApiChanges) -> Iterator[str]:
    """Yield what is gone, with its new name, then changed defaults."""
    if not (found.removed or found.defaults):
        yield f"{found.package} {found.old} and {found.new}: no exported name, parameter or default differs"
    for name in found.removed:
        new = found.renamed.get(name)
        yield f"gone: {name}{f', now {new}' if new else ''}"
    for each in found.defaults:
        yield f"default: {each.path}({each.parameter}): {each.old} -> {each.new}"


def agreement_lines(found: Evaluation, combinations: int) -> Iterator[str]:
    """Yield the counts, precision and recall of predicted failures, then the disagreements, most frequent first."""
    imports = found.broken + found.only_predicted + found.only_measured + found.whole
    yield f"{counted(combinations, 'combination')}, {counted(imports, 'import')} of a package"
    yield (
        f"failed as predicted: {found.broken}; only predicted: {found.only_predicted}; only measured: "
        f"{found.only_measured}; worked as predicted: {found.whole}"
    )
    yield f"of the only measured ones, {found.outside} name no package of the map"
    for name, value in (
        ("precision", found.precision),
        ("recall", found.recall),
        ("recall among errors about the map's packages", found.recall_of_map),
    ):
        if value is not None:
            yield f"{name}: {value:.1%}"
    for each in found.disagreements:
        yield f"{each.count} x import {each.package}: measured {each.measured or 'no error'}"
        yield f"    predicted: {each.predicted or 'none'}"
        yield f"    e.g. {each.example}"
