"""Names modules by the outermost module that runs or constructs them, as those are found on the stack of a call."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cases.checks import module_hooks
from cases.checks.module_hooks import WHOLE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType


@dataclass(frozen=True, eq=False)
class Unnamed:
    """A module under construction, the outermost frame of a module, and the classes that construct it."""

    module: Any
    outermost: FrameType
    classes: str


@dataclass
class ModuleNames:
    """Names by the id of a module, which is kept alive.

    A module under construction has no name yet. It gets one when the outermost module on the stack is complete, or the
    names of the classes that construct it if it is never part of a model.
    """

    names: dict[int, str] = field(default_factory=dict)
    known: dict[int, Any] = field(default_factory=dict)
    waiting: list[Unnamed] = field(default_factory=list)

    def add(self, frames: Sequence[tuple[FrameType, Any]]) -> None:
        """Name the first of the modules on the stack, the innermost first, each with its frame."""
        module, (outermost, root) = frames[0][1], frames[-1]
        if id(module) in self.known:
            return
        self.known[id(module)] = module
        name = name_in(root, module)
        if name is None:
            modules = [each for _, each in reversed(frames)]
            self.waiting.append(Unnamed(module, outermost, module_hooks.class_names(modules)))
        else:
            self.names[id(module)] = name

    def end_of(self, frame: FrameType) -> None:
        """Name the modules that waited for the end of a frame; those that are no part of its module wait on."""
        for each in [each for each in self.waiting if each.outermost is frame]:
            name = name_in(frame.f_locals.get("self"), each.module)  # a method may delete its own name
            if name is not None:
                self.names[id(each.module)] = name
                self.waiting.remove(each)

    def settle(self) -> None:
        """Give every module that still waits the names of the classes that construct it."""
        self.names.update({id(each.module): each.classes for each in self.waiting})


def name_in(model: Any, module: Any) -> str | None:
    """The name of a module in the model that runs it, as it is at the time: a merge takes modules out.

    None if the module is not part of the model, as long as that is under construction.
    """
    if not hasattr(model, "_modules"):  # not even torch's own constructor ran
        return None
    name = next((name for name, each in module_hooks.named_modules(model) if each is module), None)
    return WHOLE if name == "" else name
