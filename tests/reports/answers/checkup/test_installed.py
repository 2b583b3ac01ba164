"""Versions are read from metadata, without importing packages or starting interpreters."""

from __future__ import annotations

import sys
import venv
from typing import TYPE_CHECKING, Any

import pytest

from matrix.environments.host import package_folders
from matrix.errors import UserError
from reports.answers.checkup import installed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PINS = {"torch": "2.8.0+cu128", "transformers": "4.56.1", "peft": "0.17.1"}


def put(packages: Path, name: str, version: str, *requires: str) -> None:
    folder = packages / f"{name}-{version}.dist-info"
    folder.mkdir(parents=True)
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {name}",
        f"Version: {version}",
        *(f"Requires-Dist: {r}" for r in requires),
    ]
    (folder / "METADATA").write_text("\n".join(lines) + "\n")


def read(given: Path | None = None, **options: Any) -> installed.Installed:
    return installed.read(given, inspect=package_folders, **options)


def packages_of(folder: Path) -> Path:
    return folder / "lib" / "python3.11" / "site-packages"


def test_a_virtual_environment_is_read_without_its_interpreter(environment: Callable[..., Path]) -> None:
    found = read(environment(PINS))
    assert (found.python, dict(found.versions)) == ("3.11.9", PINS)
    assert found.missing == ("bitsandbytes", "accelerate", "trl")


def test_the_path_of_an_interpreter_selects_its_environment(environment: Callable[..., Path]) -> None:
    assert dict(read(environment(PINS) / "bin" / "python").versions) == PINS


def test_a_real_virtual_environment_is_read(tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    short = f"python{sys.version_info.major}.{sys.version_info.minor}"
    put(tmp_path / "venv" / "lib" / short / "site-packages", "torch", "2.8.0")
    found = read(tmp_path / "venv" / "bin" / "python")
    assert (dict(found.versions), found.python) == ({"torch": "2.8.0"}, sys.version.split()[0])


def test_without_pyvenv_cfg_or_a_working_interpreter_the_folders_next_to_it_are_read(tmp_path: Path) -> None:
    """A conda environment whose interpreter does not start, as if copied from another machine."""
    put(packages_of(tmp_path), "torch", "2.8.0")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").write_bytes(b"\x7fELF of another machine")
    found = read(tmp_path)
    assert (dict(found.versions), found.python) == ({"torch": "2.8.0"}, "3.11")


def test_the_active_environment_is_the_default(environment: Callable[..., Path]) -> None:
    active = environment(PINS)
    assert dict(read(environ={"VIRTUAL_ENV": str(active)}).versions) == PINS
    assert dict(read(environ={"CONDA_PREFIX": str(active)}).versions) == PINS


def test_package_names_are_normalised(environment: Callable[..., Path]) -> None:
    folder = environment({})
    put(packages_of(folder), "BitsAndBytes", "0.47.0")
    assert dict(read(folder).versions) == {"bitsandbytes": "0.47.0"}


def test_an_interrupted_installation_is_reported(environment: Callable[..., Path]) -> None:
    folder = environment(PINS)
    put(packages_of(folder), "peft", "0.9.0")
    found = read(folder)
    assert found.versions["peft"] == "0.17.1"
    assert "peft is installed 2 times (0.9.0, 0.17.1)" in found.broken[0]


def test_an_unfulfilled_requirement_is_reported(environment: Callable[..., Path]) -> None:
    found = read(environment({"transformers": "4.44.2", "trl": "0.23.0"}, trl="transformers>=4.56"))
    assert found.conflicts == ("trl 0.23.0 requires transformers>=4.56, but 4.44.2 is installed",)


@pytest.mark.parametrize("need", ["torch>=9; extra == 'gpu'", "torch>=9; python_version < '3'", "!!", "torch>=2"])
def test_a_requirement_that_does_not_apply_is_no_conflict(environment: Callable[..., Path], need: str) -> None:
    assert read(environment({"torch": "2.8.0+cpu", "trl": "0.23.0"}, trl=need)).conflicts == ()


def test_packages_of_another_python_are_ignored(environment: Callable[..., Path]) -> None:
    folder = environment(PINS)
    put(folder / "lib" / "python3.9" / "site-packages", "trl", "0.7.0")
    assert "trl" not in read(folder).versions


def test_system_packages_are_read_if_the_environment_includes_them(tmp_path: Path) -> None:
    venv.create(tmp_path / "base", with_pip=False, symlinks=True)
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True, system_site_packages=True)
    packages = next((tmp_path / "venv" / "lib").glob("python3.*")) / "site-packages"
    put(packages, "torch", "2.8.0")
    assert read(tmp_path / "venv").versions["torch"] == "2.8.0"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: folder / "nowhere" / "python", "there is no such interpreter"),
        (lambda folder: folder, "no interpreter in this folder"),
        (lambda folder: written(folder / "python", "not a program"), "this Python interpreter does not start"),
    ],
    ids=["missing", "folder without", "no interpreter"],
)
def test_a_path_without_an_environment_is_refused(tmp_path: Path, make: Callable[[Path], Path], message: str) -> None:
    with pytest.raises(UserError, match=message):
        read(make(tmp_path))


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_an_environment_without_any_of_the_packages_is_refused(environment: Callable[..., Path]) -> None:
    with pytest.raises(UserError, match=r"none of torch, .* is installed there; give --python"):
        read(environment({"numpy": "2.0.0"}))


def test_a_machine_without_an_interpreter_is_refused() -> None:
    with pytest.raises(UserError, match="no active environment and no python3 on PATH"):
        read(environ={"PATH": "/nowhere"})
