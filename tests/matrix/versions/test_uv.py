"""Failures of uv are the machine's or the set's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from matrix.errors import UserError
from matrix.processes import Finished
from matrix.versions import uv

if TYPE_CHECKING:
    from pathlib import Path

NO_VERSION = """warning: `six-1.17.0-py2.py3-none-any.whl` is missing an upload date, but user provided: 2025-06-16
error: No solution found when resolving dependencies
  cause: Because there is no version of peft==99 and you require peft==99, we can conclude that your
         requirements are unsatisfiable.
"""
OLDER_UV = """  \u00d7 No solution found when resolving dependencies:
  ╰─▶ Because there is no version of peft==99 and you require peft==99, we can conclude that your
      requirements are unsatisfiable.
"""
HASH = "error: Failed to download `six==1.17.0`\n  cause: Hash mismatch for `six==1.17.0`\n"


def on_machine(tmp_path: Path, **environ: str) -> uv.Uv:
    return uv.on_this_machine(tmp_path, environ={"HOME": str(tmp_path), "PIP_CONFIG_FILE": "/dev/null", **environ})


@pytest.mark.parametrize("log", [NO_VERSION, OLDER_UV])
def test_the_resolvers_explanation_is_one_sentence(log: str) -> None:
    assert uv.reason(log) == (
        "No solution found when resolving dependencies: Because there is no version of peft==99 and you require"
        " peft==99, we can conclude that your requirements are unsatisfiable."
    )


@pytest.mark.parametrize(
    ("log", "sentence"),
    [
        ("error: Failed to fetch: `x`\n  cause: dns error", "the package index cannot be reached"),
        ("cause: failed to write to file `x`: No space left on device (os error 28)", "the disk is full"),
        ("cause: Network connectivity is disabled but the data was not in the cache", "uv is offline"),
        ("cause: failed to create file `x`: Permission denied (os error 13)", "permission denied"),
    ],
)
def test_failures_of_the_machine_are_bad_input(log: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        uv.blame_machine(Finished(exit_code=2, log=log), doing="installing 2025-09")


def test_a_timeout_is_bad_input() -> None:
    with pytest.raises(UserError, match="timed out"):
        uv.blame_machine(Finished(exit_code=None, log=""), doing="installing 2025-09")


@pytest.mark.parametrize("log", [NO_VERSION, HASH])
def test_failures_of_the_set_raise_nothing(log: str) -> None:
    uv.blame_machine(Finished(exit_code=1, log=log), doing="installing 2025-09")


def test_the_cache_of_uv_is_next_to_the_environments(tmp_path: Path) -> None:
    assert on_machine(tmp_path).cache == tmp_path / "uv"


def test_the_users_cache_is_used_if_named(tmp_path: Path) -> None:
    assert on_machine(tmp_path, UV_CACHE_DIR=str(tmp_path / "mine")).cache == tmp_path / "mine"


def test_interpreters_are_downloaded_only_if_the_user_allows_it(tmp_path: Path) -> None:
    assert on_machine(tmp_path).variables["UV_PYTHON_DOWNLOADS"] == "never"
    assert on_machine(tmp_path, UV_PYTHON_DOWNLOADS="auto").variables["UV_PYTHON_DOWNLOADS"] == "auto"


def test_an_active_environment_is_ignored(tmp_path: Path) -> None:
    assert "VIRTUAL_ENV" not in on_machine(tmp_path, VIRTUAL_ENV="/project/.venv").variables


def test_variables_that_change_versions_are_ignored(tmp_path: Path) -> None:
    assert "UV_EXCLUDE_NEWER" not in on_machine(tmp_path, UV_EXCLUDE_NEWER="2024-01-01").variables


def test_a_cache_that_cannot_be_created_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot be created"):
        uv.on_this_machine(tmp_path / "file", environ={"HOME": str(tmp_path)})


@pytest.mark.parametrize(
    ("environ", "dated"),
    [
        ({}, True),
        ({"PIP_INDEX_URL": "https://mirror.example/simple"}, True),
        ({"PIP_INDEX_URL": "file:///srv/simple"}, False),
        ({"UV_DEFAULT_INDEX": "/srv/simple"}, False),
        ({"PIP_NO_INDEX": "1"}, False),
    ],
)
def test_a_folder_of_files_has_no_dates(tmp_path: Path, environ: dict[str, str], *, dated: bool) -> None:
    assert on_machine(tmp_path, **environ).dated is dated


def test_a_uv_of_a_folder_knows_no_index(tmp_path: Path) -> None:
    variables = {"UV_DEFAULT_INDEX": "a", "UV_INDEX": "b", "UV_INDEX_STRATEGY": "c", "UV_FIND_LINKS": "d", "HOME": "e"}
    tool = uv.Uv(binary=tmp_path, workdir=tmp_path, variables=variables).from_folder(tmp_path)
    assert tool.variables == {"HOME": "e", "UV_OFFLINE": "1"}
    assert tool.index_arguments == ("--no-index", "--find-links", str(tmp_path))
