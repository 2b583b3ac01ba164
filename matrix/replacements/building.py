"""Installs the package of a source in a folder of its own, built from its files where it is no wheel."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from matrix.environments import leases, unpacked
from matrix.environments.environment import lease_path
from matrix.environments.integrity import damaged_packages
from matrix.environments.linked_environment import InstalledPackage, installed_packages
from matrix.environments.pytest_runner import remove_folder
from matrix.errors import UserError
from matrix.evidence import Evidence
from matrix.replacements.compiled_part import compiled_checkout, compiled_release, lay_over_wheel
from matrix.replacements.content import content_of, write_copy
from matrix.replacements.source import SourceKind
from matrix.versions.uv import blame_machine, reason

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from matrix.replacements.content import Content
    from matrix.replacements.source import ReplacementSource
    from matrix.versions.uv import Uv

FOLDER: Final = "replacements"  # in the cache
KEPT: Final = 8  # folders of each kind that stay in the cache
BUILD_LIMIT_S: Final = 900.0
# Requirements of a build that compiles code.
COMPILING: Final = frozenset(
    {"cmake", "cython", "maturin", "meson", "meson-python", "nanobind", "ninja", "pybind11", "scikit-build"}
    | {"scikit-build-core", "setuptools-rust", "torch"}
)
REMEDY: Final = "build its wheel and name that with --with"


@dataclass(frozen=True, kw_only=True)
class Replacement:
    """A package to lay over version sets.

    Attributes:
        source: the word of ``--with``.
        package: the package, in a folder of its own.
        label: what the name of a set states, such as ``@1a2b3c4`` or ``@0.18.1``. A release without an at sign is
            one that a set was resolved with.
        version: the version with what identifies its files, such as ``0.19.0.dev0+g1a2b3c4d5e6f``.
        facts: the commit and digests.
    """

    source: ReplacementSource
    package: InstalledPackage
    label: str
    version: str
    facts: Mapping[str, str]

    @property
    def name(self) -> str:
        return self.package.name

    @property
    def statement(self) -> str:
        """A line of a lock."""
        return f"{self.name}=={self.version}"

    @property
    def description(self) -> str:
        """Where it comes from, in one line."""
        return ", ".join(f"{name} {value}" for name, value in self.facts.items())

    @property
    def pinned(self) -> ReplacementSource:
        """The source with its commit, which gives the same files again; a checkout may change."""
        if self.source.kind is not SourceKind.GIT:
            return self.source
        return replace(self.source, name=self.name, reference=self.facts["commit"])


def replacement(source: ReplacementSource, *, python: str, cache: Path, uv: Uv) -> Replacement:
    """The package of a source, installed for a Python such as ``3.11``, from the cache if its files are the same.

    Raises:
        UserError: the source cannot be fetched, read, built or installed, or has another name.
    """
    parent = cache / FOLDER
    if source.kind is SourceKind.RELEASE:
        return of_release(source, python=python, parent=parent, uv=uv)
    content = content_of(source, cache=parent)
    folder = parent / f"{content.digest[:40]}-python{python}"
    with leases.held_exclusively(lease_path(folder)):
        if not folder.is_dir() or damaged_packages(folder):
            build(source, content, folder, python=python, uv=uv)
        folder.touch()
    packages = tuple(installed_packages(folder).values())
    if len(packages) != 1:
        raise UserError(f"{source.option}: {len(packages)} packages were installed instead of one; {REMEDY}")
    package = packages[0]
    if source.name not in {"", package.name}:
        raise UserError(f"{source.option}: this is {package.name}, not {source.name}; correct the name")
    release = compiled_release(folder)
    return Replacement(
        source=source,
        package=package,
        label=content.label,
        version=f"{Version(package.version).public}+{content.local}{f'.lib{release}' if release else ''}",
        facts={**content.facts, **({"compiled_part": f"of the wheel of {release}"} if release else {})},
    )


def of_release(source: ReplacementSource, *, python: str, parent: Path, uv: Uv) -> Replacement:
    found = unpacked.unpack(source.word, root=python, python=python, parent=parent, uv=uv)
    if isinstance(found, Evidence):
        raise UserError(f"{source.option}: {found.reason}; choose another release")
    found.touch()
    package = installed_packages(found)[source.name]
    return Replacement(
        source=source, package=package, label=f"@{source.place}", version=source.place, facts={"release": source.place}
    )


def build(source: ReplacementSource, content: Content, folder: Path, *, python: str, uv: Uv) -> None:
    """Install the package in a folder.

    Raises:
        UserError: it needs compilation, does not build, or does not fit the Python.
    """
    files, new = folder.with_name(f"{folder.name}.source"), folder.with_name(f"{folder.name}.new")
    remove_folder(new)
    try:
        write_copy(content, files)
        is_wheel = source.kind is SourceKind.WHEEL
        compiled = None if is_wheel else compiled_checkout(files)
        if compiled is not None:
            lay_over_wheel(compiled, new, source, python=python, parent=folder.parent, uv=uv)
            put_in_place(new, folder)
            return
        if not is_wheel:
            refuse_compilation(files, source)
        target = ("--python", python, "--target", new, "--no-deps")
        what = next(files.iterdir()) if is_wheel else files
        result = uv("pip", "install", *uv.index_arguments, *target, what, timeout_s=BUILD_LIMIT_S)
        if result.exit_code != 0:
            blame_machine(result, doing=f"building {source.option}")
            raise UserError(f"{source.option}: cannot be installed: {reason(result.log)}")
        if not is_wheel and not is_pure(new):
            raise UserError(f"{source.option}: it has compiled code, which differs between machines; {REMEDY}")
        put_in_place(new, folder)
    finally:
        remove_folder(files)
        remove_folder(new)


def put_in_place(new: Path, folder: Path) -> None:
    remove_folder(folder)
    installed_packages.cache_clear()
    new.rename(folder)


def refuse_compilation(files: Path, source: ReplacementSource) -> None:
    """Refuse a project whose build needs a compiler, before the build takes an hour.

    Raises:
        UserError: its build requires a tool that compiles, or its ``pyproject.toml`` cannot be read.
    """
    path = files / "pyproject.toml"
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        lines = table.get("build-system", {}).get("requires", ())
        needed = {str(canonicalize_name(Requirement(line).name)) for line in lines}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, InvalidRequirement, AttributeError, TypeError) as error:
        raise UserError(f"{source.option}: its pyproject.toml is invalid: {error}") from error
    tools = sorted(needed & COMPILING)
    if tools:
        raise UserError(f"{source.option}: it needs compilation ({', '.join(tools)}); {REMEDY}")


def is_pure(folder: Path) -> bool:
    """Return whether an installed package has no compiled code, as its WHEEL file states."""
    texts = (path.read_text(encoding="utf-8") for path in folder.glob("*.dist-info/WHEEL"))
    return all("root-is-purelib: true" in text.lower() for text in texts)


def remove_oldest(folder: Path, *, kept: int = KEPT) -> None:
    """Remove the least recently used environments or packages of a folder that no run uses; repositories are kept."""
    if not folder.is_dir():
        return
    found = [each for each in folder.iterdir() if each.is_dir() and each.suffix not in {".git", ".new", ".source"}]
    for unused in sorted(found, key=lambda each: each.stat().st_mtime)[:-kept]:
        lease = leases.try_acquire_exclusive(lease_path(unused))
        if lease is not None:
            remove_folder(unused)
            lease.release()
