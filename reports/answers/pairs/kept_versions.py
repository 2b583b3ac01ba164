"""Narrows a recommendation by the map of the API: which green sets still import with the versions that a user keeps."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from matrix.api_map.measured import import_results
from matrix.api_map.predictions import predict
from reports.answers.api.environment_names import broken_imports
from reports.answers.pairs.pair_answers import (
    READ,
    PairStatus,
    completed,
    fails,
    has_releases,
    measured_words,
    newest_releases,
    pair_answers,
    unmet_requirements,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from packaging.requirements import Requirement

    from matrix.api_map.measured.import_results import MeasuredImports
    from matrix.api_map.query import ApiMap
    from reports.answers.pairs.pair_answers import PairAnswer

MOST_TRIED: Final = 12  # sets; each takes an eighth of a second


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptCombination:
    """A green set with the versions that a user keeps instead of its own, and what is against it, with the proof."""

    set: str
    versions: Mapping[str, str]
    reasons: tuple[str, ...]

    @property
    def works(self) -> bool:
        return not self.reasons

    def as_json(self) -> dict[str, Any]:
        return {"set": self.set, "pins": dict(self.versions), "against": list(self.reasons)}


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptVersions:
    """What the map and the import matrix say of the versions that a user keeps.

    Attributes:
        versions: the releases that stand for the versions.
        broken: the kept packages that do not work together; then no combination was tried.
        refused: the sets that do not import with them, the newest first.
        best: the newest green set that imports with them, as far as the map knows; no cell measured it as a whole.
    """

    versions: Mapping[str, str]
    broken: tuple[PairAnswer, ...] = ()
    refused: tuple[KeptCombination, ...] = ()
    best: KeptCombination | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "versions": dict(self.versions),
            "broken": [each.model_dump(mode="json") for each in self.broken],
            "refused": [each.as_json() for each in self.refused],
            "best": self.best and self.best.as_json(),
        }


def kept_versions(
    have: Sequence[Requirement], green: Mapping[str, Mapping[str, str]], api: ApiMap
) -> KeptVersions | None:
    """Try green sets, by key and the newest first, with the versions that a user keeps.

    Returns None if the map has no release of a package that the user may have.
    """
    versions = newest_releases(have, api)
    if versions.keys() != {each.name for each in have}:
        return None
    results = list(import_results.load())
    broken = tuple(
        each for each in pair_answers(have, api, results) if each.status is PairStatus.AT_IMPORT or each.unmet
    )
    if broken:
        return KeptVersions(versions=versions, broken=broken)
    refused: list[KeptCombination] = []
    for key, pins in islice(green.items(), MOST_TRIED):
        tried = combination(key, {**pins, **versions}, api, results)
        if tried.works:
            return KeptVersions(versions=versions, refused=tuple(refused), best=tried)
        refused.append(tried)
    return KeptVersions(versions=versions, refused=tuple(refused))


def combination(
    key: str, versions: Mapping[str, str], api: ApiMap, results: Sequence[MeasuredImports] = ()
) -> KeptCombination:
    """Return what is against a set of versions: requirements that are not met, and imports that fail."""
    known = {name: version for name, version in versions.items() if api.place(name, version) is not None}
    every = completed(known, api)
    reasons = [f"{each}  [{READ}]" for each in unmet_requirements(known, api)]
    for broken in islice(broken_imports(predict(api, every, later=False)), 1):
        pair = {name: every[name] for name in broken.pair if name in every}
        measured = (each for each in results if has_releases(each, pair) and fails(each, pair, broken.missing.target))
        proof = next((measured_words(each) for each in measured), READ)
        reasons.insert(0, f"{broken.sentence(every)}  [{proof}]")
    return KeptCombination(set=key, versions=versions, reasons=tuple(reasons))
