"""`cases/` works when it is copied alone into an old environment: Python 3.10, and nothing but the standard library."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CASES = Path(__file__).parents[2] / "cases"
MODULES = sorted(path for path in CASES.glob("*.py"))
IN_PYTEST = {"conftest", "test_cells"}  # these run where pytest is
BLOCKS = (ast.ClassDef, ast.If, ast.Try, ast.With)
DECLARING = [f"cases.{path.stem}" for path in MODULES if path.stem not in IN_PYTEST and path.stem != "__init__"]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_a_module_parses_as_python_3_10(path: Path) -> None:
    ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 10))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_a_module_imports_the_standard_library_and_its_siblings(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    allowed = sys.stdlib_module_names | {"cases"} | ({"pytest"} if path.stem in IN_PYTEST else set())
    assert set(imported(tree.body)) <= allowed


def imported(statements: list[ast.stmt]) -> list[str]:
    """Top-level packages that importing the module imports, without those under TYPE_CHECKING."""
    found: list[str] = []
    for statement in statements:
        if isinstance(statement, ast.Import):
            found += [alias.name.partition(".")[0] for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom):
            found.append((statement.module or "").partition(".")[0])
        elif isinstance(statement, BLOCKS) and "TYPE_CHECKING" not in ast.unparse(statement):
            found += imported(statement.body)
    return found


def pythons() -> list[str]:
    """Interpreters of the oldest Python that cases/ has to run on."""
    by_pyenv = sorted((Path.home() / ".pyenv" / "versions").glob("3.10*/bin/python"))
    on_path = [shutil.which("python3.10"), *map(str, by_pyenv)]
    return [python for python in on_path if python and works(python)]


def works(python: str) -> bool:
    return subprocess.run([python, "-c", ""], check=False, capture_output=True).returncode == 0


def test_it_imports_on_python_3_10_alone(tmp_path: Path) -> None:
    if not pythons():
        pytest.skip("no Python 3.10 on this machine")
    shutil.copytree(CASES, tmp_path / "cases", ignore=shutil.ignore_patterns("__pycache__"))
    command = [pythons()[0], "-I", "-c", f"import sys; sys.path.insert(0, '.'); import {', '.join(DECLARING)}"]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True, env={**os.environ})
    assert (done.returncode, done.stderr) == (0, "")
