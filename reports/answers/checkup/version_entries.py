"""Reads single requirements, as people and tools write them, into packages with or without an exact version."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from matrix.keys import local_version
from matrix.versions.sets import PACKAGES
from reports.answers.checkup.installed import short

if TYPE_CHECKING:
    from collections.abc import Mapping

    from packaging.markers import Marker
    from packaging.specifiers import SpecifierSet

ALIASES: Final[Mapping[str, str]] = {"pytorch": "torch", "bnb": "bitsandbytes"}  # conda's name, and the usual short one
URL: Final = re.compile(r"(?:[\w.+-]+@)?(?:git\+|hg\+|svn\+|bzr\+)?(?:https?|ssh|file|git)://\S+", re.IGNORECASE)
EGG: Final = re.compile(r"#(?:.*&)?egg=([\w.-]+)")
CONDA_CUDA: Final = re.compile(r"cuda_?(\d+)\.?(\d)", re.IGNORECASE)
EXACT_PARTS: Final = 3  # conda's ``=2.5.1`` is a prefix, of which no longer release exists


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A package that a listing names; ``version`` is empty if it is not exact. ``why`` then names the reason."""

    name: str
    version: str = ""
    why: str = ""
    optional: bool = False  # of a constraint or an extra: it counts if nothing else names the package
    excluded: bool = False  # its marker excludes this platform


def exact(name: str, version: str) -> Entry:
    """Return an entry with a version, or one without if the text is no version."""
    package = package_name(name)
    try:
        return Entry(name=package, version=str(Version(version)))
    except InvalidVersion:
        return Entry(name=package, why=f"not a version: {package} {version}")


def package_name(name: str) -> str:
    canonical = canonicalize_name(name)
    return ALIASES.get(canonical, canonical)


def from_requirement(line: str, python: str = "") -> Entry | None:
    """Read a line of a requirements file without its options; None if it is no requirement.

    Markers are evaluated for Linux on x86-64, where the results were measured.
    """
    try:
        wanted = Requirement(line)
    except InvalidRequirement:
        return from_url(line) or from_broken_line(line)
    name = package_name(wanted.name)
    if wanted.marker is not None and not applies(wanted.marker, python):
        return Entry(name=name, why=f"not for Linux: {wanted.name}; {wanted.marker}", excluded=True)
    if wanted.url is not None:
        return from_wheel(wanted.url) or Entry(name=name, why=unknown_version(name, wanted.url))
    return from_specifier(name, wanted.specifier, line.partition(";")[0].strip())


def applies(marker: Marker, python: str) -> bool:
    """Evaluate a marker for Linux and a version of Python; by default that of this interpreter."""
    version = short(python)
    linux = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix", "platform_machine": "x86_64"}
    return bool(
        marker.evaluate({**linux, "python_version": version, "python_full_version": f"{version}.0", "extra": ""})
    )


def from_specifier(name: str, specifier: SpecifierSet, text: str) -> Entry:
    pins = {each.version for each in specifier if each.operator in ("==", "===") and not each.version.endswith(".*")}
    if len(pins) == 1:
        return exact(name, pins.pop())
    return Entry(name=name, why=f"not pinned: {text}")


def from_url(line: str) -> Entry | None:
    """Read an address without a name, as after ``-e`` and in older freezes."""
    address = URL.search(line)
    if address is None:
        return from_wheel(line) if line.endswith(".whl") else None
    egg = EGG.search(line)
    if egg is not None:
        name = package_name(egg[1])
        return Entry(name=name, why=unknown_version(name, address[0]))
    return from_wheel(address[0]) or from_repository(address[0])


def from_wheel(address: str) -> Entry | None:
    """Return the name and version in the file name of a wheel."""
    file = unquote(address.partition("#")[0].partition("?")[0]).rpartition("/")[2]
    try:
        name, version, _, _ = parse_wheel_filename(file)
    except (InvalidWheelFilename, InvalidVersion):
        return None
    return exact(name, str(version))


def from_repository(address: str) -> Entry | None:
    """Return the package whose name a repository has."""
    path = address.partition("#")[0].rpartition("/")[2].partition("@")[0].removesuffix(".git")
    name = package_name(path) if re.fullmatch(r"[\w.-]+", path) else ""
    return Entry(name=name, why=unknown_version(name, address)) if name in PACKAGES else None


def from_broken_line(line: str) -> Entry | None:
    """Keep a malformed requirement of one of the six packages as one without a version."""
    words = re.match(r"[A-Za-z][\w.-]*", line)
    name = package_name(words[0]) if words else ""
    return Entry(name=name, why=f"not a requirement: {line.strip()}") if name in PACKAGES else None


def unknown_version(name: str, address: str) -> str:
    """Name the place that a package comes from, without a password in it."""
    return f"version unknown: {name} from {re.sub(r'//[^/@]*@', '//', address)}"


def from_conda(text: str) -> Entry | None:
    """Read ``channel::name=version=build`` and conda's other specifications."""
    words = re.fullmatch(r"\s*(?:[\w./-]+::)?([\w.-]+)\s*(.*?)\s*", text)
    if words is None:
        return None
    name, rest = package_name(words[1]), words[2].split(" ")[0] if re.match(r"\d", words[2]) else words[2]
    pin = re.fullmatch(r"(={0,2})\s*(\d[\w.!+]*)(?:[= ]([\w.*+-]+))?", rest)
    if pin is None:
        return Entry(name=name, why=f"not pinned: {name}{rest}")
    prefix = pin[1] == "=" and pin[3] is None and pin[2].count(".") + 1 < EXACT_PARTS
    return Entry(name=name, why=f"not pinned: {name}={pin[2]}") if prefix else conda_build(name, pin[2], pin[3] or "")


def conda_build(name: str, version: str, build: str) -> Entry:
    """Return an exact entry. The build string of conda's torch names its device, as a local version does on PyPI."""
    found = exact(name, version)
    if name != "torch" or not found.version or local_version(version):
        return found
    cuda = CONDA_CUDA.search(build)
    local = f"+cu{cuda[1]}{cuda[2]}" if cuda else "+cpu" if "cpu" in build else ""
    return Entry(name=name, version=f"{found.version}{local}")
