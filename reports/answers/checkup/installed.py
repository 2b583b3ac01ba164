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
from reports.answers.judgement.nearest_sets import public

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from importlib.metadata import Distribution

BINARIES: Final = ("bin/python", "bin/python3", "Scripts/python.exe", "python.exe")
PYTHON_FOLDER: Final = re.compile(r"python(3\.\d+)$")


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
    """The versions of the six packages that an environment has.

    ``broken`` are sentences about interrupted installations, ``conflicts`` about versions that the metadata of another
    package excludes.

    Versions that a user gives have a ``source``. ``unpinned`` are packages that it names without an exact version, and
    ``notes`` say why. A source that is not ``whole`` leaves out packages that are installed nevertheless.
    """

    where: Path
    python: str
    versions: Mapping[str, str]
    broken: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    source: str = ""
    unpinned: tuple[str, ...] = ()
    whole: bool = True
    notes: tuple[str, ...] = ()

    @property
    def missing(self) -> tuple[str, ...]:
        return tuple(name for name in PACKAGES if name not in self.versions and name not in self.unpinned)


def read(
    given: Path | None = None,
    *,
    inspect: Callable[[Path], InterpreterFolders | None],
    environ: Mapping[str, str] = os.environ,
) -> Installed:
    """Return the versions in an environment.

    Args:
        given: an interpreter, or a folder with one; by default the active environment.
        inspect: starts an interpreter and returns its folders; None if it does not start.
        environ: the variables that name the active environment.

    Raises:
        UserError: there is no interpreter, or it has none of the six packages.
    """
    interpreter = located_interpreter(given, environ)
    python, folders = interpreter_folders(interpreter, inspect)
    by_name = metadata(folders)
    if not by_name:
        raise UserError(
            f"{given or interpreter}: none of {', '.join(PACKAGES)} is installed there; "
            "give --python the interpreter that trains"
        )
    versions: dict[str, str] = {name: by_name[name][-1].version for name in PACKAGES if name in by_name}
    return Installed(
        where=given or interpreter,
        python=python,
        versions=versions,
        broken=tuple(duplicate_notes(by_name)),
        conflicts=tuple(conflict_notes(by_name, versions, python)),
    )


def located_interpreter(given: Path | None, environ: Mapping[str, str]) -> Path:
    """Return the given interpreter, that of the active environment, or the first on the path, in this order."""
    if given is not None:
        return interpreter_of(given.expanduser())
    active = environ.get("VIRTUAL_ENV") or environ.get("CONDA_PREFIX")
    if active:
        return interpreter_of(Path(active))
    on_path = shutil.which("python3", path=environ.get("PATH"))
    if on_path is None:
        raise UserError("there is no active environment and no python3 on PATH; give --python an interpreter")
    return Path(on_path)


def interpreter_of(path: Path) -> Path:
    if path.is_dir():
        inside = (path / name for name in BINARIES)
        binary = next((each for each in inside if each.is_file()), None)
        if binary is None:
            raise UserError(f"{path}: no interpreter in this folder ({BINARIES[0]}); give --python an interpreter")
        return binary
    if not path.is_file():
        raise UserError(f"{path}: there is no such interpreter; give --python an interpreter or its environment")
    return path


def interpreter_folders(
    interpreter: Path, inspect: Callable[[Path], InterpreterFolders | None]
) -> tuple[str, list[Path]]:
    """Return the version of an interpreter, and the folders that it imports packages from."""
    prefix = interpreter.parent.parent
    settings = venv_settings(prefix)
    if settings is None:
        return inspected_folders(interpreter, inspect)
    python = settings.get("version_info") or settings.get("version") or ""
    folders = [each for each in site_packages(prefix) if belongs_to(each, python)] or list(site_packages(prefix))
    if settings.get("include-system-site-packages", "").lower() != "true":
        return python, folders
    base = Path(settings.get("home", "")) / interpreter.name
    return python, [*folders, *(inspected_folders(base, inspect)[1] if base.is_file() else ())]


def venv_settings(prefix: Path) -> dict[str, str] | None:
    """Return the settings of a virtual environment; None if the prefix is not one."""
    try:
        text = (prefix / "pyvenv.cfg").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    rows = (line.partition("=") for line in text.splitlines())
    return {key.strip().lower(): value.strip() for key, _, value in rows}


def belongs_to(folder: Path, python: str) -> bool:
    """Tell if a folder holds packages of this Python version. A prefix may have folders of several."""
    return folder.parent.name in (f"python{short(python)}", "Lib") if python else True


def inspected_folders(
    interpreter: Path, inspect: Callable[[Path], InterpreterFolders | None]
) -> tuple[str, list[Path]]:
    """Return the folders that an interpreter reports; if it does not start, those next to it."""
    interpreter_folders = inspect(interpreter)
    if interpreter_folders is None:
        folders = list(site_packages(interpreter.parent.parent))
        if not folders:
            raise UserError(
                f"{interpreter}: this Python interpreter does not start, and there is no site-packages next to it"
            )
        match = PYTHON_FOLDER.search(folders[0].parent.name)
        return match[1] if match else "", folders
    own = (
        folder
        for folder in site_packages(interpreter_folders.prefix)
        if belongs_to(folder, interpreter_folders.version)
    )
    return interpreter_folders.version, list(dict.fromkeys((*interpreter_folders.folders, *own)))


def site_packages(prefix: Path) -> Iterator[Path]:
    yield from sorted(prefix.glob("lib/python3.*/site-packages"))
    yield from sorted(prefix.glob("lib/python3*/dist-packages"))
    yield from sorted(prefix.glob("Lib/site-packages"))


def metadata(folders: Sequence[Path]) -> dict[str, list[Distribution]]:
    """Return each of the six packages from the first folder that has it, as Python does; oldest version first."""
    by_name: dict[str, list[Distribution]] = {}
    for folder in folders:
        for name, several in per_package(folder).items():
            by_name.setdefault(name, several)
    return by_name


def per_package(folder: Path) -> dict[str, list[Distribution]]:
    several: dict[str, dict[str, Distribution]] = {}
    for each in distributions(path=[str(folder)]):
        name = canonicalize_name(each.metadata["Name"] or "")
        if name in PACKAGES and each.version:
            several.setdefault(name, {})[each.version] = each
    return {name: [by_version[key] for key in sorted(by_version, key=public)] for name, by_version in several.items()}


def duplicate_notes(by_name: Mapping[str, list[Distribution]]) -> Iterator[str]:
    for name, several in by_name.items():
        if len(several) > 1:
            versions = ", ".join(each.version for each in several)
            yield (
                f"{name} is installed {len(several)} times ({versions}), because an installation was interrupted; "
                "install it again (this report assumes the newest)"
            )


def conflict_notes(
    by_name: Mapping[str, list[Distribution]], versions: Mapping[str, str], python: str
) -> Iterator[str]:
    """Yield the declared requirements between the six packages that the environment does not fulfil."""
    for name, several in by_name.items():
        for text in several[-1].requires or ():
            wanted = requirement(text)
            if wanted is None or (wanted.marker and not wanted.marker.evaluate({"python_version": short(python)})):
                continue
            other = canonicalize_name(wanted.name)
            if other in versions and not wanted.specifier.contains(public(versions[other]), prereleases=True):
                needs = f"{wanted.name}{wanted.specifier}"
                yield f"{name} {versions[name]} requires {needs}, but {versions[other]} is installed"


def requirement(text: str) -> Requirement | None:
    """Parse a declared requirement; None if it is malformed, as in some old packages."""
    try:
        return Requirement(text)
    except InvalidRequirement:
        return None


def short(python: str) -> str:
    return ".".join((python or platform.python_version()).split(".")[:2])
