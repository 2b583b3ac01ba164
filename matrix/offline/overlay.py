"""Overlays: wheels of a pack installed over an interpreter of the host whose torch must stay.

The host is not changed. A separate environment finds the pack's wheels first, and behind them the packages of the
host's interpreter. The set's name on the host states the host's torch with its build, such as
``2026-11+torch2.11.0+cu130``. A pack that has its own torch takes only the CUDA libraries from the host, and the
set's name ends in ``+host``.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from packaging.utils import canonicalize_name

from cases.space.verdict import Phase
from matrix import processes
from matrix.environments import leases
from matrix.environments.environment import Environment, lease_path, site_packages
from matrix.environments.host import REQUIRED, HostInterpreter, by_name, inspect_interpreter, versions
from matrix.environments.integrity import damage_of, damaged_packages
from matrix.environments.marker import MARKER, Marker, read_marker, write_marker
from matrix.environments.pytest_runner import PTH, runner_folder
from matrix.errors import UserError
from matrix.evidence import Evidence
from matrix.offline import manifest
from matrix.offline.manifest import PACK, Pack, digest
from matrix.offline.overlaid_set import OverlaidSet, UnmetRequirement, requirements
from matrix.versions import sets
from matrix.versions.backends import SYSTEM
from matrix.versions.locks import Lock
from matrix.versions.sets import PACKAGES, VersionSet
from matrix.versions.uv import CACHE_CLEAN_LIMIT_S, reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from matrix.processes import CommandRunner
    from matrix.versions.uv import Uv

LIBRARIES: Final = "nvidia"  # the folder of CUDA's libraries, next to torch
IMPORT_LIMIT_S: Final = 300.0


@dataclass(frozen=True, kw_only=True)
class Overlay:
    """A pack and the interpreter of the host that its wheels are installed over."""

    folder: Path
    host: HostInterpreter
    cache: Path
    uv: Uv
    call: CommandRunner = field(default=processes.call, repr=False)

    @property
    def backend(self) -> str:
        return SYSTEM

    @property
    def host_paths(self) -> tuple[str, ...]:
        return self.host.paths

    @cached_property
    def pack(self) -> Pack:
        return Pack(folder=self.folder)

    @cached_property
    def overlaid_sets(self) -> Mapping[str, OverlaidSet]:
        """Every set of the pack, by its name on this host.

        Raises:
            UserError: the pack is damaged, or lists a wheel that it lacks.
        """
        every = [OverlaidSet(key=key, wheels=tuple(self.pack.wheels(key)), host=self.host) for key in self.pack.rows]
        return {each.hosted_key: each for each in every}

    @cached_property
    def sets(self) -> tuple[VersionSet, ...]:
        return tuple(self.version_set(each) for each in self.overlaid_sets.values())

    def version_set(self, overlaid: OverlaidSet) -> VersionSet:
        at, row = f"{PACK}: sets.{overlaid.key}", self.pack.row(overlaid.key)
        sets.checked_key(overlaid.key)
        missing = [name for name in PACKAGES if name not in overlaid.versions]
        if missing:
            raise UserError(f"{at}: neither the pack nor {self.host.python} has {', '.join(missing)}; add the wheel")
        return VersionSet(
            key=overlaid.hosted_key,
            python=self.host.minor,
            as_of=sets.as_of_date(row, at=at),
            pins={name: overlaid.versions[name] for name in PACKAGES},
            why=f"{sets.sentence(row, 'why', at=at)}; {overlaid.description}",
        )

    def lock(self, version_set: VersionSet) -> Lock:
        """The pack's wheels with their hashes, and the host's packages with their versions."""
        overlaid = self.overlaid_sets[version_set.key]
        wheels = {name: f"{name}=={version} --hash=sha256:{digest(path)}" for name, version, path in overlaid.wheels}
        host = {name: f"{name}=={version}" for name, version in overlaid.from_host.items()}
        text = "\n".join(line for _, line in sorted({**host, **wheels}.items()))
        return Lock(version_set=version_set, text=f"{text}\n")

    def install(self, lock: Lock, *, make_room: Callable[[], object] = tuple) -> Environment | Evidence:
        """The set's environment, from the cache or newly installed, or evidence that wheels and host conflict.

        The caller releases the environment.

        Raises:
            UserError: no environment can be created for the host's interpreter, or a wheel does not fit it.
        """
        root = self.cache / "envs" / f"{lock.digest}-{SYSTEM}"
        overlaid = self.overlaid_sets[lock.version_set.key]
        damage = ""
        while True:
            lease = leases.acquire_shared(lease_path(root))
            if self.is_complete(root, overlaid):
                damaged_files = damage_of(site_packages(root), read_marker(root))
                if not damaged_files:
                    break
                damage = f"the cached environment was damaged and was installed again: {damaged_files}"
            lease.release()
            make_room()
            conflict = self.install_exclusively(root, lock)
            if conflict:
                return Evidence(phase=Phase.RESOLVE, reason=f"the wheels conflict with the host: {conflict}")
            # The lease was released for a moment: another run may have evicted the environment in the meantime.
        (root / MARKER).touch()  # it is now the most recently used one
        self.write_path(root, overlaid)
        return Environment(
            key=lock.version_set.key,
            lock=lock.digest,
            backend=SYSTEM,
            root=root,
            installed=self.visible_versions(root, overlaid),
            notes=(*self.notes(root, overlaid), *([damage] if damage else [])),
            lease=lease,
        )

    def is_complete(self, root: Path, overlaid: OverlaidSet) -> bool:
        """True if its installation ended and it sees this interpreter, not another one with the same packages."""
        path = next(root.glob(f"lib/python3.*/site-packages/{PTH}"), None)
        if path is None or read_marker(root) is None or not (root / "bin" / "python").exists():
            return False
        return path.read_text(encoding="utf-8").splitlines()[: len(overlaid.paths)] == list(overlaid.paths)

    def install_exclusively(self, root: Path, lock: Lock) -> str:
        """Install under an exclusive lease, unless another run just did; return a conflict, or nothing.

        A failed installation leaves no files.
        """
        overlaid = self.overlaid_sets[lock.version_set.key]
        lease = leases.acquire_exclusive(lease_path(root))
        try:
            if self.is_complete(root, overlaid) and not damage_of(site_packages(root), read_marker(root)):
                return ""
            self.build(root, overlaid)
            conflict = self.conflict(root, overlaid)
            if not conflict:
                self.mark(root, lock)
            return conflict
        finally:
            if read_marker(root) is None:
                shutil.rmtree(root, ignore_errors=True)
            lease.release()

    def build(self, root: Path, overlaid: OverlaidSet) -> None:
        """Install the wheels; a second time if uv's cache, which the files are hard links to, is damaged as well."""
        self.install_wheels(root, overlaid)
        damaged = damaged_packages(site_packages(root))
        if damaged:
            self.uv("cache", "clean", *sorted(damaged), timeout_s=CACHE_CLEAN_LIMIT_S)
            self.install_wheels(root, overlaid)
        self.write_path(root, overlaid)
        if overlaid.packed_torch:
            for path in self.host.paths:
                link_missing(Path(path) / LIBRARIES, site_packages(root) / LIBRARIES)

    def install_wheels(self, root: Path, overlaid: OverlaidSet) -> None:
        shutil.rmtree(root, ignore_errors=True)
        self.run("venv", "--python", self.host.python, root)
        files = [path for _, _, path in overlaid.wheels]
        options = ("--python", root, "--offline", "--no-index", "--no-deps")
        self.run("pip", "install", *options, *files, hint=self.python_hint(overlaid))

    def write_path(self, root: Path, overlaid: OverlaidSet) -> None:
        """Let the environment find the host's packages and pytest behind its own packages."""
        path = site_packages(root) / PTH
        text = "".join(f"{each}\n" for each in (*overlaid.paths, *self.runner(root, overlaid)))
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")

    def runner(self, root: Path, overlaid: OverlaidSet) -> tuple[str, ...]:
        """The folder of the pack's pytest; nothing if the host's pytest is visible."""
        if overlaid.paths and all(name in self.host.installed for name in REQUIRED):
            return ()
        return (str(runner_folder(root, cache=self.cache, uv=self.uv.from_folder(self.pack.wheels_folder))),)

    def mark(self, root: Path, lock: Lock) -> None:
        site = site_packages(root)
        marker = Marker(
            key=lock.version_set.key,
            lock=lock.digest,
            backend=SYSTEM,
            python=self.host.minor,
            runner="",
            installed=versions((str(site),)),
            unverified=tuple(sorted(damaged_packages(site))),
        )
        write_marker(root, marker)

    def python_hint(self, overlaid: OverlaidSet) -> str:
        """The likely cause of a failure if the set was packed for another Python; wheels without binaries fit any."""
        packed_for, minor = self.pack.row(overlaid.key).get("python", self.host.minor), self.host.minor
        if packed_for == minor:
            return ""
        return f"{overlaid.key} was packed for Python {packed_for}, this is {minor}: `ftmatrix pack --python {minor}`; "

    def run(self, *arguments: str | Path, hint: str = "") -> None:
        result = self.uv(*arguments)
        if result.exit_code != 0:
            raise UserError(f"the wheels cannot be installed over {self.host.python}: {hint}{reason(result.log)}")

    def visible_versions(self, root: Path, overlaid: OverlaidSet) -> dict[str, str]:
        visible = versions((str(site_packages(root)), *overlaid.paths))
        return {**overlaid.from_host, **visible, "torch": overlaid.torch}

    def conflict(self, root: Path, overlaid: OverlaidSet) -> str:
        """Why the environment cannot be used; empty if it can."""
        unmet = [each.text for each in self.unmet_requirements(root, overlaid) if not overlaid.tolerates(each)]
        if unmet or not overlaid.packed_torch:
            return next(iter(unmet), "")
        result = self.call([str(root / "bin" / "python"), "-I", "-c", "import torch"], timeout_s=IMPORT_LIMIT_S)
        last_line = (result.log.strip().splitlines() or ["no output"])[-1]
        return "" if result.exit_code == 0 else f"torch {overlaid.packed_torch} cannot be imported: {last_line}"

    def unmet_requirements(self, root: Path, overlaid: OverlaidSet) -> list[UnmetRequirement]:
        """Requirements of the six packages, and of what they require, that the environment does not meet."""
        visible = {**overlaid.host_libraries, **by_name((str(site_packages(root)), *overlaid.paths))}
        unmet: list[UnmetRequirement] = []
        waiting, known = list(PACKAGES), set(PACKAGES)
        while waiting:
            name = waiting.pop()
            for required in requirements(visible[name], self.host) if name in visible else ():
                needed = canonicalize_name(required.name)
                version = visible[needed].version if needed in visible else ""
                if not version or not required.specifier.contains(version, prereleases=True):
                    unmet.append(UnmetRequirement(name=name, required=required, version=version))
                elif needed not in known:
                    known.add(needed)
                    waiting.append(needed)
        return unmet

    def notes(self, root: Path, overlaid: OverlaidSet) -> tuple[str, ...]:
        packed = ", ".join(f"{name} {version}" for name, version, _ in overlaid.wheels)
        rest = "the host provides only CUDA's libraries" if overlaid.packed_torch else "the host provides the rest"
        summary = f"overlay on the host's Python {self.host.version}: {packed}; {rest}"
        unmet = self.unmet_requirements(root, overlaid)
        return (summary, *(each.note for each in unmet if overlaid.tolerates(each)))


def on_this_host(folder: Path, *, python: str, cache: Path, uv: Uv) -> Overlay:
    """An overlay of the pack in ``folder`` on the interpreter ``python``.

    Raises:
        UserError: the folder is no pack, or the interpreter has no torch or no pytest.
    """
    pack = manifest.open_pack(folder)
    return Overlay(folder=pack.folder, host=inspect_interpreter(python, runners=pack.runners), cache=cache, uv=uv)


def link_missing(source: Path, target: Path) -> None:
    """Link what ``source`` has and ``target`` lacks, folder by folder; torch looks for its libraries in ``target``."""
    if not os.path.lexists(target):
        if source.exists():
            target.symlink_to(source)
    elif source.is_dir() and target.is_dir() and not target.is_symlink():
        for each in source.iterdir():
            link_missing(each, target / each.name)
