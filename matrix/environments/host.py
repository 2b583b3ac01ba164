"""A host's interpreter that has packages of its own: which they are, and the build of its torch."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import Distribution, distributions
from typing import TYPE_CHECKING, Final

from packaging.utils import canonicalize_name

from matrix import processes
from matrix.errors import UserError
from matrix.versions.uv import reason

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from matrix.processes import Call

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


def asked(python: str, *, runners: Collection[str] = (), call: Call = processes.call) -> System:
    """The interpreter that somebody named. ``runners``: the Pythons for which pytest need not be there.

    Raises:
        UserError: it does not work, or has no torch or no pytest.
    """
    try:
        done = call([python, "-I", "-c", ASK], timeout_s=ASK_LIMIT_S)  # as an environment starts it
    except OSError as error:
        raise UserError(f"--system-python {python}: it does not start ({error.strerror})") from error
    try:
        told = json.loads(done.log.splitlines()[-1])
    except (IndexError, ValueError):
        raise UserError(f"--system-python {python}: it is no Python that works: {reason(done.log)}") from None
    found = System(python=python, version=told["version"], paths=tuple(told["paths"]), torch=told["torch"])
    needed = NEEDED[:1] if found.minor in runners else NEEDED
    lacking = [name for name in needed if name not in found.installed]
    if lacking:
        where = shutil.which(python) or python  # its name alone may be of another than one thinks
        raise UserError(
            f"--system-python {python}: {where} has no {', '.join(lacking)}; name the interpreter that has torch"
        )
    return found


def by_name(paths: tuple[str, ...]) -> dict[str, Distribution]:
    """What an interpreter with these folders on its path finds: the first of a name counts."""
    found: dict[str, Distribution] = {}
    for each in distributions(path=list(paths)):
        found.setdefault(canonicalize_name(each.name), each)
    return found


def versions(paths: tuple[str, ...]) -> dict[str, str]:
    return {name: each.version for name, each in sorted(by_name(paths).items())}
