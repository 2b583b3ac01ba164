"""Plain scripts need only torch, and the documentation names each."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from matrix.experiments import bench

ROOT = Path(bench.__file__).parents[2]
SCRIPTS = sorted((ROOT / "matrix" / "experiments" / "scripts").glob("*.py"))


def imported(tree: ast.AST) -> set[str]:
    """The top-level packages that a script imports anywhere."""
    nodes = list(ast.walk(tree))
    modules = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    modules |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    return {name.partition(".")[0] for name in modules}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_needs_only_torch(script: Path) -> None:
    found = imported(ast.parse(script.read_text(encoding="utf-8")))
    assert found - {"torch"} - sys.stdlib_module_names == set()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_the_documentation_links_a_script_and_it_explains_itself(script: Path) -> None:
    docs = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("*.md")))
    assert f"](../matrix/experiments/scripts/{script.name})" in docs
    helped = subprocess.run([sys.executable, script, "--help"], capture_output=True, text=True, check=False)
    assert helped.returncode == 0
    assert "--device {cuda,cpu}" in helped.stdout
