"""Combinations of releases: the pairs that they have, those to import again, and what users install beside a pair."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Final

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from matrix.api_map.measured.compatibility import admits, bounds
from matrix.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from matrix.api_map.measured.import_results import MeasuredImports
    from matrix.api_map.query import ApiMap
    from matrix.api_map.store import MappedRelease

BASE: Final = "transformers"
PARTNERS: Final = ("peft", "trl", "accelerate", "bitsandbytes")
# An old one needs parts of triton that newer torch does not bring, and then breaks the imports of all the others.
NEEDS_OLD_TRITON: Final = frozenset({"bitsandbytes"})
OLD_TRITON: Final = SpecifierSet("<2.6")  # the versions of torch whose triton has triton.ops
# In this order: a package's requirements bound those behind it.
FILLED: Final = (*PARTNERS, "tokenizers", "datasets", "huggingface_hub", "safetensors")


def minor_releases(releases: Sequence[MappedRelease]) -> tuple[MappedRelease, ...]:
    """Return the last patch of each minor release that is not yanked."""
    last: dict[tuple[int, ...], MappedRelease] = {}
    for each in releases:
        if not each.yanked and not each.unreadable:
            last[Version(each.version).release[:2]] = each
    return tuple(last.values())


Pair = tuple[str, str, str]  # version of transformers, other package, its version


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCombination:
    """Versions of all packages, and the versions of trl to import with the rest."""

    versions: Mapping[str, str]
    variants: tuple[str, ...]

    @property
    def pairs(self) -> frozenset[Pair]:
        return pairs_of(self.versions) | {(self.versions[BASE], "trl", each) for each in self.variants}


def pairs_of(versions: Mapping[str, str]) -> frozenset[Pair]:
    """Return the pairs of transformers and a partner that a combination has."""
    return frozenset((versions[BASE], name, versions[name]) for name in PARTNERS if name in versions)


def pairs(api: ApiMap, *, seed: int = 0) -> list[Pair]:
    """Return all pairs of minor releases of transformers and each partner, in a random but repeatable order."""
    found = [
        (base.version, partner, other.version)
        for base in minor_releases(api.releases[BASE])
        for partner in PARTNERS
        for other in minor_releases(api.releases[partner])
    ]
    random.Random(seed).shuffle(found)  # noqa: S311 - a sample, no secret
    return found


def of_bases(found: Collection[Pair], specifier: str) -> list[Pair]:
    """Return the pairs whose release of transformers meets a specifier such as ``>=5.0``.

    Raises:
        UserError: it is no specifier.
    """
    try:
        wanted = SpecifierSet(specifier)
    except InvalidSpecifier as error:
        raise UserError(f"--transformers: {specifier!r} is no version specifier; write e.g. '>=5.0'") from error
    return [each for each in found if wanted.contains(each[0], prereleases=True)]


def always_newest(torch: str) -> frozenset[str]:
    """Return the packages of which a combination has the newest release unless it is made for another one."""
    return frozenset() if OLD_TRITON.contains(torch) else NEEDS_OLD_TRITON


def chosen_partners(name: str) -> tuple[str, ...]:
    """Return the package for whose pairs combinations are made; all partners if no name is given.

    Raises:
        UserError: the package has no pairs.
    """
    if name and name not in PARTNERS:
        raise UserError(f"--with: {name!r} has no pairs with {BASE}; choose from {', '.join(PARTNERS)}")
    return (name,) if name else PARTNERS


def again(
    results: Iterable[MeasuredImports],
    done: Collection[Mapping[str, str]],
    *,
    first: Callable[[MeasuredImports], bool],
) -> list[PlannedCombination]:
    """Return the combinations of stored results, so that each set of releases besides trl is imported once.

    Args:
        results: those to measure again.
        done: versions of combinations to leave out.
        first: tells if a result comes before the others; each of the two parts is in a random but repeatable order.
    """
    groups: dict[tuple[tuple[str, str], ...], list[MeasuredImports]] = defaultdict(list)
    for each in (one for one in results if one.versions not in done):
        groups[tuple(sorted(one for one in each.versions.items() if one[0] != "trl"))].append(each)
    found = list(groups.values())
    random.Random(0).shuffle(found)  # noqa: S311 - a sample, no secret
    return [
        PlannedCombination(versions=group[0].versions, variants=tuple(each.versions["trl"] for each in group))
        for group in sorted(found, key=lambda group: not any(map(first, group)))
    ]


def filled(given: Mapping[str, str], api: ApiMap) -> dict[str, str]:
    """Add the other packages to given versions: the newest releases until the day of the newest of these.

    If none meets all requirements, the newest of that day is taken, as a user would who ignores pip's complaint. Of
    packages that need an old triton, later releases count as well.
    """
    chosen = dict(given)
    day = max(release(api, *each).uploaded for each in chosen.items())
    for name in (each for each in FILLED if each not in chosen):
        last = date.max if name in NEEDS_OLD_TRITON else day
        candidates = [
            each for each in api.releases[name] if each.uploaded <= last and not (each.yanked or each.unreadable)
        ]
        fitting = [each for each in candidates if fits(name, each, chosen, api)]
        if candidates:
            chosen[name] = (fitting or sorted(candidates, key=lambda each: Version(each.version)))[-1].version
    return chosen


def fits(name: str, candidate: MappedRelease, chosen: Mapping[str, str], api: ApiMap) -> bool:
    """Tell if a release meets the requirements of chosen releases, and these its own."""
    theirs = [bound for each in chosen.items() for bound in bounds(release(api, *each)).get(name, ())]
    mine = [(bound, version) for other, version in chosen.items() for bound in bounds(candidate).get(other, ())]
    return all(admits(each, candidate.version) for each in theirs) and all(admits(*each) for each in mine)


def release(api: ApiMap, name: str, version: str) -> MappedRelease:
    place = api.place(name, version)
    if place is None:
        raise KeyError(f"{name} {version}")
    return api.releases[name][place]
