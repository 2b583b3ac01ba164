"""The size of a finding: measured by a plain script on released models, exact for any model, or not measured yet."""

from __future__ import annotations

import ast
import sys
from typing import TYPE_CHECKING

import pytest

from matrix.errors import UserError
from matrix.known import findings
from matrix.known.error_size import FOLDER
from tests.matrix.known.test_findings import ROW, written
from tests.script_imports import imported

if TYPE_CHECKING:
    from pathlib import Path

SHARED = "released.py"
SCRIPTS = sorted(str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*.py") if path.name != SHARED)
SIZES = {each.id: each.size for each in findings.load() if each.size}
LIBRARIES = {
    "accelerate",
    "bitsandbytes",
    "datasets",
    "numpy",
    "peft",
    "safetensors",
    "torch",
    "transformers",
    "trl",
}
MEASURED = 'script = "sizes/a.py", shows = "2 % off", setting = "SmolLM-135M", versions = "peft 0.21.2"'


def test_every_bug_states_its_size() -> None:
    assert [each.id for each in findings.load() if each.is_bug and each.size is None] == []


def test_the_scripts_are_those_that_findings_name() -> None:
    assert {each.path for each in SIZES.values() if each.script} == set(SCRIPTS)


@pytest.mark.parametrize("script", [*SCRIPTS, SHARED])
def test_a_script_imports_only_libraries_and_the_released_sizes(script: str) -> None:
    found = set(imported(FOLDER / script))
    assert found - LIBRARIES - sys.stdlib_module_names - {"released"} == set()


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_says_what_it_measures_and_reports_it_with_the_versions(script: str) -> None:
    tree = ast.parse((FOLDER / script).read_text(encoding="utf-8"))
    calls = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    assert ast.get_docstring(tree)
    assert "report" in calls


@pytest.mark.parametrize(
    ("size", "sentence"),
    [
        ('same = "twice", unmeasured = "needs a GPU"', "size: state one of script=, same= and unmeasured="),
        ('shows = "2 % off"', "size: state one of script=, same= and unmeasured="),
        ('same = "twice", versions = "peft 0.21.2"', "size: a script needs shows=, setting=, versions= and day="),
        (MEASURED, "size: a script needs shows=, setting=, versions= and day="),
        (MEASURED.replace("sizes/", "../") + ", day = 2026-11-26", "size.script: String should match pattern"),
        (MEASURED + ', day = "once"', "size.day: "),
    ],
)
def test_an_incomplete_size_raises_a_user_error_of_one_line(tmp_path: Path, size: str, sentence: str) -> None:
    with pytest.raises(UserError) as refused:
        findings.load(written(tmp_path, f"{ROW}size = {{ {size} }}\n"))
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


def test_behaviour_that_is_no_bug_has_no_size(tmp_path: Path) -> None:
    by_design = ROW.replace('"bug"', '"by design"') + 'documented = "https://a.b/c"\nsize = { same = "twice" }\n'
    with pytest.raises(UserError, match="size= is for errors"):
        findings.load(written(tmp_path, by_design))


def test_a_script_with_arguments_is_the_file_before_them(tmp_path: Path) -> None:
    size = MEASURED.replace("a.py", "layers/a.py --method oft") + ", day = 2026-11-26"
    (row,) = findings.load(written(tmp_path, f"{ROW}size = {{ {size} }}\n"))
    assert row.size
    assert row.size.path == "layers/a.py"
