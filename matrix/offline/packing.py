"""Packs wheels: of complete sets, or of what a host that has its own torch lacks.

The requirements of the packages determine what can be left out. Sets of earlier packs in the same folder stay, and
wheels that the folder has are not downloaded again.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from matrix.environments.pytest_runner import RUNNER
from matrix.errors import UserError
from matrix.evidence import Evidence
from matrix.keys import SetKey
from matrix.offline import manifest, wheels
from matrix.offline.manifest import Pack, PackedSet
from matrix.versions import locking, locks
from matrix.versions.uv import blame_machine, reason

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from matrix.offline.wheels import Wheel
    from matrix.versions.locks import Lock
    from matrix.versions.sets import VersionSet
    from matrix.versions.uv import Uv

HARNESS: Final = "ftmatrix"
SOURCE: Final = Path(__file__).parents[2]
PYTHON: Final = re.compile(r"3\.\d+")
VIA: Final = re.compile(r"^([A-Za-z0-9._-]+)==\S+\s+# via (.*)$", re.MULTILINE)
BUILD_LIMIT_S: Final = 600.0


@dataclass(frozen=True, kw_only=True)
class PackRequest:
    """Version sets to pack, and their target. ``python`` is a minor version; empty for each set's own."""

    sets: Sequence[VersionSet]
    folder: Path
    python: str = ""
    system_torch: bool = False
    exclude: Sequence[str] = ()
    with_harness: bool = False
    lock_folder: Path = locks.PACKAGED
    runner: Path = RUNNER

    def check(self) -> None:
        """Check the values that do not need an index.

        Raises:
            UserError: the Python version is invalid, or the folder is a file.
        """
        if self.python and not PYTHON.fullmatch(self.python):
            raise UserError(f"--python {self.python}: expected a version such as 3.12")
        if self.folder.exists() and not self.folder.is_dir():
            raise UserError(f"--out {self.folder}: is a file; name a folder")


@dataclass(frozen=True, kw_only=True)
class Part:
    """The wheels of a set, of pytest for one Python, or of the harness."""

    name: str
    files: Sequence[Path]
    left_out: Sequence[str] = ()

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(path.stat().st_size for path in self.files)


@dataclass(frozen=True, kw_only=True)
class PackResult:
    """The folder after packing.

    Attributes:
        folder: the pack.
        sets: the requested sets.
        others: pytest and the harness.
        pythons: minor versions of Python of the sets.
        fetched: number of wheels that were downloaded now.
        notes: remarks for the user.
    """

    folder: Path
    sets: Sequence[Part]
    others: Sequence[Part]
    pythons: Sequence[str]
    fetched: int
    notes: Sequence[str] = ()

    @property
    def files(self) -> tuple[Path, ...]:
        """Every wheel in the folder, including those of earlier packs."""
        return tuple(sorted(self.folder.rglob("*.whl")))

    @property
    def size(self) -> int:
        """Bytes of all wheels, each counted once."""
        return sum(path.stat().st_size for path in self.files)


def pack(request: PackRequest, *, uv: Uv, say: Callable[[str], None] = print) -> PackResult:
    """Download the wheels, then list them in ``pack.toml``.

    Raises:
        UserError: a set does not resolve for the target, a wheel cannot be downloaded, or the disk is full.
    """
    request.check()
    selected = [select(each, request, uv=uv) for each in request.sets]
    unused = [each for each in request.exclude if not any(each in one.matched_patterns for one in selected)]
    if unused:
        raise UserError(f"--exclude {unused[0]}: these sets have no such package; correct the name or the pattern")
    wheels.create_folder(request.folder)
    pythons = sorted({each.version_set.python for each in selected})
    pytest_pins = request.runner.read_text(encoding="utf-8").splitlines()
    runners = {python: wheels.select_wheels(pytest_pins, python=python, uv=uv) for python in pythons}
    target = Pack(folder=request.folder)
    fetched = 0
    for python, own in runners.items():
        of_sets = [each for one in selected if one.version_set.python == python for each in one.wheels]
        fetched += wheels.fetch([*of_sets, *own], target.wheels_folder, python=python, uv=uv, say=say)
    for each in selected:
        locks.write(each.lock, folder=target.locks_folder)
    manifest.write(
        request.folder,
        [each.packed_set for each in selected],
        {python: [each.file for each in own] for python, own in runners.items()},
    )
    others = [Part(name=f"pytest for Python {p}", files=paths(own, target)) for p, own in runners.items()]
    notes: tuple[str, ...] = ()
    if request.with_harness:
        for python in runners:
            count, notes = pack_harness(request.folder / "harness", python=python, uv=uv, say=say)
            fetched += count
        others.append(Part(name="the harness", files=sorted((request.folder / "harness").glob("*.whl"))))
    return PackResult(
        folder=request.folder,
        sets=[Part(name=s.version_set.key, files=paths(s.wheels, target), left_out=s.left_out) for s in selected],
        others=others,
        pythons=pythons,
        fetched=fetched,
        notes=notes,
    )


def paths(selected: Iterable[Wheel], pack: Pack) -> list[Path]:
    return [pack.wheels_folder / each.file for each in selected]


@dataclass(frozen=True, kw_only=True)
class SelectedSet:
    """A set for the target.

    Attributes:
        version_set: the set, on the target's Python.
        lock: its lock.
        wheels: the wheels to pack.
        left_out: names of the packages that are not packed.
        matched_patterns: patterns of ``--exclude`` that match a package of the set.
    """

    version_set: VersionSet
    lock: Lock
    wheels: Sequence[Wheel]
    left_out: Sequence[str]
    matched_patterns: Collection[str]

    @property
    def packed_set(self) -> PackedSet:
        lock = "" if self.left_out else self.lock.digest
        return PackedSet(version_set=self.version_set, wheels=[each.file for each in self.wheels], lock=lock)


def select(version_set: VersionSet, request: PackRequest, *, uv: Uv) -> SelectedSet:
    """Select the wheels of a set for the request's target."""
    version_set = for_python(version_set, request.python)
    lock = lock_for(version_set, request, uv=uv)
    names = list(lock.versions)
    matches = {each: [name for name in names if fnmatchcase(name, each.lower())] for each in request.exclude}
    left_out = {name for matching in matches.values() for name in matching}
    if request.system_torch:
        left_out |= only_for_torch(version_set, lock, uv=uv)
    pins = [f"{name}==={version}" for name, version in lock.versions.items() if name not in left_out]
    selected = wheels.select_wheels(pins, python=version_set.python, uv=uv)
    check_hashes(selected, lock)
    return SelectedSet(
        version_set=version_set,
        lock=lock,
        wheels=selected,
        left_out=sorted(left_out),
        matched_patterns={each for each, matching in matches.items() if matching},
    )


def for_python(version_set: VersionSet, python: str) -> VersionSet:
    """The set on another Python, which is another set with a name such as 2025-03+py3.12."""
    if python in {"", version_set.python}:
        return version_set
    key = SetKey.parse(version_set.key).on_python(python)
    return replace(version_set, key=str(key), python=python, default=False)


def lock_for(version_set: VersionSet, request: PackRequest, *, uv: Uv) -> Lock:
    """The set's lock. A set on another Python has its lock, of the same date, in the pack."""
    on_own_python = version_set.key in {each.key for each in request.sets}
    folder = request.lock_folder if on_own_python else Pack(folder=request.folder).locks_folder
    lock = locking.read_or_resolve(version_set, uv=uv, folder=folder)
    if isinstance(lock, Evidence):
        raise UserError(f"{version_set.key} cannot be packed because it does not resolve: {lock.reason}")
    return lock


def only_for_torch(version_set: VersionSet, lock: Lock, *, uv: Uv) -> set[str]:
    """Names of torch and of the packages that only torch needs."""
    needed_by = parents(lock, python=version_set.python, uv=uv)
    reached = {str(canonicalize_name(Requirement(line).name)) for line in version_set.requirements} - {"torch"}
    waiting = list(reached)
    while waiting:
        name = waiting.pop()
        new = {child for child, needing in needed_by.items() if name in needing} - reached - {"torch"}
        reached |= new
        waiting += new
    return set(lock.versions) - reached


def parents(lock: Lock, *, python: str, uv: Uv) -> dict[str, set[str]]:
    """Names of the packages that require each package of the lock, as uv resolves them."""
    source = uv.without_links() if uv.dated else uv
    with source.requirements_file([f"{name}==={version}" for name, version in lock.versions.items()]) as path:
        result = source.pip(
            *("compile", path, "--no-header", "--annotation-style", "line"),
            *("--python-version", python, "--python-platform", locks.PLATFORM),
            timeout_s=locks.RESOLVE_LIMIT_S,
        )
    if result.exit_code != 0:
        blame_machine(result, doing=f"resolving the dependencies in {lock.version_set.key}")
        raise UserError(f"the dependencies in {lock.version_set.key} cannot be resolved: {reason(result.log)}")
    return {
        canonicalize_name(name): {word.strip() for word in via.split(",") if not word.strip().startswith("-")}
        for name, via in VIA.findall(result.log)
    }


def check_hashes(selected: Iterable[Wheel], lock: Lock) -> None:
    """Compare the index's wheels with the lock.

    Raises:
        UserError: a wheel has another hash.
    """
    known = dict(hashes(lock.text))
    for each in selected:
        if each.sha256 not in known.get(each.name, ""):
            raise UserError(f"{lock.version_set.key}: the index has {each.file} with another hash than the lock")


def hashes(text: str) -> Iterator[tuple[str, str]]:
    """Normalised name and the rest of each line of a lock."""
    for line in locks.statements(text):
        name, _, rest = line.partition("==")
        yield canonicalize_name(name), rest


def pack_harness(
    folder: Path, *, python: str, uv: Uv, say: Callable[[str], None], source: Path = SOURCE
) -> tuple[int, tuple[str, ...]]:
    """Pack ftmatrix and its dependencies, including uv; return the number of downloads and notes for the user."""
    own = wheels.select_wheels(requirements(source), python=python, uv=uv, with_dependencies=True)
    fetched = wheels.fetch(own, folder, python=python, uv=uv, say=say)
    if not (source / "pyproject.toml").is_file():
        return fetched, (f"{folder} lacks {HARNESS} itself, which does not run from its source; add its wheel",)
    result = uv("build", "--wheel", "--quiet", "--out-dir", folder.absolute(), source, timeout_s=BUILD_LIMIT_S)
    if result.exit_code != 0:
        blame_machine(result, doing=f"building the wheel of {HARNESS}")
        raise UserError(f"the wheel of {HARNESS} could not be built: {reason(result.log)}")
    return fetched, (f"on the target: python -m pip install --no-index --find-links {folder} {HARNESS}",)


def requirements(source: Path) -> list[str]:
    """Requirements of ftmatrix, from its source or from its installed metadata."""
    project = source / "pyproject.toml"
    if project.is_file():
        return list(tomllib.loads(project.read_text(encoding="utf-8"))["project"]["dependencies"])
    return [line for line in metadata.requires(HARNESS) or () if "extra ==" not in line]
