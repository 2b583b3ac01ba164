"""Plain scripts need only torch, and the documentation names each."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from matrix.experiments import bench
from tests.script_imports import imported

ROOT = Path(bench.__file__).parents[2]
SCRIPTS = sorted((ROOT / "matrix" / "experiments" / "scripts").glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_needs_only_torch(script: Path) -> None:
    assert set(imported(script)) - {"torch"} - sys.stdlib_module_names == set()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_the_documentation_links_a_script_and_it_explains_itself(script: Path) -> None:
    docs = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("*.md")))
    assert f"](../matrix/experiments/scripts/{script.name})" in docs
    helped = subprocess.run([sys.executable, script, "--help"], capture_output=True, text=True, check=False)
    assert helped.returncode == 0
    assert "--device {cuda,cpu}" in helped.stdout
