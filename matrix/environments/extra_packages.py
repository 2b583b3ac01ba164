"""Installs the packages that a user's script needs besides a version set, in a folder of their own.

Processes of the script find the folder before the environment, which stays as the lock has it: the lock's versions
constrain the resolution, and packages of the lock are not installed again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from cases.space.verdict import Phase
from matrix.environments import leases
from matrix.environments.environment import lease_path
from matrix.environments.integrity import damaged_packages
from matrix.environments.pytest_runner import remove_folder
from matrix.evidence import Evidence
from matrix.versions.locking import unresolvable
from matrix.versions.locks import PLATFORM, RESOLVE_LIMIT_S, digest_of, distribution, pins_only, statements, versions_in
from matrix.versions.uv import blame_machine, reason

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from matrix.versions.locks import Lock
    from matrix.versions.uv import Uv

FOLDER: Final = "extras"
UNFIT: Final = "the script's packages do not fit the set"


@dataclass(frozen=True, kw_only=True)
class ExtraPackages:
    """A folder of installed packages, and their versions by name; no folder if nothing was needed."""

    folder: Path | None = None
    versions: Mapping[str, str] = field(default_factory=dict)


def unmet(requirements: Sequence[str], requires_python: str, lock: Lock) -> str:
    """What a script requires and the set has in another version, as a sentence; empty if there is nothing."""
    python = lock.version_set.python
    if not SpecifierSet(requires_python).contains(f"{python}.99"):  # the patch release is that of the machine
        return f"the script requires Python {requires_python}; the set has {python}"
    for each in applicable(requirements, python):
        version = lock.versions.get(canonicalize_name(each.name))
        if version is not None and not lock.meets(each):
            return f"the script requires {each.name}{each.specifier}; the set has {version}"
    return ""


def applicable(requirements: Sequence[str], python: str) -> list[Requirement]:
    """The requirements whose markers hold for a Python such as ``3.11``."""
    place = {"python_version": python, "python_full_version": f"{python}.99"}
    parsed = map(Requirement, requirements)
    return [each for each in parsed if each.marker is None or each.marker.evaluate(place)]


def install(requirements: Sequence[str], *, root: Path, lock: Lock, cache: Path, uv: Uv) -> ExtraPackages | Evidence:
    """Install what the lock lacks of the requirements, as of the date of the set.

    Args:
        requirements: of the script (PEP 508).
        root: the environment of the set.
        lock: that of the set.
        cache: the folder of environments.
        uv: the command that installs.

    Raises:
        UserError: the machine is at fault: no network, a full disk.
    """
    wanted = applicable(requirements, lock.version_set.python)
    if all(canonicalize_name(each.name) in lock.versions and not each.extras for each in wanted):
        return ExtraPackages()
    pins = resolve(requirements, lock=lock, uv=uv)
    if isinstance(pins, Evidence):
        return pins
    lines = [line for line in statements(pins) if distribution(line) not in lock.versions]
    if not lines:
        return ExtraPackages()
    text = "\n".join(lines)
    folder = cache / FOLDER / digest_of(lock.version_set.python, text)
    refusal = install_folder(folder, lines, root=root, uv=uv)
    return refusal or ExtraPackages(folder=folder, versions=dict(versions_in(text)))


def resolve(requirements: Sequence[str], *, lock: Lock, uv: Uv) -> str | Evidence:
    """The pins of the requirements and what they need, with hashes, or evidence why there are none."""
    source = uv.without_links() if uv.dated else uv
    constraints = [f"{name}=={version}" for name, version in lock.versions.items()]
    with uv.requirements_file(constraints) as path:
        result = source.compile(
            list(requirements),
            *("--constraints", str(path), "--generate-hashes"),
            *(("--exclude-newer", f"{lock.version_set.as_of}T23:59:59Z") if uv.dated else ()),
            *("--python-version", lock.version_set.python, "--python-platform", PLATFORM),
            timeout_s=RESOLVE_LIMIT_S,
        )
    if result.exit_code == 0:
        return pins_only(result.log)
    doing = f"resolving the packages of a script for {lock.version_set.key}"
    return unresolvable(result, doing=doing, uv=uv, why=lambda each: f"{UNFIT}: {reason(each.log)}")


def install_folder(folder: Path, lines: Sequence[str], *, root: Path, uv: Uv) -> Evidence | None:
    """Install the pins in a folder, unless it has all of them."""
    with leases.held_exclusively(lease_path(folder)):
        names = [distribution(line) for line in lines]
        if folder.is_dir() and not damaged_packages(folder, names):
            return None
        new = folder.with_name(f"{folder.name}.new")
        remove_folder(new)
        with uv.requirements_file(lines) as path:
            target = ("--python", root, "--target", new)
            result = uv.pip("install", *target, "--no-deps", "--require-hashes", "-r", path)
        if result.exit_code == 0:
            remove_folder(folder)
            new.rename(folder)
            return None
        remove_folder(new)
    blame_machine(result, doing="installing the packages of a script")
    return Evidence(phase=Phase.INSTALL, reason=reason(result.log), exit_code=result.exit_code, log=result.log)
