"""Reports which modules of the case code a process imports: the code that its outcome depends on.

A module is reported when its import begins, so a process that crashes has reported all that it used.
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Report = Callable[[Sequence[str]], None]

FILE = "FTMATRIX_MODULES"  # names the file in which the processes of a user's script note their modules
FOLDER = Path(__file__).parents[2]  # of the copy of ``cases/``, and of the modules that the harness put next to it


class Recorder(MetaPathFinder):
    """Finds no module, but sees the name of each that is looked for."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.packages = {"cases", *(path.stem for path in FOLDER.glob("*.py"))}

    def find_spec(self, name: str, *_: object) -> None:
        if self.is_ours(name):
            self.report([name])

    def is_ours(self, name: str) -> bool:
        return name.partition(".")[0] in self.packages


def record(report: Report) -> None:
    """Report the modules that this process has imported so far, and from now on each as its import begins."""
    recorder = Recorder(report)
    sys.meta_path.insert(0, recorder)
    report([name for name in list(sys.modules) if recorder.is_ours(name)])


def note_in(path: Path) -> Report:
    """Append modules to a file, one on each line."""

    def report(names: Sequence[str]) -> None:
        with path.open("a") as file:
            file.write("".join(f"{name}\n" for name in names))

    return report


def file_beside(path: Path | str) -> Path:
    """The file in which a companion notes the modules that it imports to compute a file."""
    return Path(f"{path}.modules")


def noted_in(path: Path) -> set[str]:
    """The modules in a file that ``note_in`` wrote; none if there is no file."""
    return set(path.read_text().split()) if path.exists() else set()
