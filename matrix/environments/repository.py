"""Git repositories on this machine: their tags and commits, and the files of a commit."""

from __future__ import annotations

import os
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from matrix import processes
from matrix.environments.pytest_runner import remove_folder
from matrix.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matrix.processes import Finished

GIT_LIMIT_S: Final = 600.0


@dataclass(frozen=True, kw_only=True)
class Repository:
    """A local git repository. ``option`` is the option that names it, for error messages."""

    folder: Path
    option: str

    def git(self, *arguments: str) -> str:
        """The output of a git command.

        Raises:
            UserError: git fails.
        """
        done = git(["-C", str(self.folder), *arguments])
        if done.exit_code != 0:
            raise UserError(f"{self.option}: git {arguments[0]} failed: {failure_message(done.log)}")
        return done.log

    def has(self, commit: str) -> bool:
        """Return whether the repository has a commit, named by all of its digits."""
        is_whole = len(commit) in {40, 64}  # SHA-1, SHA-256
        return is_whole and git(["-C", str(self.folder), "cat-file", "-e", f"{commit}^{{commit}}"]).exit_code == 0

    def tag(self, package: str, version: str) -> str:
        """The tag of a release.

        Raises:
            UserError: there is none.
        """
        tags = set(self.git("tag").split())
        for name in (f"v{version}", version, f"{package}-{version}", f"{package}-v{version}", f"release-{version}"):
            if name in tags:
                return name
        raise UserError(f"{self.option}: no tag of {package} {version}; fetch the tags, or leave --git out")

    def commits(self, good: str, bad: str) -> list[str]:
        """The commits of the main line after one tag up to another, oldest first."""
        return self.git("rev-list", "--reverse", "--first-parent", f"{good}..{bad}").split()

    def export(self, commit: str, folder: Path) -> None:
        folder.mkdir(parents=True)
        archive = folder.with_suffix(".tar")
        self.git("archive", "--format=tar", f"--output={archive}", commit)
        with tarfile.open(archive) as file:
            file.extractall(folder, filter="data")
        archive.unlink()


def opened(place: str, *, parent: Path) -> Repository:
    """The repository of ``--git`` on this machine; one at a URL is cloned into the folder ``parent``.

    Raises:
        UserError: it cannot be cloned.
    """
    option = f"--git {place}"
    if Path(place).expanduser().exists():
        return Repository(folder=Path(place).expanduser().absolute(), option=option)
    folder = parent / f"{place.rstrip('/').rpartition('/')[2].removesuffix('.git')}.git"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        done = git(["clone", "--bare", place, str(folder)])
        if done.exit_code != 0:
            remove_folder(folder)
            raise UserError(f"{option}: cannot be cloned: {failure_message(done.log)}")
    return Repository(folder=folder, option=option)


def git(arguments: Sequence[str]) -> Finished:
    """Run git without prompts, on folders of any owner.

    Raises:
        UserError: git is not installed.
    """
    environ = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    try:
        # In a container, a mounted checkout belongs to another user, which git refuses by default.
        return processes.call(["git", "-c", "safe.directory=*", *arguments], timeout_s=GIT_LIMIT_S, env=environ)
    except FileNotFoundError:
        raise UserError("git is not installed; install it") from None


def failure_message(log: str) -> str:
    """The message of a failed git command, without hints."""
    lines = [line.strip() for line in log.splitlines() if line.strip() and not line.startswith("hint:")]
    fatal = [line.removeprefix("fatal: ") for line in lines if line.startswith(("fatal:", "error:"))]
    return (fatal or lines or ["no message"])[0][-200:]
