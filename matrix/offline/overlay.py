"""Hosts whose torch must stay, and that reach no index: wheels of a pack, laid over the interpreter that has torch.

Nothing of the host is changed: an environment of its own sees the wheels first, and behind them what the host's
interpreter has. The set is named for what it then is: the pack's name for the rest, and torch as it was found, with its
build. A pack that brings a torch of its own takes from the host only the libraries of CUDA, and is named for that.
"""

from __future__ import annotations

import os
import re
import shutil
import zipfile
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from cases.space.verdict import Phase
from matrix import processes
from matrix.environments import leases, provision
from matrix.environments.host import NEEDED, System, asked, by_name, versions
from matrix.environments.provision import MARKER, PTH, SCHEMA, Environment, hold_path, marked, site_packages
from matrix.errors import UserError
from matrix.evidence import Evidence
from matrix.offline import manifest
from matrix.offline.manifest import PACK, Pack, digest
from matrix.run.store import write_json
from matrix.versions import sets
from matrix.versions.backends import SYSTEM, Backend
from matrix.versions.locks import Lock
from matrix.versions.sets import PACKAGES, VersionSet
from matrix.versions.uv import reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from collections.abc import Set as AbstractSet
    from importlib.metadata import Distribution

    from matrix.processes import Call
    from matrix.versions.uv import Uv

HOSTED: Final = "+host"  # of a set whose torch is its own, and whose libraries of CUDA are the host's
CUDA: Final = re.compile(r"nvidia-.*|cuda-.*")
LIBRARIES: Final = "nvidia"  # the folder of them all, beside torch
VERSION: Final = re.compile(r"^__version__ = ['\"]([^'\"]+)['\"]", re.MULTILINE)
LOAD_LIMIT_S: Final = 300.0


@dataclass(frozen=True, kw_only=True)
class Overlay:
    """A folder of wheels and the host that they are laid over."""

    folder: Path
    system: System
    cache: Path
    uv: Uv
    call: Call = field(default=processes.call, repr=False)

    @property
    def backend(self) -> str:
        return SYSTEM

    @property
    def host_paths(self) -> tuple[str, ...]:
        return self.system.paths

    @cached_property
    def pack(self) -> Pack:
        return Pack(folder=self.folder)

    @cached_property
    def laid(self) -> Mapping[str, Laid]:
        """Every set of the pack, by its name on this host.

        Raises:
            UserError: the pack is damaged, or lists a wheel that is not there.
        """
        every = [Laid(key=key, wheels=tuple(self.pack.wheels(key)), system=self.system) for key in self.pack.rows]
        return {each.hosted_key: each for each in every}

    @cached_property
    def sets(self) -> tuple[VersionSet, ...]:
        return tuple(self.version_set(each) for each in self.laid.values())

    def version_set(self, laid: Laid) -> VersionSet:
        at, row = f"{PACK}: sets.{laid.key}", self.pack.row(laid.key)
        sets.checked_key(laid.key)
        lacking = [name for name in PACKAGES if name not in laid.versions]
        if lacking:
            raise UserError(f"{at}: neither the pack nor {self.system.python} has {', '.join(lacking)}: add the wheel")
        return VersionSet(
            key=laid.hosted_key,
            python=self.system.minor,
            as_of=sets.as_of_date(row, at=at),
            pins={name: laid.versions[name] for name in PACKAGES},
            why=f"{sets.sentence(row, 'why', at=at)}; {laid.over}",
        )

    def lock(self, version_set: VersionSet) -> Lock:
        """Everything that can be seen: the pack's wheels by their hashes, the host's packages by their versions."""
        laid = self.laid[version_set.key]
        lines = {name: f"{name}=={version} --hash=sha256:{digest(path)}" for name, version, path in laid.wheels}
        host = {name: f"{name}=={version}" for name, version in laid.from_host.items()}
        text = "\n".join(line for _, line in sorted({**host, **lines}.items()))
        return Lock(version_set=version_set, text=f"{text}\n")

    def install(self, lock: Lock, *, make_room: Callable[[], object] = tuple) -> Environment | Evidence:
        """The set's environment, from the cache or newly made, held by the caller; or why it does not fit together."""
        root = self.cache / "envs" / f"{lock.digest}-{SYSTEM}"
        laid = self.laid[lock.version_set.key]
        while True:
            hold = leases.shared(hold_path(root))
            if self.is_whole(root, laid):
                break
            hold.release()
            make_room()
            wrong = self.made(root, lock)
            if wrong:
                said = f"the wheels and the host do not fit together: {wrong}"
                return Evidence(phase=Phase.RESOLVE, reason=said)
            # Made, and given up for a moment: another run may have evicted it before it is held again.
        (root / MARKER).touch()  # the most recently used one
        return Environment(
            key=lock.version_set.key,
            lock=lock.digest,
            backend=SYSTEM,
            root=root,
            installed=self.seen(root, laid),
            notes=self.notes(root, laid),
            hold=hold,
        )

    def is_whole(self, root: Path, laid: Laid) -> bool:
        """Whether it was made to its end, starts, and is laid over this interpreter, not one that has the same."""
        if marked(root) is None or not (root / "bin" / "python").exists():
            return False
        seen = (site_packages(root) / PTH).read_text(encoding="utf-8").splitlines()
        return seen[: len(laid.paths)] == list(laid.paths)

    def made(self, root: Path, lock: Lock) -> str:
        """Make it, unless someone else just did; why it cannot be used, empty if it can. Nothing half-made stays."""
        laid = self.laid[lock.version_set.key]
        making = leases.exclusive(hold_path(root))
        try:
            if not self.is_whole(root, laid):
                shutil.rmtree(root, ignore_errors=True)
                self.make(root, lock)
                wrong = self.wrong(root, laid)
                if wrong:
                    return wrong
                self.mark(root, lock)
            return ""
        finally:
            if marked(root) is None:
                shutil.rmtree(root, ignore_errors=True)
            making.release()

    def make(self, root: Path, lock: Lock) -> None:
        """Lay the wheels of the lock over the host's packages.

        Raises:
            UserError: no environment can be made for the host's interpreter, or a wheel is not for it.
        """
        laid = self.laid[lock.version_set.key]
        self.run("venv", "--python", self.system.python, root)
        files = [path for _, _, path in laid.wheels]
        into = ("--python", root, "--offline", "--no-index", "--no-deps")
        self.run("pip", "install", *into, *files, but=self.other_python(laid))
        site = site_packages(root)
        seen = (*laid.paths, *self.runner(lock, laid))
        (site / PTH).write_text("".join(f"{path}\n" for path in seen), encoding="utf-8")
        if laid.brought_torch:
            for path in self.system.paths:
                link(Path(path) / LIBRARIES, site / LIBRARIES)

    def runner(self, lock: Lock, laid: Laid) -> tuple[str, ...]:
        """The folder of the pack's pytest, where the host's is not there or not seen."""
        if laid.paths and all(name in self.system.installed for name in NEEDED):
            return ()
        source = self.uv.from_folder(self.pack.wheels_folder)
        order = provision.Order(lock=lock, cache=self.cache, uv=source, backend=Backend(name=SYSTEM))
        return (str(provision.runner_folder(order)),)

    def mark(self, root: Path, lock: Lock) -> None:
        marker = {
            "schema": SCHEMA,
            "key": lock.version_set.key,
            "lock": lock.digest,
            "backend": SYSTEM,
            "python": self.system.minor,
            "runner": "",
            "installed": versions((str(site_packages(root)),)),
        }
        write_json(root / MARKER, marker)

    def other_python(self, laid: Laid) -> str:
        """What is likely amiss where the set was packed for another Python; wheels without binaries go with any."""
        packed_for, minor = self.pack.row(laid.key).get("python", self.system.minor), self.system.minor
        if packed_for == minor:
            return ""
        return f"{laid.key} was packed for Python {packed_for}, this is {minor}: `ftmatrix pack --python {minor}`; "

    def run(self, *arguments: str | Path, but: str = "") -> None:
        done = self.uv(*arguments)
        if done.exit_code != 0:
            raise UserError(f"the wheels cannot be laid over {self.system.python}: {but}{reason(done.log)}")

    def seen(self, root: Path, laid: Laid) -> dict[str, str]:
        there = versions((str(site_packages(root)), *laid.paths))
        return {**laid.from_host, **there, "torch": laid.torch}

    def wrong(self, root: Path, laid: Laid) -> str:
        """Why the environment cannot be used, empty if it can."""
        misfits = [gap.text for gap in self.gaps(root, laid) if not laid.bears(gap)]
        if misfits or not laid.brought_torch:
            return next(iter(misfits), "")
        done = self.call([str(root / "bin" / "python"), "-I", "-c", "import torch"], timeout_s=LOAD_LIMIT_S)
        said = (done.log.strip().splitlines() or ["nothing was said"])[-1]
        return "" if done.exit_code == 0 else f"torch {laid.brought_torch} cannot be imported: {said}"

    def gaps(self, root: Path, laid: Laid) -> list[Gap]:
        """What one of the six packages needs, or what that needs in turn, and does not find."""
        there = {**laid.host_libraries, **by_name((str(site_packages(root)), *laid.paths))}
        found: list[Gap] = []
        waiting, known = list(PACKAGES), set(PACKAGES)
        while waiting:
            name = waiting.pop()
            for wanted in self.requirements(there[name]) if name in there else ():
                needed = canonicalize_name(wanted.name)
                version = there[needed].version if needed in there else ""
                if not version or not wanted.specifier.contains(version, prereleases=True):
                    found.append(Gap(name=name, wanted=wanted, version=version))
                elif needed not in known:
                    known.add(needed)
                    waiting.append(needed)
        return found

    def requirements(self, distribution: Distribution) -> list[Requirement]:
        """Those that hold for this interpreter, without extras."""
        here: dict[str, str | AbstractSet[str]] = {name: str(value) for name, value in default_environment().items()}
        here |= {"python_version": self.system.minor, "python_full_version": self.system.version, "extra": ""}
        every = (Requirement(line) for line in distribution.requires or ())
        return [wanted for wanted in every if wanted.marker is None or wanted.marker.evaluate(here)]

    def notes(self, root: Path, laid: Laid) -> tuple[str, ...]:
        brought = ", ".join(f"{name} {version}" for name, version, _ in laid.wheels)
        rest = "of the host only the libraries of CUDA" if laid.brought_torch else "the rest is as found there"
        said = f"laid over the host's Python {self.system.version}: {brought}; {rest}"
        return (said, *(gap.note for gap in self.gaps(root, laid) if laid.bears(gap)))


@dataclass(frozen=True, kw_only=True)
class Gap:
    """A requirement that is not met. ``version``: what is there, empty for nothing."""

    name: str
    wanted: Requirement
    version: str

    @property
    def text(self) -> str:
        return f"{self.name} needs {self.wanted}, there is {self.version or 'none'}"

    @property
    def note(self) -> str:
        return f"{self.name} pins {self.wanted.name}{self.wanted.specifier}, the host has {self.version}"

    @property
    def is_minor(self) -> bool:
        """Whether there is another release of the same major version: of those, libraries keep their interface."""
        majors = {Version(each.version.removesuffix(".*")).major for each in self.wanted.specifier}
        return bool(self.version) and Version(self.version).major in majors


@dataclass(frozen=True, kw_only=True)
class Laid:
    """A set of the pack as it is on a host. ``wheels``: name, version and file of each."""

    key: str
    wheels: tuple[tuple[str, str, Path], ...]
    system: System

    @cached_property
    def brought_torch(self) -> str:
        """The build of the pack's own torch, empty where the host's is taken."""
        return next((build(path) for name, _, path in self.wheels if name == "torch"), "")

    @property
    def torch(self) -> str:
        return self.brought_torch or self.system.torch

    @property
    def hosted_key(self) -> str:
        return f"{self.key}{HOSTED if self.brought_torch else f'+torch{self.system.torch}'}"

    @property
    def over(self) -> str:
        return "over the host's libraries of CUDA" if self.brought_torch else "laid over the host's torch"

    @property
    def paths(self) -> tuple[str, ...]:
        """The folders of the host that are seen: none beside another torch, for which its packages were not made."""
        return () if self.brought_torch else self.system.paths

    @cached_property
    def host_libraries(self) -> Mapping[str, Distribution]:
        return {name: each for name, each in by_name(self.system.paths).items() if CUDA.fullmatch(name)}

    @property
    def from_host(self) -> Mapping[str, str]:
        if self.brought_torch:
            return {name: each.version for name, each in self.host_libraries.items()}
        return {**self.system.installed, "torch": self.system.torch}

    @property
    def versions(self) -> Mapping[str, str]:
        brought = {name: version for name, version, _ in self.wheels}
        return {**self.from_host, **brought, "torch": self.torch}

    def bears(self, gap: Gap) -> bool:
        """Torch names the releases of CUDA's libraries that it was built with; those of the host are near enough."""
        from_cuda = CUDA.fullmatch(canonicalize_name(gap.wanted.name)) is not None
        return bool(self.brought_torch) and gap.name == "torch" and from_cuda and gap.is_minor


def on_this_host(folder: Path, *, python: str, cache: Path, uv: Uv) -> Overlay:
    """The folder laid over the interpreter.

    Raises:
        UserError: the folder is no pack, or the interpreter has no torch, or there is no pytest.
    """
    pack = manifest.opened(folder)
    return Overlay(folder=pack.folder, system=asked(python, runners=pack.runners), cache=cache, uv=uv)


def build(wheel: Path) -> str:
    """The version of a wheel of torch with its build, e.g. 2.13.0+cu130, as it will say itself.

    Raises:
        UserError: it is no wheel of torch.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            text = archive.read("torch/version.py").decode()
        return str(VERSION.findall(text)[0])
    except (OSError, KeyError, IndexError, UnicodeDecodeError, zipfile.BadZipFile) as error:
        raise UserError(f"{wheel}: it does not say which build of torch it is; pack it again") from error


def link(there: Path, here: Path) -> None:
    """Let what is there be found here as well, where torch looks for its libraries; what is here stays."""
    if not os.path.lexists(here):
        if there.exists():
            here.symlink_to(there)
    elif there.is_dir() and here.is_dir() and not here.is_symlink():
        for each in there.iterdir():
            link(each, here / each.name)
