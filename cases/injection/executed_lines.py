"""Records which lines of the stack a process executes, for ``ftmatrix mutate``.

``sys.settrace`` works on every supported Python. Frames of other files cost one call each, so a cell takes about twice
its usual time.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import CodeType, FrameType

# Paths below site-packages. Of torch, only what the strategies and optimisers run: tensors are not under test here.
RECORDED = re.compile(
    r"(transformers|peft|accelerate|trl|bitsandbytes)/.*"
    r"|torch/(distributed|optim|amp|nn/parallel|nn/utils|utils/data)/.*|torch/utils/checkpoint\.py"
)
ROOT = re.compile(r"(.*/(?:site|dist)-packages)/(.*)")


def recorded_place(filename: str) -> tuple[str, str] | None:
    """The folder of the packages, and the path below it, of a file whose lines are recorded; None for any other."""
    found = ROOT.fullmatch(filename)
    return (found[1], found[2]) if found and RECORDED.fullmatch(found[2]) else None


class LineRecorder:
    """Collects executed lines by code object."""

    def __init__(self) -> None:
        self.tracers: dict[CodeType, Any] = {}
        self.lines: dict[CodeType, set[int]] = {}

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Record in this thread and in those that it starts."""
        threading.settrace(self.on_call)
        sys.settrace(self.on_call)
        try:
            yield
        finally:
            sys.settrace(None)
            threading.settrace(None)

    def on_call(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        code = frame.f_code
        if code not in self.tracers:
            self.tracers[code] = self.tracer(code)
        return self.tracers[code]

    def tracer(self, code: CodeType) -> Any:
        """The function that Python calls for each line of this code; None if its lines are not recorded."""
        if recorded_place(code.co_filename) is None:
            return None
        lines = self.lines.setdefault(code, set())

        def on_line(frame: FrameType, event: str, _argument: Any) -> Any:
            if event == "line":
                lines.add(frame.f_lineno)
            return on_line

        return on_line

    def files(self) -> tuple[str, dict[str, set[int]]]:
        """The folder of the packages, and the executed lines by file."""
        root = ""
        files: dict[str, set[int]] = {}
        for code, lines in self.lines.items():
            found = recorded_place(code.co_filename)
            if found and lines:
                root = found[0]
                files.setdefault(found[1], set()).update(lines)
        return root, files

    def write(self, path: Path) -> None:
        root, files = self.files()
        path.parent.mkdir(parents=True, exist_ok=True)
        found = {"root": root, "files": {name: spans(lines) for name, lines in sorted(files.items())}}
        path.write_text(json.dumps(found), encoding="utf-8")


def recorded_file(folder: Path, case: str, stage: int, rank: int) -> Path:
    """The file with the executed lines of one rank."""
    return folder / case / f"{stage}-{rank}.json"


def spans(lines: set[int]) -> str:
    """Lines as text, e.g. ``3-5,9``."""
    found: list[list[int]] = []
    for line in sorted(lines):
        if found and line == found[-1][1] + 1:
            found[-1][1] = line
        else:
            found.append([line, line])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in found)


def parsed_spans(text: str) -> set[int]:
    """The lines that ``spans`` wrote."""
    pairs = (span.partition("-") for span in text.split(",") if span)
    return {line for first, _, last in pairs for line in range(int(first), int(last or first) + 1)}
