"""Imports point one way: noxfile, reports, matrix, and of `cases` only what declares."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parents[1]
LAYERS = ("noxfile", "reports", "matrix", "cases")  # each may import what stands behind it
STACK = {"torch", "transformers", "peft", "bitsandbytes", "accelerate", "trl"}
MODULES = [HERE / "noxfile.py", *(path for layer in LAYERS[1:] for path in sorted((HERE / layer).rglob("*.py")))]


def imports(path: Path) -> Iterator[str]:
    """Every module that a file names in an import, at whatever depth it stands."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def layer(path: Path) -> str:
    return path.relative_to(HERE).parts[0].removesuffix(".py")


def name(path: Path) -> str:
    return str(path.relative_to(HERE))


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_a_module_imports_only_from_its_layer_and_those_below(path: Path) -> None:
    above = LAYERS[: LAYERS.index(layer(path))]
    assert [module for module in imports(path) if module.partition(".")[0] in above] == []


@pytest.mark.parametrize("path", [path for path in MODULES if layer(path) != "cases"], ids=name)
def test_only_cases_meet_the_stack(path: Path) -> None:
    assert [module for module in imports(path) if module.partition(".")[0] in STACK] == []


def test_sessions_import_nothing_of_ours() -> None:
    """They run in nox's environment, where the package is not installed."""
    assert [module for module in imports(HERE / "noxfile.py") if module.partition(".")[0] in LAYERS] == []


def test_the_command_starts_without_the_stack() -> None:
    hidden = "; ".join(f"sys.modules[{package!r}] = None" for package in sorted(STACK))  # importing these raises
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; {hidden}; import reports.cli, cases.suite, cases.checks.engagement"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
