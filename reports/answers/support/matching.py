"""Finds the measured cases that match a query, and the settings in which each differs from the query."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from cases.space import options
from cases.space.options import Options
from matrix.run.plan import current_pattern
from reports.answers.support.query import GOALS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cases.space.options import Value
    from reports.answers.support.query import Query
    from reports.results.grid import Grid


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A measured case with the options that apply to it."""

    case: str
    group: str
    stated: Mapping[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchingCase:
    """A case that matches a query.

    ``settings`` are its values that are not plain; ``chosen`` are its values of options with several plain values.
    """

    case: str
    settings: Mapping[str, Value] = field(default_factory=dict)
    chosen: Mapping[str, Value] = field(default_factory=dict)


def points(matrix: Grid) -> tuple[Point, ...]:
    """Return every measured case, except cases with options that this version does not know."""
    groups = {case: group.name for group in matrix.groups for case in group.cases}
    pairs = ((case, column.key) for case in matrix.cases for column in matrix.sets)
    newest = {pair[0]: matrix.options[pair] for pair in pairs if pair in matrix.options}
    known = frozenset(options.names())
    return tuple(
        Point(case=case, group=groups[case], stated=stated(stored))
        for case, stored in newest.items()
        if known.issuperset(stored)
    )


def stated(stored: Mapping[str, object]) -> Mapping[str, Value]:
    """Return the options that apply; options that an older harness did not have get their defaults."""
    ranks = 1 if stored.get("strategy", "single") == "single" else 2
    made = Options(**{"world_size": ranks, **stored})  # type: ignore[arg-type]
    return made.stated


def ways(query: Query, measured: Iterable[Point]) -> tuple[MatchingCase, ...]:
    """Return the cases that match the query, fewest settings first."""
    return tuple(sorted(found(query, measured), key=lambda way: len(way.settings)))


def found(query: Query, measured: Iterable[Point]) -> Iterator[MatchingCase]:
    for point in measured:
        if query.patterns:
            if all(matches(point, *pattern) for pattern in query.patterns) and agrees(query, point, query.named):
                yield MatchingCase(case=point.case, chosen={"case": point.case})
        elif agrees(query, point, {*query.named, *GOALS}):
            free = {name: value for name, value in point.stated.items() if name not in query.named}
            yield MatchingCase(
                case=point.case,
                settings={name: value for name, value in free.items() if value not in query.plain(name)},
                chosen={name: value for name, value in point.stated.items() if value in query.plain(name) != (value,)},
            )


def agrees(query: Query, point: Point, names: Iterable[str]) -> bool:
    """Tell if the options have plain values; named options must also apply to the case."""
    return all(
        point.stated[name] in query.plain(name) if name in point.stated else name not in query.named for name in names
    )


def matches(point: Point, name: str, wanted: tuple[str, ...], negated: bool) -> bool:  # noqa: FBT001 - of a pattern
    if name == "case":
        return negated != any(
            fnmatchcase(point.case, each) or fnmatchcase(point.case, current_pattern(each)) for each in wanted
        )
    return negated != any(fnmatchcase(point.group.lower(), each.lower()) for each in wanted)
