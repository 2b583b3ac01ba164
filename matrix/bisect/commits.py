"""Bisects the commits of a pure-Python package between two of its releases."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from cases.space.plural import counted
from cases.space.verdict import Phase
from matrix.bisect.answer import CommitRange
from matrix.bisect.boundary import find_boundary
from matrix.bisect.candidate import MixedEnvironment
from matrix.environments.pytest_runner import remove_folder
from matrix.errors import UserError
from matrix.evidence import Evidence
from matrix.keys import moved_key
from matrix.versions.locks import Lock, distribution, statements
from matrix.versions.uv import reason

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matrix.bisect.answer import Culprit
    from matrix.bisect.search import Bisection
    from matrix.bisect.state import State
    from matrix.environments.repository import Repository

SHORT: Final = 12  # digits of a commit in names


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
        states = bisection.test("commits", list(tested.values()), bisection.rate.repeats)
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
    folder = bisection.runner.packages_folder / f"{package}-git-{commit[:SHORT]}"
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
