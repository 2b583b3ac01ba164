"""Reads the versions in an environment from the metadata on its disk, without importing the packages.

``pyvenv.cfg`` describes a virtual environment. For other interpreters the caller passes a function that starts one and
returns its package folders; if it does not start, the folders next to it are searched.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from matrix.errors import UserError
from matrix.versions.sets import PACKAGES
from reports.answers.checkup.nearest_sets import public

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from importlib.metadata import Distribution

BINARIES: Final = ("bin/python", "bin/python3", "Scripts/python.exe", "python.exe")
OF_A_VERSION: Final = re.compile(r"python(3\.\d+)$")


class InterpreterFolders(Protocol):
    """The version of an interpreter, the folders that it takes packages from, and its ``sys.prefix``."""

    @property
    def version(self) -> str: ...

    @property
    def folders(self) -> Sequence[Path]: ...

    @property
    def prefix(self) -> Path: ...


@dataclass(frozen=True, kw_only=True)
class Installed:
    """Of the six packages those that are there.

    ``broken`` are sentences about an installation that was cut short, ``conflicts`` about versions that a package
    declares it does not go with.
    """

    where: Path
    python: str
    versions: Mapping[str, str]
    broken: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()

    @property
    def missing(self) -> tuple[str, ...]:
        return tuple(name for name in PACKAGES if name not in self.versions)


def read(
    given: Path | None = None,
    *,
    inspect: Callable[[Path], InterpreterFolders | None],
    environ: Mapping[str, str] = os.environ,
) -> Installed:
    """The versions in an environment.

    Args:
        given: an interpreter or a folder that has one; by default the active environment.
        inspect: starts an interpreter and returns its folders; None if it does not start.
        environ: the variables that name the active environment.

    Raises:
        UserError: there is no interpreter, or none of the six packages is installed for it.
    """
    interpreter = found(given, environ)
    python, folders = places(interpreter, inspect)
    found_there = metadata(folders)
    if not found_there:
        raise UserError(
            f"{given or interpreter}: none of {', '.join(PACKAGES)} is installed there; "
            "give --python the interpreter that trains"
        )
    versions: dict[str, str] = {name: found_there[name][-1].version for name in PACKAGES if name in found_there}
    return Installed(
        where=given or interpreter,
        python=python,
        versions=versions,
        broken=tuple(left_over(found_there)),
        conflicts=tuple(conflicting(found_there, versions, python)),
    )


def found(given: Path | None, environ: Mapping[str, str]) -> Path:
    """The interpreter that is meant: the one given, that of the active environment, or the first on the path."""
    if given is not None:
        return interpreter_of(given.expanduser())
    active = environ.get("VIRTUAL_ENV") or environ.get("CONDA_PREFIX")
    if active:
        return interpreter_of(Path(active))
    on_path = shutil.which("python3", path=environ.get("PATH"))
    if on_path is None:
        raise UserError("there is no active environment and no python3 on PATH; give --python an interpreter")
    return Path(on_path)


def interpreter_of(place: Path) -> Path:
    if place.is_dir():
        inside = (place / name for name in BINARIES)
        binary = next((each for each in inside if each.is_file()), None)
        if binary is None:
            raise UserError(f"{place}: no interpreter in this folder ({BINARIES[0]}); give --python an interpreter")
        return binary
    if not place.is_file():
        raise UserError(f"{place}: there is no such interpreter; give --python an interpreter or its environment")
    return place


def places(interpreter: Path, inspect: Callable[[Path], InterpreterFolders | None]) -> tuple[str, list[Path]]:
    """The version of an interpreter, and the folders that it takes packages from."""
    prefix = interpreter.parent.parent
    settings = of_a_venv(prefix)
    if settings is None:
        return inspected_places(interpreter, inspect)
    python = settings.get("version_info") or settings.get("version") or ""
    folders = [each for each in beside(prefix) if is_of(each, python)] or list(beside(prefix))
    if settings.get("include-system-site-packages", "").lower() != "true":
        return python, folders
    base = Path(settings.get("home", "")) / interpreter.name
    return python, [*folders, *(inspected_places(base, inspect)[1] if base.is_file() else ())]


def of_a_venv(prefix: Path) -> dict[str, str] | None:
    """The settings of a virtual environment; None for an interpreter that is in none."""
    try:
        text = (prefix / "pyvenv.cfg").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    rows = (line.partition("=") for line in text.splitlines())
    return {key.strip().lower(): value.strip() for key, _, value in rows}


def is_of(folder: Path, python: str) -> bool:
    """Whether packages there are this Python's: a folder may hold those of several."""
    return folder.parent.name in (f"python{short(python)}", "Lib") if python else True


def inspected_places(interpreter: Path, inspect: Callable[[Path], InterpreterFolders | None]) -> tuple[str, list[Path]]:
    """The folders that an interpreter states, or, if it does not start here, those next to it."""
    found = inspect(interpreter)
    if found is None:
        folders = list(beside(interpreter.parent.parent))
        if not folders:
            raise UserError(
                f"{interpreter}: this Python interpreter does not start, and there is no site-packages next to it"
            )
        named = OF_A_VERSION.search(folders[0].parent.name)
        return named[1] if named else "", folders
    own = (folder for folder in beside(found.prefix) if is_of(folder, found.version))
    return found.version, list(dict.fromkeys((*found.folders, *own)))


def beside(prefix: Path) -> Iterator[Path]:
    yield from sorted(prefix.glob("lib/python3.*/site-packages"))
    yield from sorted(prefix.glob("lib/python3*/dist-packages"))
    yield from sorted(prefix.glob("Lib/site-packages"))


def metadata(folders: Sequence[Path]) -> dict[str, list[Distribution]]:
    """Of the six packages what is in the first folder that has it, as Python would find it, oldest version first."""
    there: dict[str, list[Distribution]] = {}
    for folder in folders:
        for name, several in per_package(folder).items():
            there.setdefault(name, several)
    return there


def per_package(folder: Path) -> dict[str, list[Distribution]]:
    several: dict[str, dict[str, Distribution]] = {}
    for each in distributions(path=[str(folder)]):
        name = canonicalize_name(each.metadata["Name"] or "")
        if name in PACKAGES and each.version:
            several.setdefault(name, {})[each.version] = each
    return {name: [found[key] for key in sorted(found, key=public)] for name, found in several.items()}


def left_over(there: Mapping[str, list[Distribution]]) -> Iterator[str]:
    for name, several in there.items():
        if len(several) > 1:
            versions = ", ".join(each.version for each in several)
            yield (
                f"{name} is there {len(several)} times ({versions}): an installation was cut short; the newest is "
                "taken, install it again"
            )


def conflicting(there: Mapping[str, list[Distribution]], versions: Mapping[str, str], python: str) -> Iterator[str]:
    """What one of the packages declares of another, and is not so."""
    for name, several in there.items():
        for text in several[-1].requires or ():
            wanted = requirement(text)
            if wanted is None or (wanted.marker and not wanted.marker.evaluate({"python_version": short(python)})):
                continue
            other = canonicalize_name(wanted.name)
            if other in versions and not wanted.specifier.contains(public(versions[other]), prereleases=True):
                needs = f"{wanted.name}{wanted.specifier}"
                yield f"{name} {versions[name]} declares that it needs {needs}; {versions[other]} is there"


def requirement(text: str) -> Requirement | None:
    """A declared requirement; None for one that is malformed, which old packages have."""
    try:
        return Requirement(text)
    except InvalidRequirement:
        return None


def short(python: str) -> str:
    return ".".join((python or platform.python_version()).split(".")[:2])
