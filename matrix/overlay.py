"""Hosts whose torch must stay, and that reach no index: wheels from a folder, laid over the interpreter that has torch.

The folder holds ``pack.toml``, which lists the wheels of each set, and ``wheels/``. Nothing of the host is changed: an
environment of its own sees the wheels first, and behind them what the host's interpreter has. The set is named for what
it then is: the pack's name for the rest, and torch as it was found, with its build.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import Distribution, distributions
from typing import TYPE_CHECKING, Any, Final

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from cases.verdict import Phase
from matrix import holds, processes, sets
from matrix.backends import SYSTEM
from matrix.environments import MARKER, PTH, SCHEMA, Environment, hold_path, marked, site_packages
from matrix.errors import UserError
from matrix.evidence import Evidence
from matrix.locks import Lock
from matrix.sets import PACKAGES, VersionSet
from matrix.store import write_json
from matrix.uv import reason

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from matrix.processes import Call
    from matrix.uv import Uv

PACK: Final = "pack.toml"
ASK_LIMIT_S: Final = 60.0
NEEDED: Final = ("torch", "pytest", "pytest-xdist")
# Asked of the host's interpreter: torch's build is in a file, so that nothing need be imported.
ASK: Final = """
import glob, importlib.util, json, runpy, sys
found = importlib.util.find_spec("torch")
build = runpy.run_path(found.submodule_search_locations[0] + "/version.py")["__version__"] if found else ""
paths = [path for path in sys.path if path and glob.glob(glob.escape(path) + "/*.dist-info")]
print(json.dumps({"version": sys.version.split()[0], "paths": paths, "torch": str(build)}))
"""


@dataclass(frozen=True, kw_only=True)
class System:
    """The host's interpreter: where it is, where its packages are, and its torch with the build."""

    python: str
    version: str
    paths: tuple[str, ...]
    torch: str

    @cached_property
    def installed(self) -> Mapping[str, str]:
        return versions(self.paths)

    @property
    def minor(self) -> str:
        return ".".join(self.version.split(".")[:2])


@dataclass(frozen=True, kw_only=True)
class Overlay:
    """A folder of wheels and the host that they are laid over."""

    folder: Path
    system: System
    cache: Path
    uv: Uv

    @cached_property
    def sets(self) -> tuple[VersionSet, ...]:
        """Those of the pack, each under the name of what it is on this host.

        Raises:
            UserError: the pack is damaged, or lists a wheel that is not there.
        """
        rows = sets.table(sets.parsed(self.folder / PACK), "sets", at=PACK)
        return tuple(self.version_set(key, sets.table(rows, key, at=f"{PACK}: sets")) for key in rows)

    def version_set(self, key: str, row: Mapping[str, Any]) -> VersionSet:
        at = f"{PACK}: sets.{key}"
        there = {**self.system.installed, **{name: version for name, version, _ in self.wheels(key)}}
        there["torch"] = self.system.torch
        lacking = [name for name in PACKAGES if name not in there]
        if lacking:
            raise UserError(f"{at}: neither the pack nor {self.system.python} has {', '.join(lacking)}: add the wheel")
        return VersionSet(
            key=f"{sets.checked_key(key)}+torch{self.system.torch}",
            python=self.system.minor,
            as_of=sets.as_of_date(row, at=at),
            pins={name: there[name] for name in PACKAGES},
            why=f"{sets.sentence(row, 'why', at=at)}; laid over the host's torch",
        )

    def wheels(self, key: str) -> list[tuple[str, str, Path]]:
        """Name, version and file of each wheel of a set, by the pack's name for it."""
        rows = sets.table(sets.parsed(self.folder / PACK), "sets", at=PACK)
        listed = sets.table(rows, key, at=f"{PACK}: sets").get("wheels")
        if not isinstance(listed, list) or not listed:
            raise UserError(f"{PACK}: sets.{key}.wheels: expected a list of file names")
        return [wheel(self.folder / "wheels" / str(name), at=f"{PACK}: sets.{key}.wheels") for name in listed]

    def packed(self, version_set: VersionSet) -> list[tuple[str, str, Path]]:
        return self.wheels(version_set.key.removesuffix(f"+torch{self.system.torch}"))

    def lock(self, version_set: VersionSet) -> Lock:
        """Everything that can be seen: the pack's wheels by their hashes, the host's packages by their versions."""
        brought = self.packed(version_set)
        lines = {name: f"{name}=={version} --hash=sha256:{digest(path)}" for name, version, path in brought}
        host = {name: f"{name}=={version}" for name, version in self.system.installed.items()}
        host["torch"] = f"torch=={self.system.torch}"
        text = "\n".join(line for _, line in sorted({**host, **lines}.items()))
        return Lock(version_set=version_set, text=f"{text}\n")

    def install(self, lock: Lock) -> Environment | Evidence:
        """The set's environment, from the cache or newly made, held by the caller; or why it does not fit together."""
        root = self.cache / "envs" / f"{lock.digest}-{SYSTEM}"
        making = holds.exclusive(hold_path(root))
        try:
            if marked(root) is None:
                shutil.rmtree(root, ignore_errors=True)
                self.make(root, lock)
        finally:
            making.release()
        wrong = self.misfits(root)
        if wrong:
            return Evidence(phase=Phase.RESOLVE, reason=f"the wheels and the host do not fit together: {wrong[0]}")
        return Environment(
            key=lock.version_set.key,
            lock=lock.digest,
            backend=SYSTEM,
            root=root,
            installed=self.seen(root),
            notes=self.notes(lock.version_set),
            hold=holds.shared(hold_path(root)),
        )

    def make(self, root: Path, lock: Lock) -> None:
        """Lay the wheels of the lock over the host's packages.

        Raises:
            UserError: no environment can be made for the host's interpreter, or a wheel is not for it.
        """
        self.run("venv", "--python", self.system.python, root)
        files = [path for _, _, path in self.packed(lock.version_set)]
        self.run("pip", "install", "--python", root, "--offline", "--no-index", "--no-deps", *files)
        site = site_packages(root)
        (site / PTH).write_text("".join(f"{path}\n" for path in self.system.paths), encoding="utf-8")
        marker = {
            "schema": SCHEMA,
            "key": lock.version_set.key,
            "lock": lock.digest,
            "backend": SYSTEM,
            "python": self.system.minor,
            "runner": "",
            "installed": versions((str(site),)),
        }
        write_json(root / MARKER, marker)

    def run(self, *arguments: str | Path) -> None:
        done = self.uv(*arguments)
        if done.exit_code != 0:
            raise UserError(f"the wheels cannot be laid over {self.system.python}: {reason(done.log)}")

    def seen(self, root: Path) -> dict[str, str]:
        return {**versions((str(site_packages(root)), *self.system.paths)), "torch": self.system.torch}

    def misfits(self, root: Path) -> list[str]:
        """What one of the six packages needs, or what that needs in turn, and does not find."""
        there = by_name((str(site_packages(root)), *self.system.paths))
        found: list[str] = []
        waiting, known = list(PACKAGES), set(PACKAGES)
        while waiting:
            name = waiting.pop()
            for wanted in self.requirements(there[name]) if name in there else ():
                needed = canonicalize_name(wanted.name)
                version = there[needed].version if needed in there else ""
                if not version or not wanted.specifier.contains(version, prereleases=True):
                    found.append(f"{name} needs {wanted}, there is {version or 'none'}")
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

    def notes(self, version_set: VersionSet) -> tuple[str, ...]:
        brought = ", ".join(f"{name} {version}" for name, version, _ in self.packed(version_set))
        return (f"laid over the host's Python {self.system.version}: {brought}; the rest is as found there",)


def on_this_host(folder: Path, *, python: str, cache: Path, uv: Uv) -> Overlay:
    """The folder laid over the interpreter.

    Raises:
        UserError: the folder is no pack, or the interpreter has no torch or no pytest.
    """
    if not (folder / PACK).is_file():
        raise UserError(f"--offline {folder}: there is no {PACK} in it")
    return Overlay(folder=folder.absolute(), system=asked(python), cache=cache, uv=uv)


def asked(python: str, *, call: Call = processes.call) -> System:
    try:
        done = call([python, "-I", "-c", ASK], timeout_s=ASK_LIMIT_S)  # as an environment starts it
    except OSError as error:
        raise UserError(f"--system-python {python}: it does not start ({error.strerror})") from error
    try:
        told = json.loads(done.log.splitlines()[-1])
    except (IndexError, ValueError):
        raise UserError(f"--system-python {python}: it is no Python that works: {reason(done.log)}") from None
    found = System(python=python, version=told["version"], paths=tuple(told["paths"]), torch=told["torch"])
    lacking = [name for name in NEEDED if name not in found.installed]
    if lacking:
        raise UserError(f"--system-python {python}: it has no {', '.join(lacking)}")
    return found


def wheel(path: Path, *, at: str) -> tuple[str, str, Path]:
    try:
        name, version, _, _ = parse_wheel_filename(path.name)
    except InvalidWheelFilename as error:
        raise UserError(f"{at}: {error}") from error
    if not path.is_file():
        raise UserError(f"{at}: {path.name} is not in {path.parent}")
    return name, str(version), path


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def by_name(paths: tuple[str, ...]) -> dict[str, Distribution]:
    """What an interpreter with these folders on its path finds: the first of a name counts."""
    found: dict[str, Distribution] = {}
    for each in distributions(path=list(paths)):
        found.setdefault(canonicalize_name(each.name), each)
    return found


def versions(paths: tuple[str, ...]) -> dict[str, str]:
    return {name: each.version for name, each in sorted(by_name(paths).items())}
