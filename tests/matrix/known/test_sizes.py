"""Scripts measure the size of findings on models of released sizes; the note of each finding names its script."""

from __future__ import annotations

import sys

import pytest

from matrix.known import findings, script_runs
from tests.script_imports import imported

FOLDER = script_runs.FOLDER.with_name("sizes")
SHARED = "released"
SCRIPTS = {path.stem: path for path in sorted(FOLDER.glob("*.py")) if path.stem != SHARED}
NOTES = {each.id: each.note for each in findings.load()}
LIBRARIES = {"torch", "transformers", "peft"}


@pytest.mark.parametrize("finding", SCRIPTS)
def test_the_note_of_a_finding_names_the_script_of_its_size(finding: str) -> None:
    assert f"sizes/{finding}.py" in NOTES[finding]


def test_a_note_names_no_script_that_does_not_exist() -> None:
    assert {finding for finding, note in NOTES.items() if "sizes/" in note} == set(SCRIPTS)


@pytest.mark.parametrize("finding", [*SCRIPTS, SHARED])
def test_a_script_imports_only_libraries_and_the_released_sizes(finding: str) -> None:
    found = set(imported(FOLDER / f"{finding}.py"))
    assert found - LIBRARIES - sys.stdlib_module_names - {SHARED} == set()
