"""Chooses combinations of releases to import: each minor release of one package with each of transformers.

A combination measures several pairs at once: beside the pair that it is made for, it has releases of the other packages
whose pair with the same transformers is not measured yet.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Final

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from matrix.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from matrix.api_map.measured.import_results import MeasuredImports
    from matrix.api_map.query import ApiMap
    from matrix.api_map.store import MappedRelease

BASE: Final = "transformers"
PARTNERS: Final = ("peft", "trl", "accelerate", "bitsandbytes")
# In this order: a package's requirements bound those behind it.
# An old one needs parts of triton that newer torch does not bring, and then breaks the imports of all the others.
NEEDS_OLD_TRITON: Final = frozenset({"bitsandbytes"})
OLD_TRITON: Final = SpecifierSet("<2.6")  # the versions of torch whose triton has triton.ops
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


def planned(
    api: ApiMap,
    measured: Iterable[Mapping[str, str]],
    *,
    variants: int,
    has_wheel: Callable[[str, str], bool] = lambda _package, _version: True,
    partners: Collection[str] = PARTNERS,
    newest: Collection[str] = NEEDS_OLD_TRITON,
) -> Iterator[PlannedCombination]:
    """Yield combinations until each pair that requirements admit is in one, except pairs that were measured.

    Args:
        api: the map.
        measured: versions of combinations that were measured in the environment.
        variants: further releases of trl with each combination.
        has_wheel: tells if a release can be installed with the environment's interpreter.
        partners: the packages for whose pairs combinations are made.
        newest: packages of which the others have the newest release.
    """
    left = set(pairs(api)).difference(*map(pairs_of, measured))
    for pair in pairs(api):
        if pair not in left or pair[1] not in partners:
            continue
        left.discard(pair)
        base, partner, version = pair
        if not (has_wheel(BASE, base) and has_wheel(partner, version)):
            continue
        versions = filled({BASE: base, partner: version}, api, left, newest=newest)
        if not is_installable(versions, api) or not all(has_wheel(*each) for each in versions.items()):
            continue
        further = sorted(each for one, name, each in left if (one, name) == (base, "trl"))
        chosen = random.Random(repr(pair)).sample(further, min(variants, len(further)))  # noqa: S311 - a sample
        found = PlannedCombination(
            versions=versions,
            variants=tuple(dict.fromkeys([versions["trl"], *(each for each in chosen if has_wheel("trl", each))])),
        )
        left -= found.pairs
        yield found


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


def filled(
    given: Mapping[str, str], api: ApiMap, left: Collection[Pair] = (), *, newest: Collection[str] = NEEDS_OLD_TRITON
) -> dict[str, str]:
    """Add the other packages to given versions, until the day of the newest of these.

    Of a partner, the newest release that all requirements admit and whose pair with transformers is ``left``; of other
    packages, and if no pair is left, the newest release that all requirements admit. If none meets them, the newest of
    that day is taken, as a user would who ignores pip's complaint. Of ``newest``, later releases count as well.
    """
    chosen = dict(given)
    day = max(release(api, *each).uploaded for each in chosen.items())
    for name in (each for each in FILLED if each not in chosen):
        last = date.max if name in newest else day
        candidates = [
            each for each in api.releases[name] if each.uploaded <= last and not (each.yanked or each.unreadable)
        ]
        fitting = [each for each in candidates if fits(name, each, chosen, api)]
        packed = name not in newest
        wanted = [each for each in fitting if packed and (given.get(BASE), name, each.version) in left]
        if candidates:
            chosen[name] = (wanted or fitting or newest_first(candidates))[-1].version
    return chosen


def is_installable(versions: Mapping[str, str], api: ApiMap) -> bool:
    """Tell if libraries were found that transformers admits: old ones need releases from before the map."""
    checked = ("tokenizers", "huggingface_hub", "safetensors")
    base = release(api, BASE, versions[BASE])
    return all(
        name in versions and bound.contains(versions[name], prereleases=True)
        for name in checked
        for bound in bounds_on(name, base)
    )


def newest_first(candidates: Sequence[MappedRelease]) -> list[MappedRelease]:
    return sorted(candidates, key=lambda each: Version(each.version))


def fits(name: str, candidate: MappedRelease, chosen: Mapping[str, str], api: ApiMap) -> bool:
    """Tell if a release meets the requirements of chosen releases, and these its own."""
    theirs = [each for other, version in chosen.items() for each in bounds_on(name, release(api, other, version))]
    if not all(each.contains(candidate.version, prereleases=True) for each in theirs):
        return False
    return all(
        bound.contains(version, prereleases=True)
        for other, version in chosen.items()
        for bound in bounds_on(other, candidate)
    )


def bounds_on(name: str, user: MappedRelease) -> list[SpecifierSet]:
    return [
        SpecifierSet(each.removeprefix(name))
        for each in user.requires
        if re.fullmatch(rf"{name}(?!\w).*", each, re.DOTALL)
    ]


def release(api: ApiMap, name: str, version: str) -> MappedRelease:
    place = api.place(name, version)
    if place is None:
        raise KeyError(f"{name} {version}")
    return api.releases[name][place]
