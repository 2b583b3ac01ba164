"""Git repositories on this machine: their tags and commits, and the files of a commit."""

from __future__ import annotations

import os
import tarfile
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from matrix import processes
from matrix.environments.pytest_runner import remove_folder
from matrix.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matrix.processes import Finished

GIT_LIMIT_S: Final = 600.0
CLONE_LIMIT_S: Final = 1800.0  # transformers has more than a gigabyte


@dataclass(frozen=True, kw_only=True)
class CommitPath:
    """Neighbouring commits from a good one to a bad one: first ``back`` steps to parents, then steps to children.

    Releases often are on branches of their own. The path then leads over the commit at which the branches part.
    """

    shas: tuple[str, ...]
    back: int

    def is_repair(self, first_bad: int) -> bool:
        """Tell if a commit is bad because it is older than the last good one, which repaired the package."""
        return first_bad <= self.back


@dataclass(frozen=True, kw_only=True)
class Repository:
    """A local git repository.

    ``option`` is the option that names it, for error messages; ``url`` is that of which it is a copy.
    """

    folder: Path
    option: str
    url: str = ""

    def culprit_of(self, packages: Sequence[str]) -> int:
        """The number of the package that the repository is of, by its name; the first if the name tells nothing."""
        name = canonicalize_name(project(self.url or str(self.folder)))
        return packages.index(name) if name in packages else 0

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
        """The tag of a release; a copy that lacks it is brought up to date.

        Raises:
            UserError: there is none.
        """
        found = self.known_tag(package, version)
        if not found and self.url:
            self.git("fetch", "--quiet", "--tags", self.url, "+refs/heads/*:refs/heads/*")
            found = self.known_tag(package, version)
        if not found:
            raise UserError(f"{self.option}: no tag of {package} {version}; fetch the tags, or leave --git out")
        return found

    def known_tag(self, package: str, version: str) -> str:
        tags = self.git("tag").split()
        return next((each for each in tags if tagged_version(each, package) == Version(version)), "")

    def path(self, good: str, bad: str) -> CommitPath:
        """The commits between two tags along the main line of each.

        Raises:
            UserError: the tags have no common history.
        """
        parting = self.git("merge-base", good, bad).strip()
        back = self.git("rev-list", "--first-parent", f"{parting}..{good}").split()
        forth = self.git("rev-list", "--reverse", "--first-parent", f"{parting}..{bad}").split()
        return CommitPath(shas=(*back, parting, *forth), back=len(back))

    def export(self, commit: str, folder: Path) -> None:
        folder.mkdir(parents=True)
        archive = folder.with_suffix(".tar")
        self.git("archive", "--format=tar", f"--output={archive}", commit)
        with tarfile.open(archive) as file:
            if hasattr(tarfile, "data_filter"):
                file.extractall(folder, filter="data")
            else:  # Python before 3.11.4
                file.extractall(folder)  # noqa: S202 - git made the archive, from the repository that the user named
        archive.unlink()


def opened(place: str, *, parent: Path) -> Repository:
    """The repository of ``--git`` on this machine; one at a URL is cloned into the folder ``parent``.

    Raises:
        UserError: it cannot be cloned.
    """
    option = f"--git {place}"
    if Path(place).expanduser().exists():
        return Repository(folder=Path(place).expanduser().absolute(), option=option)
    digest = sha256(place.encode()).hexdigest()[:12]  # forks have the same name
    folder = parent / f"{project(place)}-{digest}.git"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        done = git(["clone", "--bare", place, str(folder)], timeout_s=CLONE_LIMIT_S)
        if done.exit_code != 0:
            remove_folder(folder)
            raise UserError(f"{option}: cannot be cloned: {failure_message(done.log)}")
    return Repository(folder=folder, option=option, url=place)


def tagged_version(tag: str, package: str) -> Version | None:
    """The version that a tag such as ``v0.18.0.rc0`` or ``peft-0.18.0`` names; None if it names none."""
    try:
        return Version(tag.removeprefix("release-").removeprefix(f"{package}-"))
    except InvalidVersion:
        return None


def project(place: str) -> str:
    """The name of a repository: the last part of its URL or folder."""
    return place.rstrip("/").rpartition("/")[2].removesuffix(".git")


def git(arguments: Sequence[str], *, timeout_s: float = GIT_LIMIT_S) -> Finished:
    """Run git without prompts, on folders of any owner.

    Raises:
        UserError: git is not installed.
    """
    environ = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    try:
        # In a container, a mounted checkout belongs to another user, which git refuses by default.
        return processes.call(["git", "-c", "safe.directory=*", *arguments], timeout_s=timeout_s, env=environ)
    except FileNotFoundError:
        raise UserError("git is not installed; install it") from None


def failure_message(log: str) -> str:
    """The message of a failed git command, without hints."""
    lines = [line.strip() for line in log.splitlines() if line.strip() and not line.startswith("hint:")]
    fatal = [line.removeprefix("fatal: ") for line in lines if line.startswith(("fatal:", "error:"))]
    return (fatal or lines or ["no message"])[0][-200:]
