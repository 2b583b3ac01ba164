"""Candidates: environments between the good and the bad one, as locks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from matrix.keys import SetKey, moved_key
from matrix.versions.locks import Lock, distribution, statements, versions_in
from matrix.versions.sets import PACKAGES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from matrix.evidence import Evidence
    from matrix.versions.sets import VersionSet

LONGEST_KEY: Final = 3  # packages that the name of a candidate lists


@dataclass(frozen=True, kw_only=True)
class MixedEnvironment:
    """A candidate: an environment to test, with packages of both ends or of releases between them.

    Attributes:
        label: what it is, for people.
        version_set: its name and its versions of the six packages.
        lock: its packages; evidence if they cannot be resolved.
        built: folders of packages that no index has, by name.
        installed: the environment, if it is installed as it is.
    """

    label: str
    version_set: VersionSet
    lock: Lock | Evidence
    built: Mapping[str, Path] = field(default_factory=dict)
    installed: Path | None = None

    @property
    def key(self) -> str:
        return self.version_set.key

    @property
    def digest(self) -> str:
        return self.lock.digest if isinstance(self.lock, Lock) else ""


def mixed(good: Lock, bad: Lock, moved: Iterable[str], *, label: str) -> MixedEnvironment:
    """The good lock with some packages as the bad lock has them."""
    names = frozenset(moved)
    kept = [line for line in statements(good.text) if distribution(line) not in names]
    taken = [line for line in statements(bad.text) if distribution(line) in names]
    text = "\n".join(sorted([*kept, *taken])) + "\n"
    return of_text(text, base=good, bad=bad.version_set, label=label)


def of_text(
    text: str,
    *,
    base: Lock,
    bad: VersionSet,
    label: str,
    named: Mapping[str, str] | None = None,
    built: Mapping[str, Path] | None = None,
) -> MixedEnvironment:
    """A candidate with the packages of a lock; ``named`` are those that its name lists."""
    versions = versions_in(text)
    moved = {name: version for name, version in versions.items() if base.versions.get(name) != version}
    removed = base.versions.keys() - versions.keys()
    version_set = candidate_set(base.version_set, versions, key_of(base.version_set.key, named or moved, removed, text))
    version_set = replace(version_set, as_of=max(bad.as_of, base.version_set.as_of), why=label)
    return MixedEnvironment(
        label=label, version_set=version_set, lock=Lock(version_set=version_set, text=text), built=built or {}
    )


def unresolvable(why: Evidence, *, base: Lock, label: str, named: Mapping[str, str]) -> MixedEnvironment:
    """A candidate whose packages do not fit together."""
    key = key_of(base.version_set.key, named, (), "")
    versions = {**base.versions, **named}
    return MixedEnvironment(label=label, version_set=candidate_set(base.version_set, versions, key), lock=why)


def candidate_set(base: VersionSet, versions: Mapping[str, str], key: str) -> VersionSet:
    pins = {name: versions.get(name, base.pins[name]) for name in PACKAGES}
    return replace(base, key=key, pins=pins, extras={}, default=False)


def key_of(base: str, moved: Mapping[str, str], removed: Iterable[str], text: str) -> str:
    """A name that lists the moved packages if they are few."""
    if len(moved) <= LONGEST_KEY and not list(removed):
        return moved_key(base, moved) if moved else base
    return str(SetKey.parse(base).plus("mix", sha256(text.encode()).hexdigest()[:8]))
