"""Draws the check of a user's code as text and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cases.space.plural import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from reports.answers.check.check import CheckedUse, CodeCheck, Misfit, PackageFit, Range
    from reports.answers.check.overrides import NarrowOverride

SCHEMA: Final = 1
SHOWN: Final = 12  # rows of a list; --all shows the rest
SHOWN_CAUSES: Final = 2


def lines(checked: CodeCheck, *, every: bool) -> Iterator[str]:
    """Yield the check without given versions: the releases that fit, and what narrows them."""
    yield heading(checked)
    if checked.fits:
        yield ""
        yield from fit_lines(checked)
    yield from use_lines(checked, every=every)
    yield from note_lines(checked, every=every)
    yield ""
    yield summary(checked)


def heading(checked: CodeCheck) -> str:
    names = ", ".join(dict.fromkeys(each.use.package for each in checked.uses))
    if not names:
        return f"{', '.join(checked.files)}: takes nothing from the packages of the map by name"
    return f"{', '.join(checked.files)}: {counted(len(grouped(checked.uses)), 'name')} from {names}"


def fit_lines(checked: CodeCheck) -> Iterator[str]:
    rows = [("package", "releases that fit", "because of")]
    rows += [(each.package, fit_words(each), cause_words(each)) for each in checked.fits]
    yield from table(rows)


def table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    yield from ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def fit_words(fit: PackageFit) -> str:
    if not fit.ranges:
        return "none"
    return range_words(fit.ranges, fit.first, fit.newest)


def range_words(ranges: Sequence[Range], first: str, newest: str) -> str:
    """Return ranges of releases in words; the map says nothing of releases before ``first`` and after ``newest``."""
    if tuple(ranges) == ((first, newest),):
        return f"all, {first} to {newest}"
    return ", ".join(one_range(low, high, first, newest) for low, high in ranges) or "none"


def one_range(low: str, high: str, first: str, newest: str) -> str:
    if low == high:
        return low
    if low == first:
        return f"up to {high}"
    return f"{low} and newer" if high == newest else f"{low} to {high}"


def cause_words(fit: PackageFit) -> str:
    if fit.conflict:
        return f"no release has both {' and '.join(fit.conflict)}"
    sides = [("older lack", fit.lower), ("newer lack", fit.upper)]
    return "; ".join(side_words(words, causes) for words, causes in sides if causes)


def side_words(words: str, causes: Sequence[str]) -> str:
    if " " in causes[0]:  # a sentence about a requirement
        return causes[0]
    more = f" and {len(causes) - SHOWN_CAUSES} more" if len(causes) > SHOWN_CAUSES else ""
    return f"{words} {', '.join(causes[:SHOWN_CAUSES])}{more}"


def use_lines(checked: CodeCheck, *, every: bool) -> Iterator[str]:
    partial = [each for each in checked.uses if each.known and (every or not each.everywhere or each.inherited)]
    narrowing = ordered(grouped(each for each in partial if not each.use.guard), checked, every=every)
    guarded = grouped(each for each in partial if each.use.guard)
    if narrowing:
        yield from ("", "Names:" if every else "Names that only some releases have:")
        yield from shown(list(use_rows(narrowing, checked)), every=every)
    if guarded:
        yield from ("", "Guarded by the code, so they narrow nothing:")
        yield from shown(list(use_rows(guarded, checked)), every=every)


def ordered(
    groups: dict[tuple[str, ...], list[CheckedUse]], checked: CodeCheck, *, every: bool
) -> dict[tuple[str, ...], list[CheckedUse]]:
    """Put first what bounds the releases that fit, then what has a new name. Leave out what follows from its owner."""
    causes = {name for each in checked.fits for name in (*each.lower, *each.upper)}
    spans = {several[0].use.paths[0]: several[0].ranges for several in groups.values()}

    def rank(several: Sequence[CheckedUse]) -> int:
        return 0 if several[0].use.words in causes else 1 if several[0].renamed else 2

    kept = {
        paths: several
        for paths, several in groups.items()
        if every or several[0].inherited or spans.get(owner_of(paths[0])) != several[0].ranges
    }
    return dict(sorted(kept.items(), key=lambda pair: rank(pair[1])))


def owner_of(path: str) -> str:
    """Return the class of a parameter or member."""
    owner, parenthesis, _ = path.partition("(")
    return owner if parenthesis else owner.rpartition(".")[0]


def grouped(uses: Iterable[CheckedUse]) -> dict[tuple[str, ...], list[CheckedUse]]:
    """Group the places of each name."""
    found: dict[tuple[str, ...], list[CheckedUse]] = {}
    for each in uses:
        found.setdefault(each.use.paths, []).append(each)
    return found


def use_rows(groups: Mapping[tuple[str, ...], Sequence[CheckedUse]], checked: CodeCheck) -> Iterator[str]:
    bounds = {each.package: (each.first, each.newest) for each in checked.fits}
    rows: list[tuple[str, ...]] = []
    for several in groups.values():
        first = several[0]
        place = first.use.place + (f" and {len(several) - 1} more" if len(several) > 1 else "")
        package = first.use.package
        which = range_words(first.ranges, *bounds.get(package, ("", "")))
        words = (which, unknown_words(first), inherited_words(first, bounds), renamed_words(first), guard_words(first))
        rows.append((place, first.use.words, f"{package} {''.join(words)}"))
    yield from table(rows)


def unknown_words(checked: CheckedUse) -> str:
    spans = ", ".join(low if low == high else f"{low} to {high}" for low, high in checked.unknown)
    return f", unknown for {spans}" if spans and not checked.everywhere else ""


def inherited_words(checked: CheckedUse, bounds: Mapping[str, Range]) -> str:
    several = (f"{name} {range_words(ranges, *bounds.get(name, ('', '')))}" for name, ranges in checked.inherited)
    named = " and ".join(several)
    return f", with {named}" if named else ""


def renamed_words(checked: CheckedUse) -> str:
    return f"; now {checked.renamed}" if checked.renamed else ""


def guard_words(checked: CheckedUse) -> str:
    return f" ({checked.use.guard})" if checked.use.guard else ""


def shown(rows: Sequence[str], *, every: bool) -> Iterator[str]:
    limit = len(rows) if every else SHOWN
    yield from (f"  {each}" for each in rows[:limit])
    if len(rows) > limit:
        yield f"  and {len(rows) - limit} more; --all lists them"


def note_lines(checked: CodeCheck, *, every: bool) -> Iterator[str]:
    overrides = [override_words(each) for each in checked.overrides]
    if overrides:
        yield from ("", "Methods that accept less than the method that they replace; they break if it is passed:")
        yield from shown(overrides, every=every)
    unknown = [f"{each.place}: {each.reason}" for each in checked.found.dynamic] + unheard(checked)
    if unknown:
        yield from ("", "Unknown until the code runs:")
        yield from shown(unknown, every=every)
    outside = [f"{each.place}: {each.reason}" for each in checked.found.outside]
    if outside:
        yield from ("", "Outside the check:")
        yield from shown(outside, every=every)


def unheard(checked: CodeCheck) -> list[str]:
    """Name what no release of the map states: it is made or passed on at run time, or it never existed."""
    owners: dict[str, list[CheckedUse]] = {}
    for each in checked.uses:
        if not each.known:
            owners.setdefault(each.use.words.partition("(")[0], []).append(each)
    return [f"{several[0].use.place}: {unheard_words(owner, several)}" for owner, several in owners.items()]


def unheard_words(owner: str, several: Sequence[CheckedUse]) -> str:
    parameters = dict.fromkeys(each.use.words.partition("(")[2].removesuffix(")") for each in several)
    named = ", ".join(each for each in parameters if each)
    return f"{owner}({named}): no release states them" if named else f"{owner}: no release states it"


def override_words(narrow: NarrowOverride) -> str:
    spans = ", ".join(low if low == high else f"{low} to {high}" for low, high in narrow.ranges)
    owner = ".".join(narrow.path.split(".")[-2:])
    return (
        f"{narrow.override.place}: {narrow.override.own_name} lacks {narrow.parameter}, which {owner} has in "
        f"{narrow.package} {spans}"
    )


def summary(checked: CodeCheck) -> str:
    if checked.empty:
        return f"No common range: no release of {checked.empty} has everything that is used of it."
    narrow = [each for each in checked.fits if not each.is_free]
    if not checked.uses:
        return "Nothing to check."
    if not narrow:
        return "Every release of the map has what the code takes by name."
    return f"Fits {', '.join(f'{each.package} {fit_words(each)}' for each in narrow)}."


def version_lines(
    checked: CodeCheck,
    source: str,
    versions: Mapping[str, str],
    misfits: Sequence[Misfit],
    unchecked: Sequence[str],
    *,
    every: bool,
) -> Iterator[str]:
    """Yield the check of given versions."""
    yield heading(checked)
    yield f"Versions from {source}: {', '.join(f'{name} {version}' for name, version in versions.items())}"
    if misfits:
        yield from ("", "These versions lack:")
        groups = grouped(each.checked for each in misfits)
        yield from (f"  {each}" for each in use_rows(groups, checked))
    broken = overrides_at(checked, versions)
    if broken:
        yield from ("", "Methods that accept less than the method that they replace; they break if it is passed:")
        yield from (f"  {override_words(each)}" for each in broken)
    if unchecked:
        yield from ("", f"Not checked: {', '.join(unchecked)}")
    unknown = [f"{each.place}: {each.reason}" for each in checked.found.dynamic] + unheard(checked)
    if unknown:
        yield from ("", "Unknown until the code runs:")
        yield from shown(unknown, every=every)
    yield ""
    count = len(grouped(each.checked for each in misfits))
    yield f"Does not fit: {counted(count, 'name')} missing." if misfits else fits_words(checked, unchecked)


def overrides_at(checked: CodeCheck, versions: Mapping[str, str]) -> list[NarrowOverride]:
    return [each for each in checked.overrides if each.package in versions and each.is_in(versions[each.package])]


def fits_words(checked: CodeCheck, unchecked: Sequence[str]) -> str:
    if unchecked and len(unchecked) == len({each.use.package for each in checked.uses}):
        return "Nothing was checked."
    return "Fits: these versions have everything that the code takes by name."
