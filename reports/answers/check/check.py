"""Checks scripts, notebooks and configurations: which releases have what they take, and which releases fit."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Final

from matrix.api_map.store import ranges
from matrix.api_map.view import Presence
from reports.answers.check import sources
from reports.answers.check.fit import Fitting
from reports.answers.check.overrides import narrower_overrides
from reports.answers.check.reader import read_code
from reports.answers.check.releases_with import ReleaseAnswers, package_of, presence_of
from reports.answers.check.uses import Found

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from matrix.api_map.query import ApiMap
    from reports.answers.check.fit import FitResult
    from reports.answers.check.overrides import NarrowOverride
    from reports.answers.check.releases_with import Answer
    from reports.answers.check.uses import Use

CODE: Final = (sources.SCRIPT, sources.NOTEBOOK)
Range = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class CheckedUse:
    """A use with the releases of its package that have it, and the new name that the stack states for it.

    ``unknown`` are releases of which the map cannot say it. ``known``: a release has it. Of other uses the map says
    nothing: the name may be made at run time. ``inherited`` are the releases of other packages whose classes pass it on
    to a class of this one, if not all do.
    """

    use: Use
    ranges: tuple[Range, ...]
    unknown: tuple[Range, ...]
    everywhere: bool
    known: bool
    renamed: str = ""
    inherited: tuple[tuple[str, tuple[Range, ...]], ...] = ()


@dataclass(frozen=True, kw_only=True)
class PackageFit:
    """The releases of a package that fit, as ranges, with what excludes the one before the first and after the last.

    ``first`` and ``newest`` are those of the map. If no release fits, ``conflict`` names two uses that no release has
    both, if there are two.
    """

    package: str
    ranges: tuple[Range, ...]
    first: str
    newest: str
    lower: tuple[str, ...] = ()
    upper: tuple[str, ...] = ()
    conflict: tuple[str, ...] = ()

    @property
    def is_free(self) -> bool:
        """Tell if every release of the map fits."""
        return self.ranges == ((self.first, self.newest),)


@dataclass(frozen=True, kw_only=True)
class Misfit:
    """A use that given versions lack."""

    checked: CheckedUse
    package: str
    version: str


@dataclass(frozen=True, kw_only=True)
class CodeCheck:
    """What files take from the stack, and the releases that have it. ``empty``: a package of which no release fits."""

    files: tuple[str, ...]
    found: Found
    uses: tuple[CheckedUse, ...]
    fits: tuple[PackageFit, ...]
    empty: str
    overrides: tuple[NarrowOverride, ...]

    @property
    def has_common_range(self) -> bool:
        return not self.empty


def check(files: Sequence[Path], api: ApiMap) -> CodeCheck:
    """Check files.

    Raises:
        UserError: a file cannot be read, or has no code or settings to check.
    """
    releases = ReleaseAnswers(api)
    found = Found()
    for path in (each for each in files if each.suffix.lower() in CODE):
        found.add(read_code(sources.read(path)))
    for path in (each for each in files if each.suffix.lower() not in CODE):
        found.add(read_settings(path, releases, found))
    overrides = tuple(narrower_overrides(found.overrides, releases))
    fitting = Fitting(releases, found.uses, found.stated)
    for each in overrides:
        fitting.exclude(each)
    fit = fitting.run()
    return CodeCheck(
        files=tuple(map(str, files)),
        found=found,
        uses=tuple(checked_use(each, releases) for each in found.uses if package_of(each.paths[0]) in api.releases),
        fits=tuple(package_fit(name, fit, fitting) for name in fit.domains),
        empty=fit.empty,
        overrides=overrides,
    )


def read_settings(path: Path, releases: ReleaseAnswers, scripts: Found) -> Found:
    """Read a configuration. A check of code alone does not import the reader of YAML, which takes a quarter second."""
    from reports.answers.check import configurations

    sources.text_of(path)  # refuses what is no text in this command's words
    return configurations.read_settings(path, releases, tuple(scripts.options))


def checked_use(use: Use, releases: ReleaseAnswers) -> CheckedUse:
    known = any(map(releases.is_known, use.paths))
    answers = [releases.having(path) for path in use.paths if package_of(path) == use.package]
    readable = releases.readable(use.package)
    having = {place for place in readable if any(is_there(each[place]) for each in answers)}
    unknown = {place for place in readable - having if any(each[place] is Presence.UNKNOWN for each in answers)}
    everywhere = having | unknown >= readable
    inherited = (
        tuple(inherited_ranges((each[place] for each in answers for place in having), releases)) if known else ()
    )
    return CheckedUse(
        use=use,
        ranges=as_ranges(use.package, having, releases),
        unknown=as_ranges(use.package, unknown, releases),
        everywhere=everywhere,
        known=known,
        renamed="" if (everywhere and not inherited) or not known else new_name(use, releases),
        inherited=inherited,
    )


def new_name(use: Use, releases: ReleaseAnswers) -> str:
    return next(filter(None, map(releases.rename, use.paths)), "")


def inherited_ranges(answers: Iterable[Answer], releases: ReleaseAnswers) -> Iterator[tuple[str, tuple[Range, ...]]]:
    """Yield the releases of each other package whose classes have what a class of this one inherits, if not all do."""
    bases = {base for answer in answers if isinstance(answer, tuple) for base in answer}
    for package in sorted({package_of(each) for each in bases}):
        several = [releases.having(each) for each in bases if package_of(each) == package]
        places = {
            place
            for place in releases.readable(package)
            if any(each[place] is not Presence.MISSING for each in several)
        }
        if places != releases.readable(package):
            yield package, as_ranges(package, places, releases)


def is_there(answer: Answer) -> bool:
    """Tell if a release has a name, perhaps only with some releases of another package."""
    return answer is Presence.THERE or isinstance(answer, tuple)


def as_ranges(package: str, places: Iterable[int], releases: ReleaseAnswers) -> tuple[Range, ...]:
    bits = sum(1 << place for place in places)
    return tuple((releases.version(package, first), releases.version(package, last)) for first, last in ranges(bits))


def package_fit(package: str, fit: FitResult, fitting: Fitting) -> PackageFit:
    releases, domain = fitting.releases, fit.domains[package]
    readable = sorted(releases.readable(package))
    below = [place for place in readable if domain and place < min(domain)]
    above = [place for place in readable if domain and place > max(domain)]
    return PackageFit(
        package=package,
        ranges=as_ranges(package, domain, releases),
        first=releases.version(package, readable[0]),
        newest=releases.version(package, readable[-1]),
        lower=tuple(causes(package, below[-1], fit, fitting)) if below else (),
        upper=tuple(causes(package, above[0], fit, fitting)) if above else (),
        conflict=() if domain else conflict(package, fitting),
    )


def conflict(package: str, fitting: Fitting) -> tuple[str, ...]:
    """Return two uses that no release of a package has both; none if only several together exclude all."""
    readable = fitting.releases.readable(package)
    having = {
        use.words: frozenset(place for place in readable if fitting.may_have(use, place))
        for use in fitting.uses
        if use.package == package
    }
    pairs = combinations(having, 2)
    return next(((one, other) for one, other in pairs if not having[one] & having[other]), ())


def causes(package: str, place: int, fit: FitResult, fitting: Fitting) -> Iterable[str]:
    """Return what excludes a release: names that it lacks, or a requirement."""
    found = [each.words for each in fitting.uses if each.package == package and not fitting.has(each, place)]
    found += [each.words for each in fitting.uses if lacks_base(each, package, place, fitting)]
    if not found and (package, place) in fit.required:
        found = [fit.required[package, place]]
    return dict.fromkeys(found)


def lacks_base(use: Use, package: str, place: int, fitting: Fitting) -> bool:
    """Tell if a release lacks a name that every release of the use's own package takes from it."""
    needed = fitting.needed(use) if use.package != package else {}
    return package in needed and place not in needed[package]


def misfits(checked: CodeCheck, versions: Mapping[str, str], api: ApiMap) -> list[Misfit]:
    """Return the uses that given versions lack, each once per place. Guarded and unknown uses never count."""
    view = api.at(versions)
    found: list[Misfit] = []
    for each in checked.uses:
        package = each.use.package
        if each.use.guard or not each.known or package not in view.places:
            continue
        if all(presence_of(path, view) is Presence.MISSING for path in each.use.paths):
            found.append(Misfit(checked=each, package=package, version=versions[package]))
    return found


def unchecked(checked: CodeCheck, versions: Mapping[str, str], api: ApiMap) -> list[str]:
    """Return the packages that the files use and of which nothing was checked, each with the reason."""
    reasons: list[str] = []
    for package in dict.fromkeys(each.use.package for each in checked.uses):
        if package not in versions:
            reasons.append(f"{package} (no version given)")
        elif api.place(package, versions[package]) is None:
            first, newest = api.releases[package][0].version, api.releases[package][-1].version
            reasons.append(f"{package} {versions[package]} (the map has releases {first} to {newest})")
    return reasons
