"""Lists the releases of a package on the configured index, and resolves a lock with one package moved.

uv reads the index, so that mirrors, find-links, credentials and yanked releases count as they do in an installation.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from packaging.utils import canonicalize_name
from packaging.version import Version

from matrix.evidence import Evidence
from matrix.versions.locking import earliest_upload, unresolvable
from matrix.versions.locks import PLATFORM, RESOLVE_LIMIT_S, pins_only, same_version, versions_in
from matrix.versions.uv import blame_machine

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import date

    from matrix.versions.uv import Uv

MOST_RELEASES: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A version of a package, and the day of its upload if the index states it."""

    version: str
    uploaded: date | None = None


def releases_between(
    name: str, old: str, new: str, *, python: str, uv: Uv, pre: bool = False, skipped: Sequence[str] = ()
) -> tuple[Release, ...]:
    """The releases with a wheel for this Python from one version to the other, both included, in this direction.

    Args:
        name: the package.
        old: the version to start with; it may be newer than the other.
        new: the version to end with.
        python: such as ``3.11``.
        uv: the command that reads the index.
        pre: include pre-releases.
        skipped: versions to leave out.

    Raises:
        UserError: the index cannot be reached.
    """
    low, high = sorted((old, new), key=Version)
    found = list(walk(name, low, high, python=python, uv=uv, pre=pre, skipped=skipped))
    ends = [Release(version=each) for each in (low, high) if not any(same_version(each, r.version) for r in found)]
    ordered = sorted([*found, *ends], key=lambda each: Version(each.version))
    return tuple(ordered if low == old else reversed(ordered))


def walk(
    name: str, low: str, high: str, *, python: str, uv: Uv, pre: bool, skipped: Sequence[str]
) -> Iterator[Release]:
    """The releases from the newest to the oldest: each call of uv finds the newest that is left."""
    source = uv.without_links() if uv.dated else uv
    left_out = list(skipped)
    for _ in range(MOST_RELEASES):
        result = source.compile(
            (f"{name}>={low},<={high}{''.join(f',!={each}' for each in left_out)}",),
            *("--no-deps", "--format", "pylock.toml", "--prerelease", "allow" if pre else "disallow"),
            *("--python-version", python, "--python-platform", PLATFORM),
            timeout_s=RESOLVE_LIMIT_S,
        )
        if result.exit_code != 0:
            blame_machine(result, doing=f"listing the releases of {name}")
            return
        document = tomllib.loads(result.log[result.log.index("lock-version") :])
        version = next(str(each["version"]) for each in document["packages"] if canonicalize_name(each["name"]) == name)
        yield Release(version=version, uploaded=earliest_upload(result.log))
        left_out.append(Version(version).public)


@dataclass(frozen=True, kw_only=True)
class NearbyResolution:
    """Resolves a lock near another one: as few packages as possible move, and not beyond the bounds.

    ``base`` has the version of each package, ``bounds`` a version range of some, such as ``>=0.19,<=0.20``. Packages in
    ``optional`` are left out if nothing requires them, such as NCCL for another CUDA. ``arguments`` are for uv.
    """

    base: Mapping[str, str]
    bounds: Mapping[str, str]
    extras: Sequence[str]
    optional: frozenset[str] = frozenset()
    as_of: date
    python: str
    uv: Uv
    arguments: tuple[str, ...] = ()

    def resolve(self, pins: Mapping[str, str]) -> str | Evidence:
        """The lines of the lock with some packages at exact versions, or evidence why there is none.

        The dates of packages that the base has do not matter, because their versions are bounded.

        Raises:
            UserError: the machine is at fault, such as an unreachable index.
        """
        text = self.compiled(pins, dated=())
        if isinstance(text, Evidence):
            return text
        new = [name for name in versions_in(text) if name not in self.base and name not in pins]
        return self.compiled(pins, dated=new) if new and self.uv.dated else text

    def pre_releases(self, pins: Mapping[str, str]) -> tuple[str, ...]:
        """The argument that admits pre-releases, if an exact version is one."""
        exact = (*self.base.values(), *pins.values())
        return ("--prerelease", "allow") if any(Version(each).is_prerelease for each in exact) else ()

    def compiled(self, pins: Mapping[str, str], *, dated: Sequence[str]) -> str | Evidence:
        """One call of uv; of the packages in ``dated``, it sees the releases until ``as_of``."""
        source = self.uv.without_links() if self.uv.dated else self.uv
        names = [name for name in self.base if name not in pins and name not in self.optional]
        lines = [*(f"{name}=={version}" for name, version in pins.items()), *names, *self.extras]
        constraints = [f"{name}{bound}" for name, bound in self.bounds.items() if name not in pins]
        preferred = [f"{name}=={pins.get(name, version)}" for name, version in self.base.items()]
        with self.uv.requirements_file(preferred) as near, self.uv.requirements_file(constraints) as limits:
            result = source.compile(
                lines,
                *("--output-file", str(near), "--constraints", str(limits), "--generate-hashes"),
                *(word for each in dated for word in ("--exclude-newer-package", f"{each}={self.as_of}T23:59:59Z")),
                *("--python-version", self.python, "--python-platform", PLATFORM, *self.pre_releases(pins)),
                *self.arguments,
                timeout_s=RESOLVE_LIMIT_S,
            )
            text = near.read_text(encoding="utf-8")
        if result.exit_code == 0:
            return pins_only(text)
        moved = ", ".join(f"{name} {version}" for name, version in pins.items())
        return unresolvable(result, doing=f"resolving {moved}", uv=self.uv)


def bounds(good: Mapping[str, str], bad: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """For each package that both environments have, the range between its two versions."""
    between = {}
    for name in names:
        if name in good and name in bad:
            low, high = sorted((good[name], bad[name]), key=Version)
            between[name] = f">={low},<={high}"
    return between
