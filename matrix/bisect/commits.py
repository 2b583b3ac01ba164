"""Bisects the commits of a pure-Python package between two of its releases."""

from __future__ import annotations

import tarfile
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from cases.space.plural import counted
from cases.space.verdict import Phase
from matrix import processes
from matrix.bisect.answer import CommitRange
from matrix.bisect.boundary import find_boundary
from matrix.bisect.candidate import MixedEnvironment
from matrix.bisect.unpacked import FOLDER
from matrix.environments.pytest_runner import remove_folder
from matrix.errors import UserError
from matrix.evidence import Evidence
from matrix.keys import moved_key
from matrix.versions.locks import Lock, distribution, statements
from matrix.versions.uv import reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matrix.bisect.answer import Culprit
    from matrix.bisect.search import Bisection
    from matrix.bisect.state import State

GIT_LIMIT_S: Final = 600.0
CLONE_LIMIT_S: Final = 1800.0  # transformers has more than a gigabyte
SHORT: Final = 12  # digits of a commit in names


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
    """A local git repository; ``url`` is that of which it is a copy."""

    folder: Path
    url: str = ""

    @property
    def place(self) -> str:
        """Where the user said it is."""
        return self.url or str(self.folder)

    def culprit_of(self, packages: Sequence[str]) -> int:
        """The number of the package that the repository is of, by its name; the first if the name tells nothing."""
        name = canonicalize_name(project(self.place))
        return packages.index(name) if name in packages else 0

    def git(self, *arguments: str) -> str:
        """The output of a git command.

        Raises:
            UserError: git fails.
        """
        done = processes.call(["git", "-C", str(self.folder), *arguments], timeout_s=GIT_LIMIT_S)
        if done.exit_code != 0:
            raise UserError(f"--git {self.place}: git {arguments[0]} failed: {done.log.strip()[-200:]}")
        return done.log

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
            raise UserError(f"--git {self.place}: no tag of {package} {version}; fetch the tags, or leave --git out")
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
            file.extractall(folder, filter="data")
        archive.unlink()


def opened(place: str, *, cache: Path) -> Repository:
    """A repository on this machine; one at a URL is cloned into the cache.

    Raises:
        UserError: it cannot be cloned.
    """
    if Path(place).expanduser().exists():
        return Repository(folder=Path(place).expanduser().absolute())
    digest = sha256(place.encode()).hexdigest()[:12]  # forks have the same name
    folder = cache / FOLDER / f"{project(place)}-{digest}.git"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        done = processes.call(["git", "clone", "--bare", place, str(folder)], timeout_s=CLONE_LIMIT_S)
        if done.exit_code != 0:
            remove_folder(folder)
            raise UserError(f"--git {place}: cannot be cloned: {done.log.strip()[-200:]}")
    return Repository(folder=folder, url=place)


def tagged_version(tag: str, package: str) -> Version | None:
    """The version that a tag such as ``v0.18.0.rc0`` or ``peft-0.18.0`` names; None if it names none."""
    try:
        return Version(tag.removeprefix("release-").removeprefix(f"{package}-"))
    except InvalidVersion:
        return None


def project(place: str) -> str:
    """The name of a repository: the last part of its URL or folder."""
    return place.rstrip("/").rpartition("/")[2].removesuffix(".git")


def first_bad_commit(bisection: Bisection, culprit: Culprit, lock: Lock, repository: Repository) -> CommitRange:
    """The commit between the last good and the first bad release that made the cell red, or that repaired it.

    Args:
        bisection: the search, whose runner tests the commits.
        culprit: the package with its releases.
        lock: that of the first red candidate; the commits replace the package in it.
        repository: of the package.

    Raises:
        UserError: the repository lacks the releases, or both are the same commit.
    """
    tags = [repository.tag(culprit.package, each) for each in (culprit.last_good, culprit.first_bad)]
    path = repository.path(*tags)
    shas = path.shas
    if len(shas) == 1:
        raise UserError(f"--git: {' and '.join(tags)} of {culprit.package} are the same commit; leave --git out")
    bisection.say(f"{culprit.package}: {counted(len(shas) - 1, 'commit')} from {tags[0]} to {tags[1]}")

    def test(indices: Sequence[int]) -> dict[int, State]:
        tested = {each: of_commit(bisection, culprit.package, lock, repository, shas[each]) for each in indices}
        states = bisection.test("commits", list(tested.values()))
        return {each: states[candidate.key] for each, candidate in tested.items()}

    found = find_boundary(len(shas), test, width=bisection.runner.width)
    repairs = path.is_repair(found.first_bad)
    named = shas[found.last_good if repairs else found.first_bad]
    title, _, day = repository.git("show", "-s", "--format=%s%n%cs", named).strip().rpartition("\n")
    return CommitRange(
        last_good=shas[found.last_good],
        first_bad=shas[found.first_bad],
        title=title,
        committed=day,
        repair=repairs,
        untestable=tuple(shas[each] for each in found.untestable),
    )


def of_commit(bisection: Bisection, package: str, lock: Lock, repository: Repository, commit: str) -> MixedEnvironment:
    """A candidate with the package built from a commit."""
    base = lock.version_set
    key = moved_key(bisection.good.candidate.key, {package: f"0.git.{commit[:SHORT]}"})
    version_set = replace(base, key=key, why=f"{package} at {commit}")
    label = f"{package} at {commit[:SHORT]}"
    folder = built(bisection, package, repository, commit)
    if isinstance(folder, Evidence):
        return MixedEnvironment(label=label, version_set=version_set, lock=folder)
    rest = [line for line in statements(lock.text) if distribution(line) != package]
    text = "\n".join(sorted([*rest, f"{package}==0+git.{commit}"])) + "\n"
    return MixedEnvironment(
        label=label, version_set=version_set, lock=Lock(version_set=version_set, text=text), built={package: folder}
    )


def built(bisection: Bisection, package: str, repository: Repository, commit: str) -> Path | Evidence:
    """The folder with the package built from a commit, without its dependencies."""
    ctx, root = bisection.runner.ctx, bisection.runner.ends[0].root
    folder = ctx.cache / FOLDER / f"{package}-git-{commit[:SHORT]}"
    bisection.runner.folders.add(folder)
    if folder.is_dir():
        return folder
    source, new = folder.with_name(f"{folder.name}.source"), folder.with_name(f"{folder.name}.new")
    for each in (source, new):
        remove_folder(each)
    try:
        repository.export(commit, source)
        target = ("--python", root, "--target", new, "--no-deps", source)
        result = ctx.uv("pip", "install", *ctx.uv.index_arguments, *target)
        if result.exit_code == 0:
            new.rename(folder)
            return folder
    finally:
        remove_folder(source)
        remove_folder(new)
    return Evidence(phase=Phase.INSTALL, reason=reason(result.log), exit_code=result.exit_code, log=result.log)
