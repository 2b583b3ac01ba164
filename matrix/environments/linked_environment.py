"""Builds environments from links to installed packages, which takes no time and no disk space.

Each package is linked from the folder that has its version: the site-packages of an installed environment, or a folder
of its own. torch finds CUDA's libraries through the links as well, because they lie next to it where it is installed.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import distributions
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from packaging.utils import canonicalize_name

from matrix.environments.environment import site_packages
from matrix.environments.pytest_runner import PTH

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Parts = tuple[str, ...]

SCRIPTS: Final = "console_scripts"  # the group of entry points that are commands


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledPackage:
    """A package in a folder of packages, with its files relative to the folder.

    ``scripts`` has the name and the entry point of each command that it installs.
    """

    name: str
    version: str
    folder: Path
    files: tuple[tuple[str, ...], ...]
    requires: tuple[str, ...]
    scripts: tuple[tuple[str, str], ...] = ()


@lru_cache(maxsize=256)
def installed_packages(folder: Path) -> Mapping[str, InstalledPackage]:
    """The packages of a folder by normalised name, as their RECORD files list them."""
    return {each.name: each for each in map_distributions(folder)}


def map_distributions(folder: Path) -> Iterable[InstalledPackage]:
    for each in distributions(path=[str(folder)]):
        paths = (PurePosixPath(path).parts for path in each.files or ())
        yield InstalledPackage(
            name=canonicalize_name(each.name),
            version=each.version,
            folder=folder,
            files=tuple(parts for parts in paths if ".." not in parts and "__pycache__" not in parts),
            requires=tuple(each.requires or ()),
            scripts=tuple((one.name, one.value) for one in each.entry_points.select(group=SCRIPTS)),
        )


def link(root: Path, packages: Sequence[InstalledPackage], *, like: Path) -> None:
    """Create an environment, with the interpreter of the environment ``like``; a former one is removed."""
    shutil.rmtree(root, ignore_errors=True)
    source = site_packages(like)
    target = root / source.relative_to(like)
    target.mkdir(parents=True)
    (root / "bin").mkdir()
    (root / "bin" / "python").symlink_to((like / "bin" / "python").resolve())
    shutil.copyfile(like / "pyvenv.cfg", root / "pyvenv.cfg")
    shutil.copyfile(source / PTH, target / PTH)
    link_files(target, [(each.folder, parts, ()) for each in packages for parts in each.files])
    for name, entry_point in (script for each in packages for script in each.scripts):
        write_script(root / "bin", name, entry_point)


def write_script(folder: Path, name: str, entry_point: str) -> None:
    """Write a command that runs in the environment; a link would run the interpreter of another one."""
    load = f"EntryPoint(name={name!r}, value={entry_point!r}, group={SCRIPTS!r}).load()"
    code = f"import sys\nfrom importlib.metadata import EntryPoint\n\nsys.exit({load}())\n"
    path = folder / name
    path.write_text(f"#!{folder / 'python'}\n{code}", encoding="utf-8")
    path.chmod(0o755)


def link_files(target: Path, files: Iterable[tuple[Path, Parts, Parts]]) -> None:
    """Link files, or their whole folder where one folder of packages has all files of it.

    A folder that has a ``lib`` with shared libraries is created, because they find others relative to their own path.
    Each file is a folder of packages, the rest of its path below ``target``, and the part of its path above.
    """
    by_entry: dict[str, list[tuple[Path, Parts, Parts]]] = {}
    for folder, rest, above in files:
        by_entry.setdefault(rest[0], []).append((folder, rest[1:], (*above, rest[0])))
    for entry, inside in by_entry.items():
        folder, rest, path = inside[0]
        has_libraries = any("lib" in (entry, *each) and ".so" in each[-1] for _, each, _ in inside if each)
        if not rest or (len({each for each, _, _ in inside}) == 1 and not has_libraries):
            (target / entry).symlink_to(folder.joinpath(*path))
        else:
            (target / entry).mkdir()
            link_files(target / entry, [each for each in inside if each[1]])
