"""Records calls of the stack's functions: what goes in, what comes out, and what they leave of their arguments.

Two such traces of one case on one version set, of which one is right, show which function first does something else,
whether modules call it or not. ``state_digests`` decides what counts as the same.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cases.checks.module_names import ModuleNames
from cases.checks.state_digests import STACK, StateDigest, is_below
from cases.runtime.wire import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType, FrameType

CALL, RETURN, RAISE = "call", "return", "raise"
MOST = 60_000  # events; later ones are not recorded
MOST_OF_EACH = 100  # calls of one function; no event tells of later ones
DEEP = 20  # calls of one function for which all tensors of a module count, not only its own
ROOT = "/site-packages/"
MODULE = "/torch/nn/modules/module.py"  # runs beneath each method of a module
FUNCTION = 0x03  # CO_OPTIMIZED and CO_NEWLOCALS: neither a module nor a class body
INLINE = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")  # belong to the function around them
ATTRIBUTES = ("__getattr__", "__getattribute__", "__setattr__")  # called too often to be recorded
METHOD = "self"


@dataclass(frozen=True)
class FunctionEvent(Message):
    """The begin or the end of a call of ``function``, which is its file below site-packages and its qualified name.

    ``module`` is the innermost module that runs a method at that time, empty if none does. ``caller`` is the function
    of the stack that calls, ``caller_module`` the module that then runs.
    """

    kind: str
    function: str
    module: str = ""
    caller: str = ""
    caller_module: str = ""
    digest: str = ""


@dataclass(frozen=True)
class Running:
    """A function of the stack that runs, or another method of a module, which has no name."""

    frame: FrameType
    function: str
    module: Any = None
    is_counted: bool = False
    is_deep: bool = False


@dataclass(frozen=True)
class Noted:
    """An event whose modules have no name yet. It holds no frame, which would keep every local value alive."""

    kind: str
    function: str
    module: Any
    caller: str
    caller_module: Any
    digest: str


@dataclass
class FunctionRecorder:
    """Sees every call in this thread while it records, which slows them down.

    Only calls of functions in the packages and folders of ``roots`` become events.
    """

    roots: tuple[str, ...] = STACK
    noted: list[Noted] = field(default_factory=list)
    running: list[Running] = field(default_factory=list)
    names: ModuleNames = field(default_factory=ModuleNames)
    counts: Counter[tuple[str, CodeType]] = field(default_factory=Counter)
    functions: dict[tuple[str, CodeType], str | None] = field(default_factory=dict)  # None: not of the stack, no method
    opcodes: dict[CodeType, bytes] = field(default_factory=dict)

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        self.digest = StateDigest(self.roots)
        try:
            with memory_filled():
                sys.setprofile(self.on_event)
                yield
        finally:
            sys.setprofile(None)
            self.running.clear()
            self.names.settle()

    def events(self) -> tuple[FunctionEvent, ...]:
        return tuple(
            FunctionEvent(
                kind=each.kind,
                function=each.function,
                module=self.name(each.module),
                caller=each.caller,
                caller_module=self.name(each.caller_module),
                digest=each.digest,
            )
            for each in self.noted
        )

    def name(self, module: Any) -> str:
        return self.names.names.get(id(module), "") if module is not None else ""

    def on_event(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            if (function := self.function(frame.f_code)) is not None:
                self.begin(frame, function)
        elif event == "return" and self.running and self.function(frame.f_code) is not None:
            self.end(frame, argument)

    def function(self, code: CodeType) -> str | None:
        """The name of a function of the stack; empty for another one that may be a method of a module."""
        key = file_and_code(code)
        if key not in self.functions:
            self.functions[key] = function_name(code, self.roots)
        return self.functions[key]

    def begin(self, frame: FrameType, function: str) -> None:
        from torch.nn import Module

        owner = frame.f_locals.get(METHOD)
        module = owner if isinstance(owner, Module) else None
        if not function and module is None:
            return
        key = file_and_code(frame.f_code)
        self.counts[key] += 1
        calls = self.counts[key]
        is_counted = bool(function) and calls <= MOST_OF_EACH and len(self.noted) < MOST
        running = Running(frame, function, module, is_counted, is_deep=calls <= DEEP)
        self.running.append(running)
        if module is not None and id(module) not in self.names.known:
            self.names.add([(each.frame, each.module) for each in reversed(self.running) if each.module is not None])
        if is_counted:
            self.note(CALL, running, arguments(frame))

    def end(self, frame: FrameType, value: Any) -> None:
        if all(each.frame is not frame for each in self.running):
            return
        while (running := self.running[-1]).frame is not frame:
            self.running.pop()  # whose end was not seen, as of a generator that was dropped
        if running.is_counted:
            kind = RETURN if self.returns(frame) else RAISE
            self.note(kind, running, {**arguments(frame), "": value})
        if self.names.waiting:
            self.names.end_of(frame)
        self.running.pop()

    def returns(self, frame: FrameType) -> bool:
        """Return whether a frame that ends returns or yields; otherwise an exception leaves it."""
        code = frame.f_code
        if code not in self.opcodes:
            self.opcodes[code] = code.co_code
        name = dis.opname[self.opcodes[code][frame.f_lasti]] if frame.f_lasti >= 0 else ""
        return name.startswith(("RETURN", "YIELD"))

    def note(self, kind: str, running: Running, state: dict[str, Any]) -> None:
        callers = self.running[:-1]
        caller = next((each for each in reversed(callers) if each.function), None)
        below = callers if caller is None else callers[: callers.index(caller) + 1]
        self.noted.append(
            Noted(
                kind=kind,
                function=running.function,
                module=innermost_module(self.running),
                caller="" if caller is None else caller.function,
                caller_module=None if caller is None else innermost_module(below),
                digest=self.digest.of(state, is_deep=running.is_deep),
            )
        )


@contextlib.contextmanager
def memory_filled() -> Iterator[None]:
    """Let new tensors without numbers have zeros, so that two runs of a case construct the same."""
    import torch
    from torch.utils import _device

    _device._device_constructors()  # noqa: SLF001 - it keeps the functions of torch that it finds first
    holders = [(torch, "empty"), (torch, "empty_like"), (torch.Tensor, "new_empty")]
    originals = [getattr(holder, name) for holder, name in holders]
    for (holder, name), original in zip(holders, originals, strict=True):
        setattr(holder, name, filled(original))
    try:
        yield
    finally:
        for (holder, name), original in zip(holders, originals, strict=True):
            setattr(holder, name, original)


def filled(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def empty(*given: Any, **named: Any) -> Any:
        import torch

        found = function(*given, **named)
        with torch.no_grad():
            return found.zero_()

    return empty


def innermost_module(running: list[Running]) -> Any:
    return next((each.module for each in reversed(running) if each.module is not None), None)


def arguments(frame: FrameType) -> dict[str, Any]:
    """The arguments of a function by name, as they are at the time."""
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)
    found = frame.f_locals
    return {name: found[name] for name in code.co_varnames[:count] if name in found}


def file_and_code(code: CodeType) -> tuple[str, CodeType]:
    """A key of code, which alone is equal to the same lines at the same place of another file, as of a copied model."""
    return code.co_filename, code


def function_name(code: CodeType, roots: tuple[str, ...] = STACK) -> str | None:
    """The name of a function of the stack; empty for another function that may be a method, None for the rest."""
    if code.co_flags & FUNCTION != FUNCTION or code.co_name in (*INLINE, *ATTRIBUTES):
        return None
    file = code.co_filename.rpartition(ROOT)[2]
    if file != code.co_filename and is_below(file, roots):
        return f"{file} {getattr(code, 'co_qualname', code.co_name)}"
    is_method = METHOD in code.co_varnames[:1] and not code.co_filename.endswith(MODULE)
    return "" if is_method else None
