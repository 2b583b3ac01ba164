"""Every finding has a short script of plain library code, and the published record is of the scripts in the tree."""

from __future__ import annotations

import ast
import sys

import pytest

from matrix.known import findings, script_runs
from matrix.known.script_runs import FILE, Answer
from tests.script_imports import imported

SHORT = 60
LIBRARIES = {"torch", "transformers", "peft", "bitsandbytes", "accelerate", "trl", "safetensors", "datasets"}
SCRIPTS = script_runs.scripts()
TABLE = {each.id: each for each in findings.load()}
RECORD = script_runs.read(script_runs.FOLDER.parents[2] / "reports" / "published" / "findings" / FILE)


def test_every_finding_has_a_script_and_every_script_a_finding() -> None:
    assert set(SCRIPTS) == set(TABLE)


def test_scripts_of_what_is_no_bug_are_in_a_folder_of_their_own() -> None:
    by_design = {name for name, row in TABLE.items() if not row.is_bug}
    assert {name for name in SCRIPTS if script_runs.place(name).startswith("by_design/")} == by_design


@pytest.mark.parametrize("finding", SCRIPTS)
def test_a_script_is_shorter_than_60_lines(finding: str) -> None:
    assert len(SCRIPTS[finding].read_text(encoding="utf-8").splitlines()) < SHORT


@pytest.mark.parametrize("finding", SCRIPTS)
def test_a_script_imports_only_the_libraries_and_the_standard_library(finding: str) -> None:
    assert set(imported(SCRIPTS[finding])) - LIBRARIES - sys.stdlib_module_names == set()


@pytest.mark.parametrize("finding", SCRIPTS)
def test_other_exceptions_than_the_finding_have_another_exit_code(finding: str) -> None:
    """Python's own exit code of an uncaught exception is 1, which would report the finding."""
    body = ast.parse(SCRIPTS[finding].read_text(encoding="utf-8")).body
    first = next(number for number, node in enumerate(body) if isinstance(node, ast.Assign))
    assert ast.unparse(body[first]).startswith("sys.excepthook = ")
    before = (node for node in body[1:first] if isinstance(node, ast.Import | ast.ImportFrom))
    assert {name for node in before for alias in node.names for name in [alias.name]} <= sys.stdlib_module_names


@pytest.mark.parametrize("finding", SCRIPTS)
def test_a_script_names_the_threads_of_its_finding_or_says_that_none_was_found(finding: str) -> None:
    row, head = TABLE[finding], ast.get_docstring(ast.parse(SCRIPTS[finding].read_text(encoding="utf-8"))) or ""
    if row.is_bug and not row.is_reported and row.searched is not None:
        assert f"No thread found on {row.searched.on}" in head
    else:
        assert any(name.rpartition("#")[0] in head for name in row.references)


@pytest.mark.parametrize("finding", SCRIPTS)
def test_the_published_runs_are_of_the_script_in_the_tree(finding: str) -> None:
    """To run it again: ``ftmatrix known --findings --reproduce --resume --out reports/published/findings``."""
    runs = RECORD.of(finding)
    assert runs
    assert {each.sha256 for each in runs} == {script_runs.digest(SCRIPTS[finding])}


@pytest.mark.parametrize("finding", SCRIPTS)
def test_a_script_that_could_run_showed_its_finding_somewhere(finding: str) -> None:
    answers = {each.answer for each in RECORD.of(finding)}
    assert Answer.SHOWN in answers or answers == {Answer.CANNOT_RUN}
