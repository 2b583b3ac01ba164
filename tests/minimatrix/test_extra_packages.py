"""Tests the packages that a user's script adds to a set, with real uv on the fake index."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from matrix.environments import extra_packages, provision
from matrix.environments.environment import Environment
from matrix.environments.extra_packages import ExtraPackages, unmet
from matrix.evidence import Evidence
from matrix.versions import locking, locks, sets, uv

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from matrix.versions.locks import Lock

    Install = Callable[..., ExtraPackages | Evidence]


@pytest.fixture
def lock(mini: Any) -> Lock:
    (good,) = sets.select(sets.load(mini.versions), "good")
    tool = uv.on_this_machine(mini.folder / "cache", environ=mini.variables)
    found = locking.read_or_resolve(good, uv=tool, folder=locks.locks_folder(mini.versions))
    assert isinstance(found, locks.Lock)
    return found


@pytest.fixture
def environment(mini: Any, lock: Lock) -> Iterator[Environment]:
    tool = uv.on_this_machine(mini.folder / "cache", environ=mini.variables)
    found = provision.install(lock, cache=mini.folder / "cache", uv=tool)
    assert isinstance(found, Environment)
    yield found
    found.release()


@pytest.fixture
def install(mini: Any, lock: Lock, environment: Environment) -> Install:
    def installed(*requirements: str) -> ExtraPackages | Evidence:
        tool = uv.on_this_machine(mini.folder / "cache", environ=mini.variables)
        cache = mini.folder / "cache"
        return extra_packages.install(requirements, root=environment.root, lock=lock, cache=cache, uv=tool)

    return installed


def test_packages_lie_beside_the_environment(install: Install, environment: Environment) -> None:
    found = install("torch", "tinymetrics==0.0.1")
    assert isinstance(found, ExtraPackages)
    assert found.versions == {"tinybase": "0.0.1", "tinymetrics": "0.0.1"}
    command = [str(environment.python), "-c", "import tinymetrics, torch; print(torch.__file__)"]
    with_folder = subprocess.run(
        command, env={"PYTHONPATH": str(found.folder)}, capture_output=True, text=True, check=True
    )
    assert with_folder.stdout.startswith(str(environment.root))
    assert subprocess.run(command, capture_output=True, check=False).returncode == 1


def test_packages_are_installed_once(install: Install) -> None:
    first = install("tinymetrics==0.0.1")
    assert isinstance(first, ExtraPackages)
    assert first.folder is not None
    before = first.folder.stat().st_ino
    assert install("tinymetrics==0.0.1") == first
    assert first.folder.stat().st_ino == before


def test_packages_of_the_set_need_no_folder(install: Install) -> None:
    assert install("torch", "peft>=0.0.1") == ExtraPackages()


def test_packages_that_do_not_fit_the_set_are_evidence(install: Install) -> None:
    found = install("tinymetrics==0.0.2")
    assert isinstance(found, Evidence)
    assert found.reason.startswith("the script's packages do not fit the set: ")
    assert "torch" in found.reason


@pytest.mark.parametrize(
    ("requirements", "python", "sentence"),
    [
        (["torch>=0.0.1", "elsewhere>=9"], "", ""),
        (["torch>=0.0.2"], "", "the script requires torch>=0.0.2; the set has 0.0.1"),
        (["torch>=0.0.2; python_version < '3'"], "", ""),
        ([], ">=4", "the script requires Python >=4; the set has"),
    ],
)
def test_a_set_with_another_version_does_not_meet_a_script(
    lock: Lock, requirements: list[str], python: str, sentence: str
) -> None:
    found = unmet(requirements, python, lock)
    assert found.startswith(sentence) and bool(found) == bool(sentence)  # noqa: PT018 - an empty start proves nothing
