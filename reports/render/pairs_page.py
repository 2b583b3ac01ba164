"""Draws the page of pairs: what was measured of each pair of releases, where one breaks, and on which name."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from matrix.api_map.crossings import Breaks
from matrix.api_map.pairs import PairMeasurement
from reports.render.markdown import table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from matrix.api_map.pairs import BrokenRange, MeasuredRange, UserRelease

INTRODUCTION = """\
# Pairs of releases

Each row is the last patch of a minor release, with the releases of another package.

* **Measured**, by minor release: *imports* or *breaks at import* if a patch of it was imported with a patch of the
  row's minor release. *Breaks* means that the package of the row took what the other one lacks. Of the others, some
  cannot be installed together: the *requirements* that their last patches declare *exclude each other*, directly or by
  those of a package that both need. Pairs that no combination had, or of which a third package broke the import, are
  *not measured*. The measurements ran on Python {pythons} and torch {torches}.
* **Read** from the wheels and not run: the releases that lack a name which the row uses. *At import*: `import` of the
  package fails. *When a part is imported*: a module fails that the package imports on first use. *When it is used*: a
  function fails when it reaches the name. Each cell names one example. Releases that none of these columns names have
  every name that is used without an unknown condition.

`ftmatrix map pairs --out FILE` writes this page.
"""
MEASURED: Final = {
    PairMeasurement.IMPORTED: "measured: imports",
    PairMeasurement.FAILED: "measured: breaks at import",
    PairMeasurement.EXCLUDED: "requirements exclude each other",
    PairMeasurement.NONE: "not measured",
}
READ: Final = {
    Breaks.AT_IMPORT: "read: breaks at import",
    Breaks.AT_MODULE: "read: breaks when a part is imported",
    Breaks.AT_USE: "read: breaks when it is used",
}


def markdown(
    tables: Mapping[tuple[str, str], Sequence[UserRelease]],
    newest: Mapping[str, str],
    pythons: Sequence[str] = (),
    torches: Sequence[str] = (),
) -> str:
    """Return the page.

    Args:
        tables: rows by package and other package.
        newest: the newest releases of the map by package.
        pythons: versions of Python of the measurements.
        torches: versions of torch of the measurements.
    """
    head = INTRODUCTION.format(pythons=" or ".join(pythons) or "(none)", torches=" or ".join(torches) or "(none)")
    return "\n".join([head, *lines(tables, newest)]).rstrip() + "\n"


def lines(tables: Mapping[tuple[str, str], Sequence[UserRelease]], newest: Mapping[str, str]) -> Iterator[str]:
    for (user, provider), rows in tables.items():
        yield f"## {user} with {provider}"
        yield ""
        yield counts(rows)
        yield ""
        names = [*MEASURED.values(), *READ.values()]
        yield table([user, *names], [[f"`{each.version}`", *cells(each, newest[provider])] for each in rows])
        yield ""


def counts(rows: Sequence[UserRelease]) -> str:
    """Return a sentence with the numbers of pairs of minor releases by what was measured."""
    found: Counter[PairMeasurement] = Counter()
    for row in rows:
        for each in row.measured:
            found[each.measurement] += each.count
    return (
        f"Of {found.total()} pairs of minor releases, {found[PairMeasurement.IMPORTED]} were imported, "
        f"{found[PairMeasurement.FAILED]} failed, {found[PairMeasurement.EXCLUDED]} exclude each other by their "
        f"requirements, and {found[PairMeasurement.NONE]} are not measured."
    )


def cells(release: UserRelease, newest: str) -> Iterator[str]:
    for state in MEASURED:
        yield ", ".join(span_words(each) for each in release.measured if each.measurement is state) or "-"
    for breaks in READ:
        found = [range_words(each, newest) for each in release.broken if each.breaks is breaks]
        yield "; ".join(found) or "-"


def span_words(each: MeasuredRange) -> str:
    return each.first if each.count == 1 else f"{each.first} to {each.last}"


def range_words(each: BrokenRange, newest: str) -> str:
    span = each.first if each.first == each.last else f"{each.first} to {each.last}"
    if each.last == newest and each.first != each.last:
        span = f"{each.first} and newer"
    return f"{span} (`{each.target}`)"
