"""Lays the Python files of a checkout over the wheel of the nearest release, which has the compiled libraries.

A checkout of bitsandbytes would take an hour and a CUDA toolkit to build, and most changes are of its Python files. The
result is what the wheel would have with these files, unless the checkout changes the compiled code as well.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import re
import shutil
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from packaging.version import InvalidVersion, Version

from matrix.environments import unpacked
from matrix.errors import UserError
from matrix.evidence import Evidence
from matrix.versions.locks import RESOLVE_LIMIT_S, versions_in
from matrix.versions.uv import blame_machine, reason

if TYPE_CHECKING:
    from pathlib import Path

    from matrix.replacements.source import ReplacementSource
    from matrix.versions.uv import Uv

PACKAGES: Final = frozenset({"bitsandbytes"})  # they load their libraries from files beside their modules
NOTE: Final = "COMPILED_PART"  # file of the .dist-info folder with the release whose libraries are used
VERSION: Final = re.compile(r"""^__version__\s*=\s*["']([^"']+)["']""", re.MULTILINE)
PYTHON: Final = ".py"


@dataclass(frozen=True, kw_only=True)
class CompiledCheckout:
    """A checkout of a package with compiled code: its files, its name, and the version that it states."""

    files: Path
    name: str
    version: Version


def compiled_checkout(files: Path) -> CompiledCheckout | None:
    """Return the checkout in a folder, if its libraries can come from a wheel."""
    try:
        table = tomllib.loads((files / "pyproject.toml").read_text(encoding="utf-8"))
        name = str(table.get("project", {}).get("name", ""))
        if name not in PACKAGES:
            return None
        stated = VERSION.search((files / name / "__init__.py").read_text(encoding="utf-8"))
        return CompiledCheckout(files=files, name=name, version=Version(stated[1])) if stated else None
    except (OSError, ValueError, AttributeError, InvalidVersion):
        return None


def lay_over_wheel(
    checkout: CompiledCheckout, target: Path, source: ReplacementSource, *, python: str, parent: Path, uv: Uv
) -> None:
    """Make a folder with the package: the wheel's files, with the Python files of the checkout in place of its own.

    Raises:
        UserError: the index has no release that is as old as the checkout, or it cannot be installed.
    """
    release = nearest_release(checkout, source, python=python, uv=uv)
    found = unpacked.unpack(f"{checkout.name}=={release}", root=python, python=python, parent=parent, uv=uv)
    if isinstance(found, Evidence):
        raise UserError(f"{source.option}: {checkout.name} {release}, which has its libraries: {found.reason}")
    shutil.copytree(found, target)
    package = target / checkout.name
    for path in package.rglob(f"*{PYTHON}"):
        path.unlink()
    for path in (checkout.files / checkout.name).rglob(f"*{PYTHON}"):
        place = package / path.relative_to(checkout.files / checkout.name)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)
    (info,) = target.glob("*.dist-info")
    metadata = info / "METADATA"
    stated = re.sub(r"(?m)^Version: .*$", f"Version: {checkout.version}", metadata.read_text("utf-8"), count=1)
    metadata.write_text(stated, encoding="utf-8")
    (info / NOTE).write_text(f"{release}\n", encoding="utf-8")
    new = info.rename(info.with_name(f"{checkout.name}-{checkout.version}.dist-info"))
    write_record(target, new / "RECORD")


def nearest_release(checkout: CompiledCheckout, source: ReplacementSource, *, python: str, uv: Uv) -> str:
    """Return the newest release that is not newer than the version of a checkout, without its ``.dev0``."""
    line = f"{checkout.name}<={checkout.version.base_version}"
    result = uv.compile((line,), "--no-deps", "--python-version", python, timeout_s=RESOLVE_LIMIT_S)
    if result.exit_code != 0:
        blame_machine(result, doing=f"looking for {line}")
        raise UserError(f"{source.option}: no release has libraries for {checkout.version}: {reason(result.log)}")
    return versions_in(result.log)[checkout.name]


def write_record(folder: Path, record: Path) -> None:
    """List all files of a folder, with their digests and sizes.

    The format is https://packaging.python.org/en/latest/specifications/recording-installed-packages/.
    """
    rows = []
    for path in sorted(each for each in folder.rglob("*") if each.is_file() and each != record):
        content = path.read_bytes()
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        rows.append((path.relative_to(folder).as_posix(), f"sha256={digest}", str(len(content))))
    rows.append((record.relative_to(folder).as_posix(), "", ""))
    with record.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


def compiled_release(folder: Path) -> str:
    """Return the release whose libraries an installed package uses; empty if it is not laid over a wheel."""
    notes = [path.read_text(encoding="utf-8").strip() for path in folder.glob(f"*.dist-info/{NOTE}")]
    return notes[0] if notes else ""
