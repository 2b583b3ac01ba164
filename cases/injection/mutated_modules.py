"""Names the modules whose forward pass runs the code of a mutant: what a located deviation should name."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cases.checks import module_hooks
from cases.checks.module_hooks import WHOLE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from types import CodeType, FrameType

REQUESTED = "FTMATRIX_MUTATED_MODULES"  # the environment variable that asks for it
FACT = "modules with mutated code"
BUILT = "modules that mutated code constructs"  # those of them whose constructor ran it
SEPARATOR = " "
CONSTRUCTOR = "__init__"


@dataclass(frozen=True, eq=False)
class Unnamed:
    """A module under construction, the outermost frame of a module, and the classes that construct it."""

    module: Any
    outermost: FrameType
    classes: str


class ModuleFinder:
    """Collects the names of the innermost modules on the stack at the calls of some code.

    A module under construction has no name yet. It gets one when the outermost module on the stack is complete, or the
    names of the classes that construct it if it is never part of a model.
    """

    def __init__(self, codes: Collection[CodeType]) -> None:
        self.codes = frozenset(codes)
        self.names: dict[int, str] = {}  # by the id of a module, which is kept alive below
        self.found: dict[int, Any] = {}
        self.built: set[int] = set()
        self.waiting: list[Unnamed] = []

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the calls of this thread, which slows them down."""
        sys.setprofile(self.on_event)
        try:
            yield
        finally:
            sys.setprofile(None)
            self.names.update({id(each.module): each.classes for each in self.waiting})

    def on_event(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event == "return" and any(each.outermost is frame for each in self.waiting):
            self.name_waiting(frame)
        elif event == "call" and frame.f_code in self.codes:
            self.note(frame_modules(frame))

    def note(self, frames: list[tuple[FrameType, Any]]) -> None:
        if not frames or id(frames[0][1]) in self.found:
            return
        module, (outermost, root) = frames[0][1], frames[-1]
        self.found[id(module)] = module
        if any(each is module and frame.f_code.co_name == CONSTRUCTOR for frame, each in frames):
            self.built.add(id(module))
        name = name_in(root, module)
        if name is None:
            modules = [each for _, each in reversed(frames)]
            self.waiting.append(Unnamed(module, outermost, module_hooks.class_names(modules)))
        else:
            self.names[id(module)] = name

    def name_waiting(self, complete: FrameType) -> None:
        """Name the modules that waited for the end of a frame; those that are no part of its module wait on."""
        root = complete.f_locals["self"]
        for each in [each for each in self.waiting if each.outermost is complete]:
            name = name_in(root, each.module)
            if name is not None:
                self.names[id(each.module)] = name
                self.waiting.remove(each)

    def facts(self, stage: int) -> dict[str, str]:
        built = {name for number, name in self.names.items() if number in self.built}
        every = {FACT: set(self.names.values()), BUILT: built}
        return {f"{fact}, stage {stage}": SEPARATOR.join(sorted(names)) for fact, names in every.items()}


def name_in(model: Any, module: Any) -> str | None:
    """The name of a module in the model that runs it, as it is at the time: a merge takes modules out.

    None if the module is not part of the model, as long as that is under construction.
    """
    if not hasattr(model, "_modules"):  # not even torch's own constructor ran
        return None
    name = next((name for name, each in module_hooks.named_modules(model) if each is module), None)
    return WHOLE if name == "" else name


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
