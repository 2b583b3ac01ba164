"""Chooses combinations of releases to import: each minor release of one package with each of transformers."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING, Final

from packaging.specifiers import SpecifierSet
from packaging.version import Version

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matrix.api_map.query import ApiMap
    from matrix.api_map.store import MappedRelease

BASE: Final = "transformers"
PARTNERS: Final = ("peft", "trl", "accelerate", "bitsandbytes")
# In this order: a package's requirements bound those behind it.
FILLED: Final = (*PARTNERS, "tokenizers", "datasets", "huggingface_hub", "safetensors")


def minor_releases(releases: Sequence[MappedRelease]) -> tuple[MappedRelease, ...]:
    """Return the last patch of each minor release that is not yanked."""
    last: dict[tuple[int, ...], MappedRelease] = {}
    for each in releases:
        if not each.yanked and not each.unreadable:
            last[Version(each.version).release[:2]] = each
    return tuple(last.values())


def pairs(api: ApiMap, *, seed: int = 0) -> list[dict[str, str]]:
    """Return all pairs of minor releases of transformers and each partner, in a random but repeatable order."""
    found = [
        {BASE: base.version, partner: other.version}
        for base in minor_releases(api.releases[BASE])
        for partner in PARTNERS
        for other in minor_releases(api.releases[partner])
    ]
    random.Random(seed).shuffle(found)  # noqa: S311 - a sample, no secret
    return found


def trl_variants(versions: Mapping[str, str], api: ApiMap, count: int) -> list[str]:
    """Return a combination's version of trl, and other minor releases at random, the same ones in each call."""
    others = [each.version for each in minor_releases(api.releases["trl"]) if each.version != versions["trl"]]
    chosen = random.Random(repr(sorted(versions.items()))).sample(others, count)  # noqa: S311 - a sample, no secret
    return [versions["trl"], *chosen]


def filled(pair: Mapping[str, str], api: ApiMap) -> dict[str, str]:
    """Add the other packages to a pair: each the newest until the pair's newer release that all requirements admit.

    If no release meets all of them, the newest of that day is taken, as a user would who ignores pip's complaint.
    """
    chosen = dict(pair)
    day = max(release(api, name, version).uploaded for name, version in pair.items())
    for name in (each for each in FILLED if each not in chosen):
        candidates = [
            each for each in api.releases[name] if each.uploaded <= day and not (each.yanked or each.unreadable)
        ]
        fitting = [each for each in candidates if fits(name, each, chosen, api)]
        if fitting or candidates:
            chosen[name] = (fitting or newest_first(candidates))[-1].version
    return chosen


def is_installable(versions: Mapping[str, str], api: ApiMap) -> bool:
    """Tell if libraries were found that transformers admits: old ones need releases from before the map."""
    checked = ("tokenizers", "huggingface_hub", "safetensors")
    base = release(api, BASE, versions[BASE])
    return all(
        bound.contains(versions[name], prereleases=True)
        for name in checked
        if name in versions
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
