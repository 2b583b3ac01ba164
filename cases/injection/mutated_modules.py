"""Names the modules whose forward pass runs the code of a mutant: what a located deviation should name."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

from cases.checks.module_hooks import module_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from types import CodeType, FrameType

REQUESTED = "FTMATRIX_MUTATED_MODULES"  # the environment variable that asks for it
FACT = "modules with mutated code"
SEPARATOR = " "
WHOLE = "(model)"  # instead of an empty name


class ModuleFinder:
    """Collects the names of the innermost modules on the stack at the calls of some code."""

    def __init__(self, codes: Collection[CodeType]) -> None:
        self.codes = frozenset(codes)
        self.names: dict[int, str] = {}  # by the id of a module, which is kept alive below
        self.found: list[Any] = []

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the calls of this thread, which slows them down."""
        sys.setprofile(self.on_event)
        try:
            yield
        finally:
            sys.setprofile(None)

    def on_event(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event != "call" or frame.f_code not in self.codes:
            return
        modules = modules_of(frame)
        if modules and id(modules[0]) not in self.names:
            self.names[id(modules[0])] = name_in(modules[-1], modules[0])
            self.found.append(modules[0])


def name_in(model: Any, module: Any) -> str:
    """The name of a module in the model that runs it, as it is at the time: a merge takes modules out."""
    path = next((path for path, each in model.named_modules() if each is module), "")
    in_tuner = path.startswith("model.model.")  # a tuner merges itself, outside of the model that PEFT puts around it
    return module_name(f"base_model.{path}" if in_tuner else path) or WHOLE


def modules_of(frame: FrameType | None) -> list[Any]:
    """The modules whose methods are on the stack, the innermost first."""
    from torch.nn import Module

    found = []
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, Module):
            found.append(owner)
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
        reporter.facts({f"{FACT}, stage {stage}": SEPARATOR.join(sorted(set(finder.names.values())))})
