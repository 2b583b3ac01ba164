"""Reads versions that a user gives instead of an environment: a text, a file, standard input or a set's key."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from packaging.version import Version

from matrix.errors import UserError
from matrix.keys import local_version, without_local
from matrix.versions import releases
from matrix.versions.sets import PACKAGES
from reports.answers.checkup import version_entries, version_listings
from reports.answers.checkup.installed import Installed
from reports.answers.checkup.version_listings import LARGEST, Listing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from matrix.run.outcome import SetRecord
    from matrix.versions.sets import VersionSet
    from reports.answers.checkup.version_entries import Entry

STANDARD_INPUT: Final = "-"
FILE_ENDINGS: Final = (".txt", ".in", ".lock", ".toml", ".yml", ".yaml", ".json", ".cfg")
SET_KEY: Final = re.compile(r"20\d\d-\d\d(\+\S+)?")
SIMILAR: Final = 0.8  # of `difflib`; a misspelt package is nearer
# A package, and its version or its range: `torch==2.8.0`, `torch 2.8`, `torch=2.8`, `torch: 2.8`, `peft>=0.15,<0.18`.
RANGE: Final = r"(?:===|==|~=|!=|<=|>=|<|>)\s*v?[\w.!+*-]+"
WORD: Final = re.compile(
    rf"[\s,;]*(?P<name>[A-Za-z][\w.-]*)\s*(?:\[[\w\s,-]*\])?\s*"
    rf"(?:(?P<range>{RANGE}(?:\s*,\s*{RANGE})*)|[=:@]?\s*v?(?P<version>\d[\w.!+*]*))?(?=[\s,;]|$)"
)
EXAMPLE: Final = '"torch==2.8.0,peft==0.17.1", a requirements file, or the output of `pip freeze`'


@dataclass(frozen=True, kw_only=True)
class GivenText:
    """A text with versions, and where it comes from."""

    text: str
    source: str
    path: Path


def read(
    given: str, sets: Iterable[VersionSet | SetRecord], stdin: BinaryIO, packages: Sequence[str] = PACKAGES
) -> Installed:
    """Return the versions that a user gives.

    Args:
        given: ``-`` for standard input, the key of a set, a file, or versions as text.
        sets: the sets whose keys are known.
        stdin: standard input.
        packages: those whose versions matter; by default the six of version sets.

    Raises:
        UserError: the text names no version of these packages, or cannot be read.
    """
    text = given.strip()
    if text == STANDARD_INPUT:
        return from_stdin(text_of_stdin(stdin), packages)
    by_key = {each.key: each for each in sets}
    if text in by_key:
        return from_set(by_key[text])
    path = Path(text).expanduser() if text.startswith("~/") else Path(text)
    if text and is_file(path):
        return from_listing(GivenText(text=version_listings.text_of(path), source=str(path), path=path), packages)
    if SET_KEY.fullmatch(text):
        near = get_close_matches(text, by_key, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UserError(f'unknown version set "{text}"{hint}; `ftmatrix sets` lists them')
    if text.lower().endswith(FILE_ENDINGS) or text.startswith(("/", "./", "../", "~")):
        raise UserError(f"{text}: there is no such file; give --versions {EXAMPLE}")
    return installed(from_argument(text, packages), source="the command line", path=Path(), packages=packages)


def is_file(path: Path) -> bool:
    """Tell if a text names a file.

    Raises:
        UserError: it names a folder.
    """
    try:
        if path.is_dir():
            raise UserError(f"{path}: a folder; give --python the environment in it, or --versions a file")
        return path.is_file() or path.is_fifo()
    except (OSError, ValueError):  # a long text is no file name
        return False


def text_of_stdin(stdin: BinaryIO) -> GivenText:
    raw = stdin.read(LARGEST + 1)
    if len(raw) > LARGEST:
        raise UserError(f"standard input is larger than {LARGEST // 1_000_000} MB; give a list of versions")
    text = version_listings.decoded(raw, "standard input")
    if not text.strip():
        raise UserError("standard input is empty; pipe a list of versions, such as of `pip freeze`")
    return GivenText(text=text, source="standard input", path=Path("standard input"))


def from_listing(given: GivenText, packages: Sequence[str] = PACKAGES) -> Installed:
    listing = version_listings.of_text(given.text, given.path)
    return installed(listing, source=given.source, path=given.path, packages=packages)


def from_stdin(given: GivenText, packages: Sequence[str] = PACKAGES) -> Installed:
    """Read a listing, or one line of versions as people type them."""
    try:
        return from_listing(given, packages)
    except UserError:
        line = given.text.strip()
        if "\n" in line or len(line.split()) == 1:
            raise
        return installed(from_words(line, packages), source=given.source, path=given.path, packages=packages)


def from_set(column: VersionSet | SetRecord) -> Installed:
    return Installed(
        where=Path(column.key), python=column.python, versions=dict(column.pins), source=f"set {column.key}"
    )


def from_argument(text: str, packages: Sequence[str] = PACKAGES) -> Listing:
    """Read versions as people type them, or a whole listing, as of ``--versions "$(pip freeze)"``."""
    try:
        return from_words(text, packages)
    except UserError:
        if "\n" not in text:
            raise
        return version_listings.of_text(text, Path("the command line"))


def from_words(text: str, packages: Sequence[str] = PACKAGES) -> Listing:
    """Read versions as people type them.

    Raises:
        UserError: a part of the text names no package, or a misspelt one.
    """
    found: list[Entry] = []
    python, position = "", 0
    while text[position:].strip(" \t\n,;"):
        word = WORD.match(text, position)
        if word is None:
            at = re.split(r"[\s,;]", text[position:].lstrip(" \t\n,;"))[0]
            raise UserError(f'--versions: "{at}" is no package with a version; give {EXAMPLE}')
        entry = from_word(word, packages)
        python = python or (entry.version if entry.name == "python" else "")
        found.append(entry)
        position = word.end()
    return Listing(kind="text", entries=tuple(each for each in found if each.name != "python"), python=python)


def from_word(word: re.Match[str], packages: Sequence[str] = PACKAGES) -> Entry:
    name = version_entries.package_name(word["name"])
    near = get_close_matches(name, packages, n=1, cutoff=SIMILAR)
    if near and name not in packages:
        raise UserError(f'--versions: unknown package "{name}"; did you mean {near[0]}?')
    if word["version"] and not word["version"].endswith("*"):
        found = version_entries.exact(name, word["version"])
    else:
        found = version_entries.from_requirement(f"{name}{word['range'] or ''}") or version_entries.exact(name, "")
        wildcard = word["version"]
        if wildcard:
            return version_entries.Entry(name=name, why=f"not pinned: {name} {wildcard}")
    if name in packages and found.why and not found.why.startswith("not pinned"):
        raise UserError(f"--versions: {found.why}; give {EXAMPLE}")
    return found


def installed(listing: Listing, *, source: str, path: Path, packages: Sequence[str] = PACKAGES) -> Installed:
    """Return the versions of a listing as an environment.

    Raises:
        UserError: no package has an exact version, or one has two.
    """
    named = entries_by_package(listing.entries, packages)
    versions = dict(pinned_versions(named, source))
    open_ones = [row for name, rows in named.items() if name not in versions for row in rows]
    reasons = tuple(dict.fromkeys(row.why for row in open_ones if row.why))
    if not versions:
        what = f"{'pins' if open_ones else 'names'} none of {', '.join(packages)}"
        stated = f" ({'; '.join(reasons)})" if reasons else ""
        raise UserError(f"{source} {what}{stated}; give exact versions, such as `pip freeze` lists{beside(path)}")
    releases_notes = (*unreleased(versions, newer=True), *yanked_notes(versions))
    notes = (*reasons, *build_notes(versions, listing), *short_notes(versions), *releases_notes)
    return Installed(
        where=path,
        python=listing.python,
        versions=with_build(versions, listing.build),
        source=source,
        unpinned=tuple(name for name in named if name not in versions),
        whole=listing.whole,
        broken=tuple(unreleased(versions, newer=False)),
        notes=notes,
    )


def entries_by_package(entries: Sequence[Entry], packages: Sequence[str] = PACKAGES) -> dict[str, list[Entry]]:
    """Group the entries of the packages; optional and excluded ones count only where there are no others."""
    by_name = {name: [each for each in entries if each.name == name] for name in packages}
    for name, rows in by_name.items():
        applying = [each for each in rows if not each.excluded]
        required = [each for each in applying if not each.optional]
        optional = [each for each in applying if each.optional]
        exact = any(each.version for each in required)
        by_name[name] = (required if exact else [*optional, *required]) or rows
    return {name: rows for name, rows in by_name.items() if rows and not all(each.excluded for each in rows)}


def pinned_versions(named: Mapping[str, Sequence[Entry]], source: str) -> Iterator[tuple[str, str]]:
    """Yield each package with its one version.

    Raises:
        UserError: a package has two versions.
    """
    for name, rows in named.items():
        versions = {str(Version(each.version)): each.version for each in rows if each.version}
        public = {without_local(version) for version in versions}
        if len({Version(each) for each in public}) > 1:
            both = " and ".join(sorted(versions, key=Version))
            raise UserError(f"{source} pins {name} to {both}; give one environment's versions")
        if versions:
            yield name, next(iter(versions.values())) if len(versions) == 1 else public.pop()


def with_build(versions: Mapping[str, str], build: str) -> dict[str, str]:
    """Give torch the build that the index has, which pip prefers."""
    torch = versions.get("torch", "")
    more = {"torch": f"{torch}+{build}"} if torch and build and not local_version(torch) else {}
    return {**versions, **more}


def build_notes(versions: Mapping[str, str], listing: Listing) -> Iterator[str]:
    if listing.build and "torch" in versions and not local_version(versions["torch"]):
        yield f"torch comes from the index of {listing.build}, so it is read as {versions['torch']}+{listing.build}"


def short_notes(versions: Mapping[str, str]) -> Iterator[str]:
    """State the release that an abbreviated version names, as pip reads it."""
    for name, version in versions.items():
        public = without_local(version)
        if public.count(".") == 1 and Version(public).base_version == public:
            yield f"{name} {public} is read as {public}.0"


def unreleased(versions: Mapping[str, str], *, newer: bool) -> Iterator[str]:
    """State which versions are not on PyPI: those newer than the table of releases, or those missing in it."""
    for name, version in versions.items():
        table = releases.of_package(name)
        why = table.why_not_released(version)
        if why and table.is_newer(version) is newer:
            yield why


def yanked_notes(versions: Mapping[str, str]) -> Iterator[str]:
    for name, version in versions.items():
        if releases.of_package(name).is_yanked(version):
            yield f"{name} {without_local(version)} is yanked on PyPI: pip installs it only if it is pinned"


def beside(path: Path) -> str:
    """Name a lock next to a file of ranges."""
    locks = (path.parent / name for name in version_listings.LOCKS)
    lock = next((each for each in locks if path.name == "pyproject.toml" and each.is_file()), None)
    return f", or {lock}" if lock is not None else ""
