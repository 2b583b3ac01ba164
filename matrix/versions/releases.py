"""The releases of the six packages on PyPI, from the packaged table ``releases.toml``."""

from __future__ import annotations

import tomllib
from bisect import bisect_left
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from packaging.version import InvalidVersion, Version

if TYPE_CHECKING:
    from datetime import date

PACKAGED: Final = Path(__file__).with_name("releases.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Releases:
    """The final releases of one package, oldest first, as of a day."""

    package: str
    as_of: date
    versions: tuple[Version, ...]
    yanked: tuple[Version, ...] = ()

    def why_not_released(self, version: str) -> str:
        """Return a sentence if no such release is on PyPI; empty if there is one, or if the table does not say.

        The table has no pre-releases, and no releases older than its first.
        """
        wanted = final_version(version)
        if wanted is None or not self.versions or wanted < self.versions[0] or wanted in self.versions:
            return ""
        if self.is_newer(version):
            newest = f"the newest {self.package} is {self.versions[-1]}"
            return f"{self.package} {wanted} was not released by {self.as_of}; {newest}"
        after = bisect_left(self.versions, wanted)
        neighbours = f"{self.versions[after - 1]} and {self.versions[after]}"
        return f"{self.package} {wanted} was not released by {self.as_of}; its neighbours are {neighbours}"

    def is_newer(self, version: str) -> bool:
        """Tell if a version is newer than the table, so that it may have been released since."""
        wanted = final_version(version)
        return wanted is not None and bool(self.versions) and wanted > self.versions[-1]

    def is_yanked(self, version: str) -> bool:
        return final_version(version) in self.yanked


def final_version(version: str) -> Version | None:
    """Return the public part of a final version; None for pre-releases and texts that are no version."""
    try:
        parsed = Version(Version(version).public)
    except InvalidVersion:
        return None
    return None if parsed.is_prerelease or parsed.is_postrelease else parsed


@cache
def of_package(package: str) -> Releases:
    """Return the releases of a package; none if the table lacks it."""
    table = packaged_table()
    row = table.get(package, {})
    versions = sorted(map(Version, row.get("releases", ())))
    yanked = tuple(map(Version, row.get("yanked", ())))
    return Releases(package=package, as_of=table["as-of"], versions=tuple(versions), yanked=yanked)


@cache
def packaged_table() -> dict[str, Any]:
    return tomllib.loads(PACKAGED.read_text(encoding="utf-8"))
