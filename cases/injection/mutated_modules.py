"""Names the modules whose forward pass runs the code of a mutant: what a located deviation should name."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

from cases.checks.module_names import ModuleNames

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from types import CodeType, FrameType

REQUESTED = "FTMATRIX_MUTATED_MODULES"  # the environment variable that asks for it
FACT = "modules with mutated code"
BUILT = "modules that mutated code constructs"  # those of them whose constructor ran it
SEPARATOR = " "
CONSTRUCTOR = "__init__"


class ModuleFinder:
    """Collects the names of the innermost modules on the stack at the calls of some code."""

    def __init__(self, codes: Collection[CodeType]) -> None:
        self.codes = frozenset(codes)
        self.modules = ModuleNames()
        self.built: set[int] = set()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the calls of this thread, which slows them down."""
        sys.setprofile(self.on_event)
        try:
            yield
        finally:
            sys.setprofile(None)
            self.modules.settle()

    def on_event(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event == "return" and self.modules.waiting:
            self.modules.end_of(frame)
        elif event == "call" and frame.f_code in self.codes:
            self.note(frame_modules(frame))

    def note(self, frames: list[tuple[FrameType, Any]]) -> None:
        if not frames or id(module := frames[0][1]) in self.modules.known:
            return
        if any(each is module and frame.f_code.co_name == CONSTRUCTOR for frame, each in frames):
            self.built.add(id(module))
        self.modules.add(frames)

    def facts(self, stage: int) -> dict[str, str]:
        names = self.modules.names
        built = {name for number, name in names.items() if number in self.built}
        every = {FACT: set(names.values()), BUILT: built}
        return {f"{fact}, stage {stage}": SEPARATOR.join(sorted(names)) for fact, names in every.items()}


def frame_modules(frame: FrameType | None) -> list[tuple[FrameType, Any]]:
    """The frames of modules' methods on the stack, the innermost first, each with its module."""
    from torch.nn import Module

    found = []
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, Module):
            found.append((frame, owner))
        frame = frame.f_back
    return found


@contextlib.contextmanager
def reported(reporter: Any, rank: int, stage: int, codes: Collection[CodeType]) -> Iterator[None]:
    """Report the modules in which rank 0 runs the code, also if it raises."""
    if rank != 0 or not codes:
        yield
        return
    finder = ModuleFinder(codes)
    try:
        with finder.watching():
            yield
    finally:
        reporter.facts(finder.facts(stage))
