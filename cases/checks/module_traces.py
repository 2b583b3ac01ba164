"""Records what goes into every module that a rank calls, its weights, and what comes out, in order.

Two such traces of one case, of which one is right, show where the other begins to differ: where no reference knows the
modules, as for calls of the libraries' APIs, and where a rank raises. Tensors are kept as sketches: a norm, and a few
random projections, whose distance estimates that of the tensors (the lemma of Johnson and Lindenstrauss). At import, it
needs only the standard library.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from cases.checks import module_hooks
from cases.checks.function_traces import FunctionEvent
from cases.checks.module_hooks import WHOLE
from cases.runtime.wire import Message

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

    from cases.checks.function_traces import FunctionRecorder
    from cases.runtime.wire import Plain

REQUESTED = "FTMATRIX_TRACE_MODULES"  # the environment variable that asks the suite of mutants for traces
ANY_FILE = "trace-*.json"
INPUT, WEIGHT, OUTPUT, GRADIENT, ERROR = "input", "weight", "output", "weight gradient", "error"
PROJECTIONS = 8
LARGEST = 1 << 16  # numbers of a tensor that are projected; of a larger one, as many evenly spaced ones
MOST = 20_000  # events; later ones are not recorded, but for an exception
ROOTS = 50  # models whose weights are recorded at the end, which keeps them in memory
DEPTH = 4  # of nested tuples, lists and mappings


@dataclass(frozen=True)
class TraceEvent(Message):
    """What goes into a module, its weights, what comes out, or an exception in it.

    ``caller`` is the module that calls it, empty if no module does. ``values`` describe each tensor and each plain
    value; ``sketches`` has for each of them the numbers of a tensor: its norm and its projections, else none.
    ``roundoff`` is the largest of its tensors' dtypes.
    """

    kind: str
    name: str
    caller: str = ""
    values: tuple[str, ...] = ()
    sketches: tuple[tuple[float, ...], ...] = ()
    roundoff: float = 0.0

    @classmethod
    def typed(cls, found: Plain) -> Plain:
        sketches = tuple(tuple(each) for each in found.get("sketches", ()))
        return {**found, "values": tuple(found.get("values", ())), "sketches": sketches}


@dataclass(frozen=True)
class ModuleTrace(Message):
    """The events of a rank in one stage, in order; ``functions`` only where they are recorded, too."""

    stage: int
    rank: int
    events: tuple[TraceEvent, ...] = ()
    functions: tuple[FunctionEvent, ...] = ()

    @classmethod
    def typed(cls, found: Plain) -> Plain:
        events = tuple(TraceEvent.from_plain(each) for each in found.get("events", ()))
        functions = tuple(FunctionEvent.from_plain(each) for each in found.get("functions", ()))
        return {**found, "events": events, "functions": functions}


def file_name(stage: int, rank: int) -> str:
    return f"trace-{stage}-{rank}.json"


@contextlib.contextmanager
def recorded(folder: Path, stage: int, rank: int, functions: FunctionRecorder | None = None) -> Iterator[None]:
    """Write the trace of this process to a folder, also if it raises."""
    recorder = TraceRecorder()
    try:
        with recorder.recording(), functions.recording() if functions else contextlib.nullcontext():
            yield
    finally:
        found = ModuleTrace(stage, rank, tuple(recorder.events), functions.events() if functions else ())
        (folder / file_name(stage, rank)).write_text(found.to_json(), encoding="utf-8")


@dataclass
class TraceRecorder:
    """Sees every call of a module in this process while it records."""

    events: list[TraceEvent] = field(default_factory=list)
    running: list[Any] = field(default_factory=list)  # the modules whose forward pass runs, the outermost first
    roots: dict[int, Any] = field(default_factory=dict)
    names: WeakKeyDictionary[Any, WeakKeyDictionary[Any, str]] = field(default_factory=WeakKeyDictionary)  # by root

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        from torch.nn import Module

        original, record = Module.__call__, self.call

        def call(module: Any, *arguments: Any, **named: Any) -> Any:
            return record(original, module, arguments, named)

        Module.__call__ = call
        try:
            yield
        except BaseException as error:
            place = self.place_of(error)
            self.note(ERROR, place)
            if not place:  # loading a checkpoint into a model raises for the shapes of its weights
                self.note_weights(held_model(error.__traceback__))
            raise
        else:
            for root in self.roots.values():  # a merge need not be followed by a call
                self.note_weights(root)
        finally:
            Module.__call__ = original

    def call(self, original: Any, module: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Call a module as it would be called, and record what goes in and what comes out."""
        if not self.running and len(self.roots) < ROOTS:
            self.roots[id(module)] = module
        caller = self.name(self.running[-1]) if self.running else ""
        self.running.append(module)
        try:
            self.note(INPUT, self.name(module), caller, (arguments, named))
            self.note(WEIGHT, self.name(module), caller, own_tensors(module))
            output = original(module, *arguments, **named)
            self.note(OUTPUT, self.name(module), caller, output)
            return output
        finally:
            self.running.pop()

    def note_weights(self, root: Any) -> None:
        """Record the weights and the gradients of a model outside of its calls."""
        for name, module in complete_modules(root):
            tensors = own_tensors(module)
            self.note(WEIGHT, name or WHOLE, "", tensors)
            self.note(GRADIENT, name or WHOLE, "", [each.grad for each in tensors.values() if each.is_leaf])

    def note(self, kind: str, name: str, caller: str = "", value: Any = None) -> None:
        if len(self.events) >= MOST and kind != ERROR:
            return
        try:
            found = dict(flat(value))
            sketches = {key: sketch(each) if is_dense(each) else () for key, each in found.items()}
            words = tuple(f"{key}={described(each)}" for key, each in found.items())
            roundoff = max([0.0, *(roundoff_of(each) for each in found.values())])
        except Exception as error:  # noqa: BLE001 - whatever a library passes, its call must not fail because of a trace
            words, sketches, roundoff = (f"unreadable: {type(error).__name__}",), {"": ()}, 0.0
        self.events.append(TraceEvent(kind, name, caller, words, tuple(sketches.values()), roundoff))

    def name(self, module: Any) -> str:
        """The name of a module in the outermost one that runs."""
        root = self.running[0] if self.running else module
        known = self.names.setdefault(root, WeakKeyDictionary())
        if module not in known:  # adapters may have been added since
            known.update({each: name or WHOLE for name, each in reversed([*module_hooks.named_modules(root)])})
        return known.get(module) or module_hooks.class_names([module])

    def place_of(self, error: BaseException) -> str:
        """The name of the innermost module outside of torch in whose methods an exception was raised.

        A layer of torch raises for what it is given, and the module around it gives that.
        """
        modules = raising_modules(error.__traceback__)
        if not modules:
            return ""
        ours = [each for each in modules if not type(each).__module__.startswith("torch.")] or modules
        known = {id(each): name or WHOLE for name, each in complete_modules(modules[0])}
        return known.get(id(ours[-1])) or module_hooks.class_names(ours)


def complete_modules(root: Any) -> list[tuple[str, Any]]:
    """The modules of a root by name; none without a root, or if its constructor has not begun."""
    return [*module_hooks.named_modules(root)] if hasattr(root, "_modules") else []


def raising_modules(trace: TracebackType | None) -> list[Any]:
    """The modules whose methods an exception passed through, the outermost first."""
    from torch.nn import Module

    found = []
    while trace is not None:
        owner = trace.tb_frame.f_locals.get("self")
        if isinstance(owner, Module):
            found.append(owner)
        trace = trace.tb_next
    return found


def held_model(trace: TracebackType | None) -> Any:
    """The module that the innermost function has which has one, of those that an exception passed through."""
    from torch.nn import Module

    found = None
    while trace is not None:
        found = next((each for each in trace.tb_frame.f_locals.values() if isinstance(each, Module)), found)
        trace = trace.tb_next
    return found


def own_tensors(module: Any) -> dict[str, Any]:
    """The parameters and buffers of a module, and those of containers in it that are never called."""
    from torch.nn import Module

    holders = [("", module)] + [
        (f"{name}.", each) for name, each in module.named_children() if type(each).forward is Module.forward
    ]
    return {
        f"{prefix}{name}": tensor
        for prefix, holder in holders
        for name, tensor in [*holder.named_parameters(recurse=False), *holder.named_buffers(recurse=False)]
    }


def flat(value: Any, path: str = "", depth: int = DEPTH) -> Iterator[tuple[str, Any]]:
    """The tensors and plain values in nested tuples, lists, mappings and outputs with names, each with its path."""
    if isinstance(value, (bool, int, float, str, type(None))) or module_hooks.is_tensor(value):
        yield path, value
    elif depth and isinstance(value, (tuple, list)):
        for number, each in enumerate(value):
            yield from flat(each, f"{path}.{number}", depth - 1)
    elif depth and hasattr(value, "items"):
        for name, each in value.items():
            yield from flat(each, f"{path}.{name}", depth - 1)


def described(value: Any) -> str:
    return f"{value.dtype} {tuple(value.shape)}" if module_hooks.is_tensor(value) else repr(value)


def is_dense(value: Any) -> bool:
    return module_hooks.is_tensor(value) and not value.is_meta


def roundoff_of(value: Any) -> float:
    import torch

    return torch.finfo(value.dtype).eps / 2 if module_hooks.is_floating(value) else 0.0


def sketch(tensor: Any) -> tuple[float, ...]:
    """The norm of a tensor, and the projections of its numbers on fixed random directions."""
    numbers = getattr(tensor, "_local_tensor", tensor).detach().double().flatten().cpu()
    norm = float(numbers.norm())
    sampled = numbers[:: -(-len(numbers) // LARGEST) or 1]
    return (norm, *(directions(len(sampled)) @ sampled).tolist())


@lru_cache(maxsize=32)
def directions(length: int) -> Any:
    """Random directions, each projection on which has the expected square of the norm: (projections, length)."""
    import torch

    return torch.randn(PROJECTIONS, length, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
