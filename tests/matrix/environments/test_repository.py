"""The path between two releases in a repository, and the repository at a URL."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from matrix.environments.repository import Repository, opened, tagged_version
from matrix.errors import UserError

NAMES = {f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def git(folder: Path, *words: str) -> str:
    command = ["git", "-C", str(folder), *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin", **NAMES})
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """A main line a, b, c, d, and a branch from b with the patch release 1.0.1; 1.0 is a, and 1.1 is d."""
    folder = tmp_path / "peft"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch", "main")
    for name in "abcd":
        git(folder, "commit", "--quiet", "--allow-empty", "--message", name)
    git(folder, "tag", "v1.0", "main~3")
    git(folder, "tag", "v1.1", "main")
    git(folder, "checkout", "--quiet", "-b", "patch", "main~2")
    git(folder, "commit", "--quiet", "--allow-empty", "--message", "p")
    git(folder, "tag", "v1.0.1")
    return Repository(folder=folder, option=f"--git {folder}")


def titles(repository: Repository, good: str, bad: str) -> str:
    shas = repository.path(good, bad).shas
    return "".join(git(repository.folder, "show", "-s", "--format=%s", each) for each in shas)


@pytest.mark.parametrize(
    ("good", "bad", "path", "back"),
    [
        ("v1.0", "v1.1", "abcd", 0),
        ("v1.1", "v1.0", "dcba", 3),
        ("v1.0.1", "v1.1", "pbcd", 1),
        ("v1.1", "v1.0.1", "dcbp", 2),
    ],
)
def test_a_path_leads_over_the_commit_at_which_branches_part(
    repository: Repository, good: str, bad: str, path: str, back: int
) -> None:
    found = repository.path(good, bad)
    assert (titles(repository, good, bad), found.back) == (path, back)


def test_a_bad_parent_of_a_good_commit_means_that_the_good_one_is_a_repair(repository: Repository) -> None:
    path = repository.path("v1.1", "v1.0.1")  # d, c, b, p
    assert [path.is_repair(first_bad) for first_bad in (1, 2, 3)] == [True, True, False]


def test_releases_without_a_common_history_are_one_sentence(repository: Repository) -> None:
    git(repository.folder, "checkout", "--quiet", "--orphan", "other")
    git(repository.folder, "commit", "--quiet", "--allow-empty", "--message", "o")
    git(repository.folder, "tag", "v2.0")
    with pytest.raises(UserError, match="git merge-base failed"):
        repository.path("v1.0", "v2.0")


def test_a_copy_of_a_url_gets_tags_that_are_newer_than_it(repository: Repository, tmp_path: Path) -> None:
    url = f"file://{repository.folder}"
    copy = opened(url, parent=tmp_path / "cache")
    git(repository.folder, "checkout", "--quiet", "main")
    git(repository.folder, "commit", "--quiet", "--allow-empty", "--message", "e")
    git(repository.folder, "tag", "v1.2")
    again = opened(url, parent=tmp_path / "cache")
    assert (again, again.tag("peft", "1.2")) == (copy, "v1.2")
    assert titles(again, "v1.1", "v1.2") == "de"


def test_a_release_without_a_tag_is_one_sentence(repository: Repository, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no tag of peft 9\.9; fetch the tags"):
        opened(f"file://{repository.folder}", parent=tmp_path / "cache").tag("peft", "9.9")


def test_forks_have_copies_of_their_own(repository: Repository, tmp_path: Path) -> None:
    fork = tmp_path / "fork" / "peft"
    git(tmp_path, "clone", "--quiet", str(repository.folder), str(fork))
    copies = [opened(f"file://{each}", parent=tmp_path / "cache").folder for each in (repository.folder, fork)]
    assert len({*copies}) == 2


@pytest.mark.parametrize(
    ("place", "number"),
    [
        ("https://github.com/huggingface/transformers.git", 1),
        ("git@github.com:me/peft", 0),
        ("ssh://host/src/flash_attn/", 2),
        ("https://example.org/mirror", 0),
    ],
)
def test_a_repository_belongs_to_the_culprit_of_its_name(place: str, number: int) -> None:
    repository = Repository(folder=Path("/cache/x.git"), option=f"--git {place}", url=place)
    assert repository.culprit_of(["peft", "transformers", "flash-attn"]) == number


@pytest.mark.parametrize("tag", ["v0.18.0.rc0", "0.18.0rc0", "peft-v0.18.0rc0", "release-0.18.0-rc0"])
def test_a_tag_is_read_as_a_version(tag: str) -> None:
    assert str(tagged_version(tag, "peft")) == "0.18.0rc0"


def test_a_tag_of_something_else_is_no_version() -> None:
    assert tagged_version("continuous-release_main", "bitsandbytes") is None
