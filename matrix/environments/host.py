"""Inspects interpreters of this machine by starting them: versions, package folders, and the build of torch."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import TYPE_CHECKING, Final

from packaging.utils import canonicalize_name

from matrix import processes
from matrix.errors import UserError
from matrix.versions.uv import reason

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from matrix.processes import CommandRunner

START_LIMIT_S: Final = 60.0
FOLDERS_LIMIT_S: Final = 10.0
REQUIRED: Final = ("torch", "pytest", "pytest-xdist")
# torch is not imported: a file of it states the build.
INSPECT_TORCH: Final = """
import glob, importlib.util, json, runpy, sys
found = importlib.util.find_spec("torch")
build = runpy.run_path(found.submodule_search_locations[0] + "/version.py")["__version__"] if found else ""
paths = [path for path in sys.path if path and glob.glob(glob.escape(path) + "/*.dist-info")]
print(json.dumps({"version": sys.version.split()[0], "paths": paths, "torch": str(build)}))
"""
INSPECT_FOLDERS: Final = """
import json, platform, sys, sysconfig
folders = {sysconfig.get_paths()[name] for name in ("purelib", "platlib")}
print(json.dumps([platform.python_version(), sorted(folders), sys.prefix]))
"""


@dataclass(frozen=True, kw_only=True)
class HostInterpreter:
    """An interpreter of the host that has torch.

    Attributes:
        python: the interpreter, as the user names it.
        version: such as ``3.12.3``.
        paths: the folders of its packages.
        torch: version and build, such as ``2.11.0+cu130``.
    """

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


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageFolders:
    """Folders that an interpreter takes packages from, its version, and ``sys.prefix``."""

    version: str
    folders: tuple[Path, ...]
    prefix: Path


def inspect_interpreter(
    python: str, *, runners: Collection[str] = (), call: CommandRunner = processes.call
) -> HostInterpreter:
    """The interpreter of ``--system-python``.

    Args:
        python: a path or a command.
        runners: minor versions of Python that need no pytest of the host.
        call: runs the interpreter.

    Raises:
        UserError: it does not start, or has no torch or no pytest.
    """
    try:
        result = call([python, "-I", "-c", INSPECT_TORCH], timeout_s=START_LIMIT_S)  # isolated, as environments start
    except OSError as error:
        raise UserError(f"--system-python {python}: it does not start ({error.strerror})") from error
    try:
        answer = json.loads(result.log.splitlines()[-1])
    except (IndexError, ValueError):
        raise UserError(f"--system-python {python}: not a working Python: {reason(result.log)}") from None
    host = HostInterpreter(
        python=python, version=answer["version"], paths=tuple(answer["paths"]), torch=answer["torch"]
    )
    required = REQUIRED[:1] if host.minor in runners else REQUIRED
    missing = [name for name in required if name not in host.installed]
    if missing:
        path = shutil.which(python) or python  # the bare name may be another interpreter than the user thinks
        raise UserError(
            f"--system-python {python}: {path} has no {', '.join(missing)}; name the interpreter that has torch"
        )
    return host


def package_folders(python: Path, *, call: CommandRunner = processes.call) -> PackageFolders | None:
    """The folders that an interpreter takes packages from; None if it does not start."""
    try:
        result = call([str(python), "-I", "-S", "-c", INSPECT_FOLDERS], timeout_s=FOLDERS_LIMIT_S)
        version, folders, prefix = json.loads(result.log.splitlines()[-1])
    except (OSError, ValueError, IndexError):
        return None
    return PackageFolders(version=version, folders=tuple(Path(each) for each in folders), prefix=Path(prefix))


def by_name(paths: tuple[str, ...]) -> dict[str, Distribution]:
    """The distribution of each name that an interpreter with these folders on its path finds: the first one."""
    packages: dict[str, Distribution] = {}
    for each in distributions(path=list(paths)):
        packages.setdefault(canonicalize_name(each.name), each)
    return packages


def versions(paths: tuple[str, ...]) -> dict[str, str]:
    return {name: each.version for name, each in sorted(by_name(paths).items())}
