"""What an environment holds, read from the metadata on its disk: nothing of the stack is imported, or even run.

A virtual environment says in ``pyvenv.cfg`` what it is. Another interpreter is started once, bare (``-I -S``), to say
where its packages are; where it cannot start, the folders beside it are looked through.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING, Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from matrix.errors import UserError
from matrix.versions.sets import PACKAGES
from reports.answers.checkup.nearest_sets import public

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from importlib.metadata import Distribution

STARTS_WITHIN_S: Final = 10
ASKED: Final = (
    "import json, platform, sys, sysconfig\n"
    "found = {sysconfig.get_paths()[name] for name in ('purelib', 'platlib')}\n"
    "print(json.dumps([platform.python_version(), sorted(found), sys.prefix]))"
)
BINARIES: Final = ("bin/python", "bin/python3", "Scripts/python.exe", "python.exe")
OF_A_VERSION: Final = re.compile(r"python(3\.\d+)$")


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


def read(given: Path | None = None, *, environ: Mapping[str, str] = os.environ) -> Installed:
    """The versions in an environment: an interpreter, or a folder that has one.

    Raises:
        UserError: there is no interpreter, or none of the six packages is installed for it.
    """
    interpreter = found(given, environ)
    python, folders = places(interpreter)
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


def places(interpreter: Path) -> tuple[str, list[Path]]:
    """The version of an interpreter, and the folders that it takes packages from."""
    prefix = interpreter.parent.parent
    settings = of_a_venv(prefix)
    if settings is None:
        return started(interpreter)
    python = settings.get("version_info") or settings.get("version") or ""
    folders = [each for each in beside(prefix) if is_of(each, python)] or list(beside(prefix))
    if settings.get("include-system-site-packages", "").lower() != "true":
        return python, folders
    base = Path(settings.get("home", "")) / interpreter.name
    return python, [*folders, *(started(base)[1] if base.is_file() else ())]


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


def started(interpreter: Path) -> tuple[str, list[Path]]:
    """As an interpreter says itself; failing that, such as of one made for another machine, what is beside it."""
    try:
        done = subprocess.run(
            [interpreter, "-I", "-S", "-c", ASKED], capture_output=True, check=True, text=True, timeout=STARTS_WITHIN_S
        )
        python, folders, prefix = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        folders = list(beside(interpreter.parent.parent))
        if not folders:
            raise UserError(
                f"{interpreter}: this is no Python interpreter that starts, and no site-packages is beside it"
            ) from None
        named = OF_A_VERSION.search(folders[0].parent.name)
        return named[1] if named else "", folders
    return python, list(dict.fromkeys((*map(Path, folders), *(f for f in beside(Path(prefix)) if is_of(f, python)))))


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
