"""Runs uv with this machine's package configuration, and reads its error messages.

Failures of the machine, such as no network or a full disk, raise ``UserError``. Failures of the version set, such as an
unresolvable pin, are left to the caller, which makes them evidence.
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Final

from matrix import processes
from matrix.errors import UserError
from matrix.versions import indexes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from matrix.processes import CommandRunner, Finished

INSTALL_LIMIT_S: Final = 3600.0
CACHE_CLEAN_LIMIT_S: Final = 600.0
QUICK_S: Final = 60.0
COPYING: Final = "UV_CACHE_DIR is on another file system than FTMATRIX_CACHE: files are copied and use twice the space"

# uv inherits the user's variables, such as proxies and indexes. These would change what a lock determines.
DISTORTING: Final = (
    "CONDA_PREFIX",
    "UV_CONSTRAINT",
    "UV_EXCLUDE",
    "UV_EXCLUDE_NEWER",
    "UV_OVERRIDE",
    "UV_PRERELEASE",
    "UV_PYTHON",
    "UV_RESOLUTION",
    "UV_SYSTEM_PYTHON",
    "UV_TORCH_BACKEND",
    "VIRTUAL_ENV",
)
INDEX_VARIABLES: Final = ("UV_INDEX", "UV_DEFAULT_INDEX", "UV_EXTRA_INDEX", "UV_FIND_LINKS", "UV_NO_INDEX")


@dataclass(frozen=True, slots=True, kw_only=True)
class Uv:
    """The uv command, with the indexes that pip on this machine uses.

    Attributes:
        binary: the executable.
        workdir: its working folder, which has no uv.toml or pyproject.toml.
        variables: its environment.
        index_arguments: arguments that choose the index.
        notes: remarks for the user.
        pass_fds: file descriptors that uv keeps open, so that an orphaned uv keeps the lease of its environment.
        call: runs the command.
    """

    binary: Path
    workdir: Path
    variables: Mapping[str, str]
    index_arguments: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    pass_fds: tuple[int, ...] = ()
    call: CommandRunner = field(default=processes.call, repr=False)

    @property
    def cache(self) -> Path:
        return Path(self.variables["UV_CACHE_DIR"])

    @property
    def dated(self) -> bool:
        """True if the index states upload dates. A folder of files does not."""
        default = self.variables.get("UV_DEFAULT_INDEX") or self.variables.get("UV_INDEX_URL")
        return "--no-index" not in self.index_arguments and not (default and indexes.local_folder(default))

    def without_links(self) -> Uv:
        """A uv that ignores find-links, whose undated files ``--exclude-newer`` would not hide."""
        variables = {name: value for name, value in self.variables.items() if name != "UV_FIND_LINKS"}
        return replace(self, variables=variables)

    def from_folder(self, folder: Path) -> Uv:
        """A uv that sees only the wheels of a folder."""
        variables = {name: value for name, value in self.variables.items() if not name.startswith(INDEX_VARIABLES)}
        return replace(
            self,
            variables={**variables, "UV_OFFLINE": "1"},
            index_arguments=("--no-index", "--find-links", str(folder)),
        )

    def __call__(
        self, *arguments: str | Path, timeout_s: float = INSTALL_LIMIT_S, extra: Mapping[str, str] | None = None
    ) -> Finished:
        self.workdir.mkdir(parents=True, exist_ok=True)
        argv = [str(self.binary), *map(str, arguments)]
        env = {**self.variables, **(extra or {})}
        return self.call(argv, timeout_s=timeout_s, env=env, cwd=self.workdir, pass_fds=self.pass_fds)

    def pip(
        self,
        command: str,
        *arguments: str | Path,
        timeout_s: float = INSTALL_LIMIT_S,
        extra: Mapping[str, str] | None = None,
    ) -> Finished:
        """``uv pip COMMAND`` with wheels only: the result of a build depends on this machine's compilers."""
        return self("pip", command, "--no-build", *self.index_arguments, *arguments, timeout_s=timeout_s, extra=extra)

    def default_index(self) -> str:
        """Return the address of the default index: of the variables, of a configuration file, or uv's own.

        Empty if uv uses none.

        Raises:
            UserError: uv cannot state it.
        """
        stated = self.variables.get("UV_DEFAULT_INDEX") or self.variables.get("UV_INDEX_URL")
        if stated:  # uv masks passwords when it states the address
            return stated
        with self.requirements_file(()) as nothing:
            finished = self.pip("compile", nothing, "--no-header", "--emit-index-url", "--offline", timeout_s=QUICK_S)
        if finished.exit_code != 0:
            raise UserError(f"uv cannot state its default index: {finished.log.strip()[-300:]}")
        found = re.search(r"^--index-url (\S+)", finished.log, re.MULTILINE)
        return found[1] if found else ""

    def compile(
        self,
        requirements: Sequence[str],
        *arguments: str,
        timeout_s: float,
        extra: Mapping[str, str] | None = None,
    ) -> Finished:
        """``uv pip compile`` of requirement lines; its log has the resolved versions."""
        plain = ("--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links")
        with self.requirements_file(requirements) as path:
            return self.pip("compile", path, *plain, *arguments, timeout_s=timeout_s, extra=extra)

    @contextmanager
    def requirements_file(self, requirements: Sequence[str]) -> Iterator[Path]:
        """A temporary requirements file."""
        self.workdir.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile("w", dir=self.workdir, suffix=".txt") as file:
            file.write("".join(f"{line}\n" for line in requirements))
            file.flush()
            yield Path(file.name)


def on_this_machine(
    cache: Path, *, environ: Mapping[str, str] | None = None, call: CommandRunner = processes.call
) -> Uv:
    """The uv of this machine. Its cache is in ours by default, so hard links work and packages can be evicted."""
    environ = os.environ if environ is None else environ
    translation = indexes.translate(indexes.pip_settings(environ), environ)
    ours = {
        "UV_CACHE_DIR": str(cache / "uv"),
        "UV_PYTHON_DOWNLOADS": "never",  # measure only interpreters that the user installed
        "UV_NO_PROGRESS": "1",
        "UV_NO_WRAP": "1",
        "NO_COLOR": "1",
    }
    variables = {**ours, **translation.variables, **environ}
    for name in DISTORTING:
        variables.pop(name, None)
    variables["UV_CACHE_DIR"] = str(Path(variables["UV_CACHE_DIR"]).expanduser().absolute())
    copying = not same_file_system(cache, Path(variables["UV_CACHE_DIR"]))
    if copying:  # otherwise uv warns once per environment
        variables.setdefault("UV_LINK_MODE", "copy")
    return Uv(
        binary=binary(environ),
        workdir=cache / "work",
        variables=variables,
        index_arguments=translation.arguments,
        notes=(*translation.notes, *((COPYING,) if copying else ())),
        call=call,
    )


def same_file_system(one: Path, other: Path) -> bool:
    for folder in (one, other):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"{folder} cannot be created ({error.strerror}); set FTMATRIX_CACHE to a writable directory"
            ) from error
    return one.stat().st_dev == other.stat().st_dev


def binary(environ: Mapping[str, str]) -> Path:
    try:
        from uv import find_uv_bin

        return Path(find_uv_bin())
    except (ImportError, FileNotFoundError):
        path = shutil.which("uv", path=environ.get("PATH"))
    if path is None:
        raise UserError("uv, which creates the environments, is not installed; run `python -m pip install uv`")
    return Path(path)


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFailure:
    """A failure that uv reports and that has nothing to do with the version set.

    ``pattern`` recognises it in uv's output; ``sentence`` tells the user what to do.
    """

    kind: str
    pattern: str
    sentence: str


MACHINE_FAILURES: Final = (
    MachineFailure(
        kind="disk",
        pattern=r"No space left on device|Disk quota exceeded|os error (?:28|122)\b",
        sentence="the disk is full; free some space, or set FTMATRIX_CACHE to a larger disk",
    ),
    MachineFailure(
        kind="network",
        pattern=r"Network connectivity is disabled|network was disabled",
        sentence="uv is offline and lacks packages in its cache; allow the network once",
    ),
    MachineFailure(
        kind="network",
        pattern=r"Failed to fetch|error sending request|dns error|Connection refused|operation timed out",
        sentence="the package index cannot be reached; check the network and the proxy, or set another index with pip's"
        " index-url or UV_DEFAULT_INDEX",
    ),
    MachineFailure(
        kind="permission",
        pattern=r"Permission denied|Read-only file system|os error (?:13|30)\b",
        sentence="permission denied; correct the permissions, or set FTMATRIX_CACHE to a writable directory",
    ),
)


def blame_machine(result: Finished, *, doing: str, ignore: str = "") -> None:
    """Raise if uv failed for a reason that has nothing to do with the requested packages.

    ``ignore`` is a kind of failure that the caller handles.

    Raises:
        UserError: the machine is at fault.
    """
    if result.exit_code is None:
        raise UserError(f"{doing}: uv timed out; check the network and run again")
    for failure in MACHINE_FAILURES:
        match = re.search(failure.pattern, result.log)
        if match and failure.kind != ignore:
            raise UserError(f"{doing}: {failure.sentence} (uv: {line_of(result.log, match.start())})")


def line_of(log: str, position: int) -> str:
    start = log.rfind("\n", 0, position) + 1
    return readable(log[start:].split("\n", 1)[0]).removeprefix("cause: ")


def reason(log: str) -> str:
    """The explanation of uv as one line of prose, without tree drawing and warnings."""
    lines = [line for line in log.splitlines() if not line.startswith(("warning:", "Resolved ", "Using "))]
    starts = [number for number, line in enumerate(lines) if re.match(r"\s*\u00d7|error:", line)]
    return readable("\n".join(lines[starts[0] :] if starts else lines[-5:]))


def readable(text: str) -> str:
    prose = re.sub(r"[\u00d7\u2500-\u257f\u25b6]+", " ", text).strip().removeprefix("error:")
    return " ".join(re.sub(r":?\s*\n\s*cause:", ":", prose).split())
