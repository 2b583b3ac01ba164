"""uv with this machine's package configuration, and how to read its complaints.

It tells apart what only the machine can be blamed for (no network, a full disk: a ``UserError``) from what the
version set can be blamed for (an unresolvable pin: the caller makes it evidence).
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
COPYING: Final = (
    "UV_CACHE_DIR is on another file system than FTMATRIX_CACHE: files are copied, and take their space twice"
)

# The user's variables win where they say how to get at packages. These say which, or where to: a lock does that.
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
WHERE: Final = ("UV_INDEX", "UV_DEFAULT_INDEX", "UV_EXTRA_INDEX", "UV_FIND_LINKS", "UV_NO_INDEX")  # to look


@dataclass(frozen=True, slots=True, kw_only=True)
class Uv:
    """A command that looks for packages where pip on this machine would."""

    binary: Path
    workdir: Path  # neutral: a uv.toml or pyproject.toml of the user's folder must not change what is measured
    variables: Mapping[str, str]
    index_arguments: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    pass_fds: tuple[int, ...] = ()  # what uv is to hold open as well: a hold then lasts as long as an orphaned uv
    call: CommandRunner = field(default=processes.call, repr=False)

    @property
    def cache(self) -> Path:
        return Path(self.variables["UV_CACHE_DIR"])

    @property
    def dated(self) -> bool:
        """Whether the index can say what it offered on a date. A folder of files cannot: all of it counts."""
        default = self.variables.get("UV_DEFAULT_INDEX") or self.variables.get("UV_INDEX_URL")
        return "--no-index" not in self.index_arguments and not (default and indexes.local(default))

    def without_links(self) -> Uv:
        """Blind to find-links, whose files have no dates and yet are not hidden by one."""
        kept = {name: value for name, value in self.variables.items() if name != "UV_FIND_LINKS"}
        return replace(self, variables=kept)

    def from_folder(self, folder: Path) -> Uv:
        """Blind to everything but the wheels of a folder."""
        kept = {name: value for name, value in self.variables.items() if not name.startswith(WHERE)}
        variables = {**kept, "UV_OFFLINE": "1"}
        return replace(self, variables=variables, index_arguments=("--no-index", "--find-links", str(folder)))

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
        """``uv pip COMMAND`` of wheels only: building runs code, and ends as this machine's compilers have it."""
        return self("pip", command, "--no-build", *self.index_arguments, *arguments, timeout_s=timeout_s, extra=extra)

    def compile(
        self,
        requirements: Sequence[str],
        *arguments: str,
        timeout_s: float,
        extra: Mapping[str, str] | None = None,
    ) -> Finished:
        """``uv pip compile`` of requirement lines; what it resolved to is in the log."""
        plain = ("--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links")
        with self.listed(requirements) as wanted:
            return self.pip("compile", wanted, *plain, *arguments, timeout_s=timeout_s, extra=extra)

    @contextmanager
    def listed(self, requirements: Sequence[str]) -> Iterator[Path]:
        """A requirements file that lasts as long as its use."""
        self.workdir.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile("w", dir=self.workdir, suffix=".txt") as file:
            file.write("".join(f"{line}\n" for line in requirements))
            file.flush()
            yield Path(file.name)


def on_this_machine(
    cache: Path, *, environ: Mapping[str, str] | None = None, call: CommandRunner = processes.call
) -> Uv:
    """uv, its cache under ours: on the same file system, so that links work, and ours to evict from."""
    environ = os.environ if environ is None else environ
    translation = indexes.translate(indexes.pip_settings(environ), environ)
    ours = {
        "UV_CACHE_DIR": str(cache / "uv"),
        "UV_PYTHON_DOWNLOADS": "never",  # an interpreter nobody chose would be measured
        "UV_NO_PROGRESS": "1",
        "UV_NO_WRAP": "1",
        "NO_COLOR": "1",
    }
    variables = {**ours, **translation.variables, **environ}
    for name in DISTORTING:
        variables.pop(name, None)
    variables["UV_CACHE_DIR"] = str(Path(variables["UV_CACHE_DIR"]).expanduser().absolute())
    copying = not same_file_system(cache, Path(variables["UV_CACHE_DIR"]))
    if copying:  # uv would find out by itself, and warn once per environment
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
                f"{folder} cannot be made ({error.strerror}); let FTMATRIX_CACHE name a folder that can be written"
            ) from error
    return one.stat().st_dev == other.stat().st_dev


def binary(environ: Mapping[str, str]) -> Path:
    try:
        from uv import find_uv_bin

        return Path(find_uv_bin())
    except (ImportError, FileNotFoundError):
        found = shutil.which("uv", path=environ.get("PATH"))
    if found is None:
        raise UserError("uv is not installed, and it makes the environments: `python -m pip install uv` would do")
    return Path(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """A complaint of uv's that says nothing about the version set."""

    kind: str
    pattern: str
    sentence: str


TROUBLES: Final = (
    Trouble(
        kind="disk",
        pattern=r"No space left on device|Disk quota exceeded|os error (?:28|122)\b",
        sentence="the disk is full; free some space, or point FTMATRIX_CACHE at a larger disk",
    ),
    Trouble(
        kind="network",
        pattern=r"Network connectivity is disabled|network was disabled",
        sentence="uv may not use the network (offline), and not everything needed is in its cache; allow it once",
    ),
    Trouble(
        kind="network",
        pattern=r"Failed to fetch|error sending request|dns error|Connection refused|operation timed out",
        sentence="the package index cannot be reached; check the network and the proxy, or name an index that can be"
        " in pip's index-url or in UV_DEFAULT_INDEX",
    ),
    Trouble(
        kind="permission",
        pattern=r"Permission denied|Read-only file system|os error (?:13|30)\b",
        sentence="a file or folder may not be written; correct its permissions, or point FTMATRIX_CACHE elsewhere",
    ),
)


def blame_machine(done: Finished, *, doing: str, but: str = "") -> None:
    """Raise if uv failed for a reason that has nothing to do with what it was asked to install.

    ``but``: the kind of trouble that the caller has an answer to.
    """
    if done.exit_code is None:
        raise UserError(f"{doing}: uv did not finish in time and was ended; check the network, and run again")
    for trouble in TROUBLES:
        match = re.search(trouble.pattern, done.log)
        if match and trouble.kind != but:
            raise UserError(f"{doing}: {trouble.sentence} (uv: {line_of(done.log, match.start())})")


def line_of(log: str, position: int) -> str:
    start = log.rfind("\n", 0, position) + 1
    return readable(log[start:].split("\n", 1)[0]).removeprefix("cause: ")


def reason(log: str) -> str:
    """The explanation as one line of prose: no tree drawing, no warnings."""
    lines = [line for line in log.splitlines() if not line.startswith(("warning:", "Resolved ", "Using "))]
    starts = [number for number, line in enumerate(lines) if re.match(r"\s*\u00d7|error:", line)]
    return readable("\n".join(lines[starts[0] :] if starts else lines[-5:]))


def readable(text: str) -> str:
    prose = re.sub(r"[\u00d7\u2500-\u257f\u25b6]+", " ", text).strip().removeprefix("error:")
    return " ".join(re.sub(r":?\s*\n\s*cause:", ":", prose).split())
