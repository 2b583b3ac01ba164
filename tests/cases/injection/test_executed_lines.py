"""Executed lines are recorded for the stack, and for nothing else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from cases.injection.executed_lines import LineRecorder, parsed_spans, recorded_place, spans

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = """
def absolute(x):
    if x < 0:
        return -x
    return x
"""


def a_function(path: str) -> Any:
    found: dict[str, Any] = {}
    exec(compile(SOURCE, path, "exec"), found)  # noqa: S102 - as if imported from there
    return found["absolute"]


def test_only_executed_lines_are_recorded(tmp_path: Path) -> None:
    absolute, recorder = a_function("/env/lib/site-packages/peft/layer.py"), LineRecorder()
    with recorder.recording():
        absolute(2)
    absolute(-2)
    recorder.write(tmp_path / "case" / "0-0.json")
    written = json.loads((tmp_path / "case" / "0-0.json").read_text())
    assert written == {"root": "/env/lib/site-packages", "files": {"peft/layer.py": "3,5"}}


def test_an_error_ends_the_recording() -> None:
    absolute, recorder = a_function("/env/lib/site-packages/peft/layer.py"), LineRecorder()
    with pytest.raises(TypeError), recorder.recording():
        absolute("text")
    absolute(1)
    assert recorder.files()[1] == {"peft/layer.py": {3}}


@pytest.mark.parametrize(
    ("file", "recorded"),
    [
        ("transformers/trainer.py", True),
        ("torch/optim/sgd.py", True),
        ("torch/nn/modules/linear.py", False),
        ("numpy/linalg/linalg.py", False),
    ],
)
def test_the_recorded_files_are_those_of_the_stack(file: str, recorded: bool) -> None:  # noqa: FBT001 - a row
    assert (recorded_place(f"/env/site-packages/{file}") is not None) == recorded


@pytest.mark.parametrize("lines", [set(), {7}, {1, 2, 3, 9, 11, 12}])
def test_spans_read_back(lines: set[int]) -> None:
    assert parsed_spans(spans(lines)) == lines
