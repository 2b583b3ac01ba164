"""Interpreters of this machine state their version, package folders and build of torch."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from matrix.environments.host import inspect_interpreter, package_folders
from matrix.errors import UserError
from matrix.processes import Finished

if TYPE_CHECKING:
    from collections.abc import Sequence

TORCH = {"torch": "2.11.0"}
TORCH_AND_PYTEST = {**TORCH, "pytest": "9.0.0", "pytest-xdist": "3.8.0"}


def answer(folder: Path, packages: dict[str, str]) -> Finished:
    """The output of an interpreter that has these packages."""
    for name, version in packages.items():
        (folder / f"{name}-{version}.dist-info").mkdir()
        text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        (folder / f"{name}-{version}.dist-info" / "METADATA").write_text(text, encoding="utf-8")
    found = {"version": "3.12.3", "paths": [str(folder)], "torch": "2.11.0+cu130"}
    return Finished(exit_code=0, log=json.dumps(found))


def test_an_interpreter_is_inspected_without_the_callers_pythonpath(tmp_path: Path) -> None:
    commands: list[Sequence[str]] = []

    def call(argv: Sequence[str], **_: Any) -> Finished:
        commands.append(argv)
        return answer(tmp_path, TORCH_AND_PYTEST)

    assert inspect_interpreter("python3", call=call).torch == "2.11.0+cu130"
    assert "-I" in commands[0]


def test_a_host_without_torch_or_pytest_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--system-python python3: .*python3 has no torch, pytest, pytest-xdist; name"):
        inspect_interpreter("python3", call=lambda *_, **__: answer(tmp_path, {}))


def test_a_host_needs_no_pytest_if_the_pack_has_it(tmp_path: Path) -> None:
    found = inspect_interpreter("python3", runners=["3.12"], call=lambda *_, **__: answer(tmp_path, TORCH))
    assert found.torch == "2.11.0+cu130"


def test_the_packs_pytest_must_be_for_the_hosts_python(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no pytest, pytest-xdist"):
        inspect_interpreter("python3", runners=["3.11"], call=lambda *_, **__: answer(tmp_path, TORCH))


@pytest.mark.parametrize(("python", "sentence"), [("/no/such/python", "it does not start"), ("true", "not a working")])
def test_an_interpreter_that_does_not_work_is_bad_input(python: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        inspect_interpreter(python)


def test_an_interpreter_states_its_package_folders() -> None:
    found = package_folders(Path(sys.executable))
    assert found is not None
    assert found.version == sys.version.split()[0]
    assert any(folder.name in {"site-packages", "dist-packages"} for folder in found.folders)  # the latter on Debian


@pytest.mark.parametrize("python", ["/no/such/python", "/bin/true"])
def test_an_interpreter_that_does_not_start_has_no_package_folders(python: str) -> None:
    assert package_folders(Path(python)) is None
