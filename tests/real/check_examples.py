"""Checks the examples of a package at some of its tags against the releases of each tag's day, and prints the counts.

``python tests/real/check_examples.py REPOSITORY PACKAGE TAG...`` needs a clone of the package's repository. An example
that does not fit its own day is listed with what these releases lack, so that somebody can judge it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from matrix.api_map.query import ApiMap
from matrix.errors import UserError
from reports.answers.check.check import check

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reports.answers.check.check import CodeCheck

FOLDER: Final = "examples"
ENDINGS: Final = (".py", ".ipynb")


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A script or notebook at a tag; ``blob`` is the digest of its content."""

    path: str
    blob: str


def git(repository: Path, *words: str) -> bytes:
    return subprocess.run(["git", "-C", str(repository), *words], check=True, capture_output=True).stdout  # noqa: S607


def examples(repository: Path, tag: str) -> Iterator[Example]:
    listed = git(repository, "ls-tree", "-r", tag, "--", FOLDER).decode()
    for line in listed.splitlines():
        head, _, path = line.partition("\t")
        if path.endswith(ENDINGS):
            yield Example(path=path, blob=head.split()[2])


def of_day(api: ApiMap, package: str, version: str) -> dict[str, str]:
    """Return a release and the newest releases of the other packages on its day."""
    place = api.place(package, version)
    if place is None:
        raise UserError(f"{package} {version}: not in the map")
    return {name: api.versions(name)[each] for name, each in api.as_of(package, place).places.items()}


def excluded(checked: CodeCheck, versions: dict[str, str], api: ApiMap) -> list[str]:
    """Return the packages whose range does not contain the given release, with the reasons at its ends."""
    found = []
    for fit in checked.fits:
        place = api.place(fit.package, versions.get(fit.package, ""))
        inside = any(
            (api.place(fit.package, first) or 0) <= (place or 0) <= (api.place(fit.package, last) or 0)
            for first, last in fit.ranges
        )
        if place is not None and not inside:
            found.append(f"{fit.package} {versions[fit.package]}: {', '.join((*fit.lower, *fit.upper, *fit.conflict))}")
    return found


def main(repository: Path, package: str, tags: list[str]) -> None:
    api = ApiMap()
    newest = {name: api.versions(name)[-1] for name in api.packages}
    checks: dict[str, CodeCheck | None] = {}
    fits = lacks = later = unread = 0
    for tag in tags:
        versions = of_day(api, package, tag.removeprefix("v"))
        for each in examples(repository, tag):
            if each.blob not in checks:
                checks[each.blob] = checked(git(repository, "cat-file", "blob", each.blob), Path(each.path).suffix, api)
            found = checks[each.blob]
            if found is None:
                unread += 1
                continue
            reasons = excluded(found, versions, api)
            fits, lacks = fits + (not reasons), lacks + bool(reasons)
            later += bool(excluded(found, newest, api))
            for reason in reasons:
                print(f"{tag} {each.path}: {reason}")
    print(
        f"{package}: {fits} of {fits + lacks} examples fit the releases of their day, {lacks} do not, {unread} without"
    )
    print(f"code; {later} do not fit the newest releases; {len(checks)} different files")


def checked(content: bytes, suffix: str, api: ApiMap) -> CodeCheck | None:
    """Check one file; None if it has no code that can be read."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"example{suffix}"
        path.write_bytes(content)
        try:
            return check([path], api)
        except UserError:
            return None


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
