"""Runs the noxfile of docs/upstream.md and the script of the action in another repository, on the fake ecosystem."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ruamel.yaml import YAML

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
SNIPPET = re.compile(r"<!-- snippet: begin -->\n+```python\n(.*?)```\n+<!-- snippet: end -->", re.DOTALL)
DRIVER = Path(__file__).with_name("drive_replaced.py")
OPTIONS = ("--device", "cpu", "--torch-backend", "pypi")
# Stands for the wheel of this project, whose dependencies the fake index lacks: the command is the one under test.
STUB = """
import os
import sys

def main():
    os.environ.pop("PIP_NO_INDEX")
    os.environ.pop("PIP_FIND_LINKS")
    words = sys.argv[1:] + ["--versions", {versions!r}]
    os.execv({python!r}, [{python!r}, {driver!r}, *words])
"""


@pytest.fixture
def variables(mini: Any) -> dict[str, str]:
    """The environment of a command in another repository; pip finds one package, ftmatrix."""
    folder: Path = mini.folder / "wheels"
    folder.mkdir()
    info = "ftmatrix-0.0.1.dist-info"
    stub = STUB.format(versions=str(mini.versions), python=sys.executable, driver=str(DRIVER))
    files = {
        "ftmatrix_stub.py": stub,
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: ftmatrix\nVersion: 0.0.1\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: minimatrix\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\nftmatrix = ftmatrix_stub:main\n",
    }
    with zipfile.ZipFile(folder / "ftmatrix-0.0.1-py3-none-any.whl", "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
        archive.writestr(f"{info}/RECORD", "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"]))
    return {**mini.variables, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder)}


@pytest.fixture
def changed(checkout: Callable[..., Any]) -> Any:
    """A checkout of peft whose change makes a cell red."""
    peft = checkout("peft")
    peft.change("SCALE = 2.0\n")
    return peft


def test_the_noxfile_of_the_documentation_compares_a_checkout(changed: Any, variables: dict[str, str]) -> None:
    found = SNIPPET.search((ROOT / "docs" / "upstream.md").read_text(encoding="utf-8"))
    assert found is not None
    code = found[1].replace('python="3.11"', f'python="{sys.version_info.major}.{sys.version_info.minor}"')
    assert len(code.split("\n\n\n")[1].splitlines()) <= 10
    changed.write("noxfile.py", code)
    command = [sys.executable, "-m", "nox", "-s", "compatibility", "--", "--base", "good", *OPTIONS]
    done = run(command, changed.folder, variables)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Regressed (1)" in done.stdout


def test_the_script_of_the_action_writes_the_summary_of_the_job(
    mini: Any, changed: Any, variables: dict[str, str]
) -> None:
    action: Any = YAML(typ="safe").load((ROOT / "action.yml").read_text(encoding="utf-8"))
    script = action["runs"]["steps"][-1]
    defaults = {f"inputs.{name}": str(each["default"]) for name, each in action["inputs"].items()}
    defaults |= {"steps.python.outputs.python-path": sys.executable, "inputs.torch-backend": "pypi"}
    defaults |= {"inputs.device": "cpu", "inputs.base": "good"}
    inputs = {name: value.removeprefix("${{ ").removesuffix(" }}") for name, value in script["env"].items()}
    github = {
        "RUNNER_TEMP": str(mini.folder / "runner"),
        "GITHUB_ACTION_PATH": "ftmatrix",  # the wheel of the fixture instead of the folder of the action
        "GITHUB_STEP_SUMMARY": str(mini.folder / "summary.md"),
    }
    environ = {**variables, **{name: defaults[value] for name, value in inputs.items()}, **github}
    done = run(["bash", "-eo", "pipefail", "-c", script["run"]], changed.folder, environ)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "## Regressed (1)" in (mini.folder / "summary.md").read_text()


def run(command: list[str], folder: Path, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=False, capture_output=True, text=True, cwd=folder, env=environ, timeout=400)
