"""Tells if releases of two packages work together: measured by the import matrix, or read from the map of the API."""

from __future__ import annotations

import re
from enum import Enum
from itertools import combinations
from typing import TYPE_CHECKING, Final, NoReturn

from pydantic import Field

from matrix.api_map.holding import unmet
from matrix.api_map.measured.combinations import filled
from matrix.api_map.predictions import predict
from matrix.keys import without_local
from matrix.run.outcome import Stored
from reports.answers.api.environment_names import broken_imports, later_sentence, packages_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from packaging.requirements import Requirement

    from matrix.api_map.measured.import_results import MeasuredImports
    from matrix.api_map.query import ApiMap

READ: Final = "read from the releases, not run"
NOTHING_FOUND: Final = "the map finds nothing that one takes from the other and that is missing"
PLACE: Final = re.compile(r"\[(?P<package>\w+)[\w.]*\]$")  # the module at the end of a measured error


class PairStatus(Enum):
    """What happens to releases of two packages that are installed together."""

    IMPORTS = "imports"
    AT_IMPORT = "breaks at import"
    AT_USE = "breaks when a part is used"
    NOT_MEASURED = "not measured"

    def __bool__(self) -> NoReturn:
        raise TypeError("compare a PairStatus by name")


class PairAnswer(Stored):
    """The answer for releases of two packages."""

    versions: dict[str, str]
    status: PairStatus
    because: str = Field(default="", description="the missing name and its user, or what the map finds")
    proof: str = Field(default="", description="the measurement, or that the releases were read")
    unmet: tuple[str, ...] = Field(default=(), description="requirements of one that the other does not meet")


def pair_answers(
    have: Sequence[Requirement], api: ApiMap, results: Sequence[MeasuredImports]
) -> tuple[PairAnswer, ...]:
    """Return the answer for each two of some packages, at the newest releases of the map that the user may have.

    Packages with no such release are left out.
    """
    versions = newest_releases(have, api)
    return tuple(
        pair_answer({name: versions[name] for name in pair}, api, results) for pair in combinations(versions, 2)
    )


def newest_releases(have: Iterable[Requirement], api: ApiMap) -> dict[str, str]:
    """Return the newest release of the map that meets each requirement, by package, without packages that have none."""
    bounds: dict[str, list[Requirement]] = {}
    for each in have:
        bounds.setdefault(each.name, []).append(each)
    found: dict[str, str] = {}
    for name, wanted in bounds.items():
        for release in reversed(api.releases.get(name, ())):
            usable = not (release.yanked or release.unreadable)
            if usable and all(each.specifier.contains(release.version, prereleases=True) for each in wanted):
                found[name] = release.version
                break
    return found


def without_release(have: Iterable[Requirement], api: ApiMap) -> Iterator[str]:
    """Yield a sentence for each requirement that no usable release of the map meets."""
    wanted = list(have)
    found = newest_releases(wanted, api)
    for each in wanted:
        if each.name not in found:
            versions = api.versions(each.name)
            meeting = [version for version in versions if each.specifier.contains(version, prereleases=True)]
            if meeting:
                yield f"{each}: {meeting[-1]} is yanked or cannot be read; name another version"
            else:
                yield f"{each}: not in the map of the API, which has {versions[0]} to {versions[-1]}"


def pair_answer(pair: Mapping[str, str], api: ApiMap, results: Iterable[MeasuredImports]) -> PairAnswer:
    """Return the answer for two releases of the map.

    The other packages are the newest of the day of the newer release that all requirements admit.
    """
    versions = completed(pair, api)
    predicted = predict(api, versions)
    broken = next((each for each in broken_imports(predicted) if each.pair == set(pair)), None)
    later = next((each for each in predicted.later if packages_of(each) == set(pair)), None)
    measured = [each for each in results if has_releases(each, pair)]
    works = next((each for each in measured if all(each.imports(name) is not False for name in pair)), None)
    failed = next(
        (each for each in measured if fails(each, pair, broken.missing.target if broken is not None else "")), None
    )
    proof = READ
    if works is None and (broken is not None or failed is not None):
        status = PairStatus.AT_IMPORT
        because = broken.sentence(versions) if broken is not None else error_of(failed, pair)
        proof = measured_words(failed) if failed is not None else READ
    elif later is not None:
        status, because = PairStatus.AT_USE, later_sentence(later, versions)
        proof = f"{READ}; the import was {measured_words(works)}" if works is not None else READ
    elif works is not None:
        status, because, proof = PairStatus.IMPORTS, "", measured_words(works)
    else:
        status, because = PairStatus.NOT_MEASURED, NOTHING_FOUND
    return PairAnswer(
        versions=dict(pair), status=status, because=because, proof=proof, unmet=tuple(unmet_requirements(pair, api))
    )


def error_of(measured: MeasuredImports | None, pair: Iterable[str]) -> str:
    return next((error for name in pair if measured and (error := measured.errors.get(f"import {name}"))), "")


def completed(pair: Mapping[str, str], api: ApiMap) -> dict[str, str]:
    """Add the other packages of the map to some releases, as a user would install them on the day of the newest."""
    versions = filled(pair, api)
    if "torch" not in versions:
        places = {name: api.place(name, version) for name, version in pair.items()}
        day = max(api.releases[name][place].uploaded for name, place in places.items() if place is not None)
        newest = api.newest_until("torch", day)
        versions |= {"torch": api.versions("torch")[newest]} if newest is not None else {}
    return versions


def has_releases(measured: MeasuredImports, pair: Mapping[str, str]) -> bool:
    versions = {**measured.versions, "torch": without_local(measured.torch)}
    return all(versions.get(name) == version for name, version in pair.items())


def fails(measured: MeasuredImports, pair: Iterable[str], missing: str) -> bool:
    """Tell if a measured import failed because of two packages: on a name that is missing, or as its error says."""
    word = re.findall(r"\w+", missing)[-1] if missing else ""
    for name in pair:
        error = measured.errors.get(f"import {name}", "")
        place = PLACE.search(error)
        others = [other for other in pair if place is not None and other != place["package"]]
        if (word and word in error) or (len(others) == 1 and f"'{others[0]}" in error):
            return True
    return False


def measured_words(measured: MeasuredImports) -> str:
    return f"measured with Python {measured.python}, torch {measured.torch}, {measured.measured:%Y-%m-%d}"


def unmet_requirements(pair: Mapping[str, str], api: ApiMap) -> Iterator[str]:
    """Yield the requirements that pip would complain about."""
    view = api.at(pair)
    for name, place in view.places.items():
        for each in unmet(api.releases[name][place].requires, view, api):
            yield f"{name} {pair[name]} requires {each}"
