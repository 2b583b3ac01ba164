"""A pack is made here: the wheels of whole sets, or of what a host with a torch of its own lacks.

What may be left out is read from what the packages themselves require. Nothing of an earlier pack in the same folder
is lost, and what is there already is not fetched again.
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
from matrix.offline import manifest, wheels
from matrix.offline.manifest import Pack, Row
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
class Order:
    """What is to be packed, and for which target. ``python``: empty for each set's own."""

    sets: Sequence[VersionSet]
    folder: Path
    python: str = ""
    system_torch: bool = False
    exclude: Sequence[str] = ()
    with_harness: bool = False
    lock_folder: Path = locks.PACKAGED
    runner: Path = RUNNER

    def check(self) -> None:
        """Raise for what nothing could be packed of.

        Raises:
            UserError: a Python that is none, or a folder that is taken.
        """
        if self.python and not PYTHON.fullmatch(self.python):
            raise UserError(f"--python {self.python}: expected a version such as 3.12")
        if self.folder.exists() and not self.folder.is_dir():
            raise UserError(f"--out {self.folder}: a file is there; name a folder")


@dataclass(frozen=True, kw_only=True)
class Part:
    """A set, the runner of a Python, or the harness, as it lies in the folder now."""

    name: str
    files: Sequence[Path]
    left_out: Sequence[str] = ()

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(path.stat().st_size for path in self.files)


@dataclass(frozen=True, kw_only=True)
class Made:
    """The folder after packing. ``sets``: those that were asked for."""

    folder: Path
    sets: Sequence[Part]
    others: Sequence[Part]  # runners and harness
    fetched: int
    notes: Sequence[str] = ()

    @property
    def files(self) -> tuple[Path, ...]:
        """Every wheel in the folder, also those of earlier packs."""
        return tuple(sorted(self.folder.rglob("*.whl")))

    @property
    def size(self) -> int:
        """Bytes of all wheels, each counted once."""
        return sum(path.stat().st_size for path in self.files)


def pack(order: Order, *, uv: Uv, say: Callable[[str], None] = print) -> Made:
    """Bring the wheels, then list them.

    Raises:
        UserError: a set that does not resolve for the target, a wheel that is not to be had, or a full disk.
    """
    order.check()
    chosen = [Chosen.of(each, order, uv=uv) for each in order.sets]
    unused = [each for each in order.exclude if not any(each in one.used for one in chosen)]
    if unused:
        raise UserError(f"--exclude {unused[0]}: nothing that these sets need has such a name")
    wheels.make(order.folder)
    pythons = sorted({each.version_set.python for each in chosen})
    wanted = order.runner.read_text(encoding="utf-8").splitlines()  # pytest and what it needs, as environments get it
    runners = {python: wheels.chosen(wanted, python=python, uv=uv) for python in pythons}
    there = Pack(folder=order.folder)
    brought = 0
    for python, own in runners.items():
        of_sets = [each for one in chosen if one.version_set.python == python for each in one.taken]
        brought += wheels.fetched([*of_sets, *own], there.wheels_folder, python=python, uv=uv, say=say)
    for each in chosen:
        locks.write(each.lock, folder=there.locks_folder)
    manifest.write(
        order.folder,
        [each.row for each in chosen],
        {python: [each.file for each in own] for python, own in runners.items()},
    )
    others = [Part(name=f"pytest for Python {p}", files=paths(own, there)) for p, own in runners.items()]
    notes: tuple[str, ...] = ()
    if order.with_harness:
        for python in runners:
            count, notes = harness(order.folder / "harness", python=python, uv=uv, say=say)
            brought += count
        others.append(Part(name="the harness", files=sorted((order.folder / "harness").glob("*.whl"))))
    return Made(
        folder=order.folder,
        sets=[Part(name=c.version_set.key, files=paths(c.taken, there), left_out=c.left_out) for c in chosen],
        others=others,
        fetched=brought,
        notes=notes,
    )


def paths(chosen: Iterable[Wheel], there: Pack) -> list[Path]:
    return [there.wheels_folder / each.file for each in chosen]


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """A set for the target: its lock, the wheels that are taken, and the names of what is left out."""

    version_set: VersionSet
    lock: Lock
    taken: Sequence[Wheel]
    left_out: Sequence[str]
    used: Collection[str]  # the patterns of --exclude that something matched

    @classmethod
    def of(cls, asked: VersionSet, order: Order, *, uv: Uv) -> Chosen:
        version_set = for_python(asked, order.python)
        lock = locked(version_set, order, uv=uv)
        names = list(lock.versions)
        matched = {each: [name for name in names if fnmatchcase(name, each.lower())] for each in order.exclude}
        left_out = {name for found in matched.values() for name in found}
        if order.system_torch:
            left_out |= only_for_torch(version_set, lock, uv=uv)
        wanted = [f"{name}==={version}" for name, version in lock.versions.items() if name not in left_out]
        taken = wheels.chosen(wanted, python=version_set.python, uv=uv)
        check_hashes(taken, lock)
        return cls(
            version_set=version_set,
            lock=lock,
            taken=taken,
            left_out=sorted(left_out),
            used={each for each, found in matched.items() if found},
        )

    @property
    def row(self) -> Row:
        lock = "" if self.left_out else self.lock.digest
        return Row(version_set=self.version_set, wheels=[each.file for each in self.taken], lock=lock)


def for_python(version_set: VersionSet, python: str) -> VersionSet:
    """The set on another Python is another set, and says so: 2025-03+py3.12."""
    if python in {"", version_set.python}:
        return version_set
    return replace(version_set, key=f"{version_set.key}+py{python}", python=python, default=False)


def locked(version_set: VersionSet, order: Order, *, uv: Uv) -> Lock:
    """The set's own lock; on another Python than its own, one as of the same date, which travels with the pack."""
    its_own = version_set.key in {each.key for each in order.sets}
    folder = order.lock_folder if its_own else Pack(folder=order.folder).locks_folder
    found = locking.read_or_resolve(version_set, uv=uv, folder=folder)
    if isinstance(found, Evidence):
        raise UserError(f"{version_set.key} cannot be packed, it does not resolve: {found.reason}")
    return found


def only_for_torch(version_set: VersionSet, lock: Lock, *, uv: Uv) -> set[str]:
    """Torch, and what nothing else of the set needs."""
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
    """Who needs each package of the lock, as uv finds it in what the packages require."""
    source = uv.without_links() if uv.dated else uv
    with source.requirements_file([f"{name}==={version}" for name, version in lock.versions.items()]) as wanted:
        done = source.pip(
            *("compile", wanted, "--no-header", "--annotation-style", "line"),
            *("--python-version", python, "--python-platform", locks.PLATFORM),
            timeout_s=locks.RESOLVE_LIMIT_S,
        )
    if done.exit_code != 0:
        blame_machine(done, doing=f"asking what needs what in {lock.version_set.key}")
        raise UserError(f"what needs what in {lock.version_set.key} cannot be found out: {reason(done.log)}")
    return {
        canonicalize_name(name): {word.strip() for word in via.split(",") if not word.strip().startswith("-")}
        for name, via in VIA.findall(done.log)
    }


def check_hashes(taken: Iterable[Wheel], lock: Lock) -> None:
    """What the index has is what was locked.

    Raises:
        UserError: it is not.
    """
    known = dict(hashes(lock.text))
    for each in taken:
        if each.sha256 not in known.get(each.name, ""):
            raise UserError(f"{lock.version_set.key}: {each.file} of the index has another hash than its lock says")


def hashes(text: str) -> Iterator[tuple[str, str]]:
    for line in locks.statements(text):
        name, _, rest = line.partition("==")
        yield canonicalize_name(name), rest


def harness(
    folder: Path, *, python: str, uv: Uv, say: Callable[[str], None], source: Path = SOURCE
) -> tuple[int, tuple[str, ...]]:
    """This program and what it needs, uv among it: how many files were brought, and how they are installed."""
    own = wheels.chosen(requirements(source), python=python, uv=uv, with_dependencies=True)
    brought = wheels.fetched(own, folder, python=python, uv=uv, say=say)
    if not (source / "pyproject.toml").is_file():
        return brought, (f"{HARNESS} itself is not in {folder}: it was not started from its source; add its wheel",)
    done = uv("build", "--wheel", "--quiet", "--out-dir", folder.absolute(), source, timeout_s=BUILD_LIMIT_S)
    if done.exit_code != 0:
        blame_machine(done, doing=f"building the wheel of {HARNESS}")
        raise UserError(f"the wheel of {HARNESS} cannot be built: {reason(done.log)}")
    return brought, (f"there: python -m pip install --no-index --find-links {folder} {HARNESS}",)


def requirements(source: Path) -> list[str]:
    """What this program needs: as its source has it now, or as it was installed."""
    project = source / "pyproject.toml"
    if project.is_file():
        return list(tomllib.loads(project.read_text(encoding="utf-8"))["project"]["dependencies"])
    return [line for line in metadata.requires(HARNESS) or () if "extra ==" not in line]
