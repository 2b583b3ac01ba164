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
    """Collects the innermost module on the stack at each call of some code, and the models that were called."""

    def __init__(self, codes: Collection[CodeType]) -> None:
        self.codes = frozenset(codes)
        self.found: dict[int, Any] = {}
        self.models: dict[int, Any] = {}

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the calls of this thread. It slows them down by about a half."""
        sys.setprofile(self.on_event)
        try:
            yield
        finally:
            sys.setprofile(None)

    def on_event(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event != "call" or frame.f_code not in self.codes:
            return
        modules = modules_of(frame)
        if modules:
            self.found.setdefault(id(modules[0]), modules[0])
            self.models.setdefault(id(modules[-1]), modules[-1])

    def names(self) -> list[str]:
        """The names of the modules in the outermost model that has them; without one they have no name."""
        known: dict[int, str] = {}
        for model in self.models.values():
            for path, module in model.named_modules():
                name = module_name(path)
                known[id(module)] = max(known.get(id(module), ""), name, key=len)
        return sorted({known.get(each, "") or WHOLE for each in self.found})


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
        reporter.facts({f"{FACT}, stage {stage}": SEPARATOR.join(finder.names())})
