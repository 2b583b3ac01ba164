"""Notes which packages start threads while the stack is imported, for the reason why no rank can be forked then."""

from __future__ import annotations

import contextlib
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

PASSERS = ("cases", "importlib", "threading")  # packages that only pass an import or a start on


@contextlib.contextmanager
def noted() -> Iterator[list[str]]:
    """Yield a list that gets a line for each thread that starts inside, such as ``torch._inductor, for peft``."""
    lines: list[str] = []
    real = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        lines.append(starting_modules())
        real(thread)

    threading.Thread.start = start  # type: ignore[assignment, method-assign]
    try:
        yield lines
    finally:
        threading.Thread.start = real  # type: ignore[method-assign]


def starting_modules() -> str:
    """The module that starts a thread, and the package whose import led to it."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - a traceback does not state the names of modules
    names: list[str] = []
    package = ""
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name.startswith("importlib") and names:
            package = names[-1].partition(".")[0]  # of the outermost import at last
        if name.partition(".")[0] not in PASSERS:
            names.append(name)
        frame = frame.f_back
    return f"{names[0]}, for {package}" if package else names[0]
