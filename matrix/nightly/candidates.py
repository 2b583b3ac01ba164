"""Resolves the version sets of a night: what the index offers that the base set does not have.

Three kinds: the newest release of everything; the newest release of one package, with as little else moved as it
requires; and that release with the lowest versions of the others that it declares to support.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from matrix.bisect.releases import NearbyResolution
from matrix.environments.linked_environment import installed_packages
from matrix.evidence import Evidence
from matrix.keys import moved_key
from matrix.versions.locking import unresolvable
from matrix.versions.locks import PLATFORM, RESOLVE_LIMIT_S, Lock, header, pins_only, versions_in
from matrix.versions.sets import PACKAGES
from matrix.versions.uv import blame_machine

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import date

    from matrix.processes import Finished
    from matrix.versions.sets import VersionSet
    from matrix.versions.uv import Uv

# The names of candidates are the same every night, so that histories and issues recognise them.
NIGHTLY: Final = "nightly"
LOWEST: Final = "lowest"
FROM_BELOW: Final = frozenset({">=", ">", "==", "~="})  # operators of a lower bound
# Each torch takes gigabytes, and the oldest that a package declares is too old for the others.
KEPT: Final = frozenset({"torch", "bitsandbytes"})


@dataclass(frozen=True, kw_only=True)
class CandidateSet:
    """A version set of a night. ``lock`` is evidence if its packages do not fit together."""

    version_set: VersionSet
    lock: Lock | Evidence


@dataclass(frozen=True, kw_only=True)
class CandidateSearch:
    """Looks for the candidates of one night.

    Attributes:
        base: the lock to compare with.
        night: releases of later days do not count, if the index states days.
        uv: the command that reads the index.
        pre: packages whose pre-releases count.
        lowest: also resolve the lowest declared versions.
    """

    base: Lock
    night: date
    uv: Uv
    pre: frozenset[str] = frozenset()
    lowest: bool = True
    known: dict[str, str] = field(default_factory=dict, repr=False)  # the newest version of each package

    def candidates(self) -> tuple[CandidateSet, ...]:
        """Return the candidates, each different from the base and from the others.

        Raises:
            UserError: the machine is at fault, such as an unreachable index.
        """
        found: dict[str, CandidateSet] = {}
        digests = {self.base.digest}
        for each in self.every():
            digest = each.lock.digest if isinstance(each.lock, Lock) else each.version_set.key
            if digest not in digests:
                digests.add(digest)
                found[each.version_set.key] = each
        return tuple(found.values())

    def every(self) -> Iterator[CandidateSet]:
        yield self.newest_of_everything()
        newest = self.newer_releases()
        yield from (self.alone(name, version) for name, version in newest.items())
        if self.lowest:
            for name in (each for each in newest if each not in KEPT):
                yield from self.lowest_declared(name, newest[name])

    def newest_of_everything(self) -> CandidateSet:
        lines = (*map(self.line, PACKAGES), *self.base.version_set.extras)
        result = self.source.compile(lines, "--generate-hashes", *self.place, timeout_s=RESOLVE_LIMIT_S)
        found = self.text_of(result, doing="looking for the newest releases")
        versions = {} if isinstance(found, Evidence) else versions_in(found)
        why = f"the newest release of everything on {self.night}"
        return self.candidate(NIGHTLY, versions, found, why)

    def newer_releases(self) -> dict[str, str]:
        """Return the newest release of each package, if it is newer than the base set's."""
        newest = {}
        for name in PACKAGES:
            version = self.newest(name)
            if version and Version(version) > Version(self.base.versions[name]):
                newest[name] = version
        return newest

    def newest(self, name: str) -> str:
        """Return the newest release of a package, or pre-release if those count; empty if there is none."""
        if name not in self.known:
            allowed = ("--prerelease", "allow") if name in self.pre else ()
            words = ("--no-deps", *allowed, *self.place)
            result = self.source.compile((name,), *words, timeout_s=RESOLVE_LIMIT_S)
            found = self.text_of(result, doing=f"looking for releases of {name}")
            self.known[name] = "" if isinstance(found, Evidence) else versions_in(found).get(name, "")
        return self.known[name]

    def alone(self, name: str, version: str) -> CandidateSet:
        found = self.nearby().resolve({name: version})
        versions = {name: version} if isinstance(found, Evidence) else versions_in(found)
        key = moved_key(NIGHTLY, {name: ""})
        why = f"{self.base.version_set.key} with the newest {name}, {version}"
        return self.candidate(key, versions, found, why)

    def lowest_declared(self, name: str, version: str) -> Iterator[CandidateSet]:
        """Yield the set of the lowest versions that a release declares; none if it declares no lower bound."""
        lower = self.with_lower_bound(name, version)
        if not lower:
            return
        kept = {each: self.base.versions[each] for each in (*PACKAGES, *self.extra_names) if each not in lower}
        near = replace(self.nearby(), extras=lower, arguments=("--resolution", "lowest-direct"))
        near = replace(near, base={each: old for each, old in near.base.items() if each not in lower})
        found = near.resolve({**kept, name: version})
        versions = {name: version} if isinstance(found, Evidence) else versions_in(found)
        key = moved_key(NIGHTLY, {name: "", LOWEST: ""})
        why = f"{name} {version} with the lowest {', '.join(lower)} that it declares"
        yield self.candidate(key, versions, found, why)

    def with_lower_bound(self, name: str, version: str) -> tuple[str, ...]:
        """Return the other packages of the stack for which a release declares a lowest version."""
        with tempfile.TemporaryDirectory(dir=self.uv.workdir) as folder:
            result = self.source.pip("install", "--target", folder, "--no-deps", f"{name}=={version}")
            if result.exit_code != 0:
                blame_machine(result, doing=f"reading what {name} {version} declares")
                return ()
            declared = installed_packages(self.uv.workdir / folder)[name].requires
        bounded = {
            str(canonicalize_name(each.name))
            for each in map(Requirement, declared)
            if each.marker is None and any(one.operator in FROM_BELOW for one in each.specifier)
        }
        return tuple(each for each in PACKAGES if each in bounded - KEPT - {name})

    def nearby(self) -> NearbyResolution:
        """A resolution near the base: what nothing requires any more may go."""
        kept = {*PACKAGES, *self.extra_names}
        return NearbyResolution(
            base=self.base.versions,
            bounds={},
            extras=tuple(self.base.version_set.extras),
            optional=frozenset(self.base.versions.keys() - kept),
            as_of=self.night,
            python=self.base.version_set.python,
            uv=self.uv,
        )

    def candidate(self, key: str, versions: Mapping[str, str], text: str | Evidence, why: str) -> CandidateSet:
        old = self.base.version_set
        pins = {name: versions.get(name, old.pins[name]) for name in PACKAGES}
        version_set = replace(old, key=key, pins=pins, as_of=self.night, why=why, default=False)
        if isinstance(text, Evidence):
            return CandidateSet(version_set=version_set, lock=text)
        lock = Lock(version_set=version_set, text=f"{header(version_set)}\n{text}")
        return CandidateSet(version_set=version_set, lock=lock)

    def text_of(self, result: Finished, *, doing: str) -> str | Evidence:
        if result.exit_code == 0:
            return pins_only(result.log)
        return unresolvable(result, doing=doing, uv=self.uv)

    def line(self, name: str) -> str:
        """A requirement of any version, or of the newest one of a package whose pre-releases count.

        A lower bound such as ``>=0.dev0`` would not do: with several indexes, uv prefers the final release of another.
        """
        version = self.newest(name) if name in self.pre else ""
        return f"{name}=={version}" if version else name

    @property
    def extra_names(self) -> tuple[str, ...]:
        names = (str(canonicalize_name(Requirement(line).name)) for line in self.base.version_set.extras)
        return tuple(name for name in names if name in self.base.versions)

    @property
    def source(self) -> Uv:
        return self.uv.without_links() if self.uv.dated else self.uv

    @property
    def place(self) -> tuple[str, ...]:
        """The arguments that say for which day, Python and platform to resolve.

        The day does not count for packages of which nightly builds count: their indexes state no upload dates, and uv
        would see none of their files.
        """
        day = ("--exclude-newer", f"{self.night}T23:59:59Z") if self.uv.dated else ()
        undated = (f"{name}=false" for name in sorted(self.pre)) if day else ()
        day = (*day, *(word for each in undated for word in ("--exclude-newer-package", each)))
        return (*day, "--python-version", self.base.version_set.python, "--python-platform", PLATFORM)
