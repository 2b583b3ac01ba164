"""Finds the function of the stack that first does something else than in the same case on the unchanged stack."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from cases.checks.function_traces import CALL, MOST, RAISE
from cases.checks.module_traces import ERROR
from matrix.run.outcome import DeviationRecord

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cases.checks.function_traces import FunctionEvent
    from cases.checks.module_traces import ModuleTrace

    Calls = Mapping[tuple[int, int], Sequence[FunctionEvent]]  # by stage and rank

FUNCTION: Final = "function"  # the kind where a function returns something else or leaves its arguments otherwise


@dataclass(frozen=True, kw_only=True)
class Blamed:
    """The function that does something else, empty if it is none of the stack, and the module that runs it, if any."""

    kind: str
    function: str
    module: str


def first_function(found: Sequence[ModuleTrace], right: Sequence[ModuleTrace]) -> DeviationRecord | None:
    """The function to look into, of the earliest stage and of the lowest rank; None if no function of the stack is.

    Functions end in the order in which they are done, so the first end that differs is that of the innermost function
    with another result. If the begin of a call differs first, its caller passes something else.
    """
    known = {(each.stage, each.rank): each.functions for each in right}
    for trace in sorted(found, key=lambda each: (each.stage, each.rank)):
        blamed = first_blamed(trace.functions, known.get((trace.stage, trace.rank), ()))
        if blamed is not None:
            return record(blamed, trace.rank) if blamed.function else None
    return None


def changed_function(found: Calls, right: Calls, again: Calls) -> str | None:
    """The function that first takes, leaves or returns another value than in two right runs; empty if none does.

    An event that differs between the two right runs does not count, as one that has the time. None if the rest cannot
    be compared: the two have different calls, or a trace was cut or was not written, as by a cell that was lost.
    """
    for place in sorted(right):
        if place not in found:
            return None
        name = first_change(found[place], right[place], again.get(place, ()))
        if name != "":
            return name
    return ""


def first_change(
    found: Sequence[FunctionEvent], right: Sequence[FunctionEvent], again: Sequence[FunctionEvent]
) -> str | None:
    if len(right) != len(again):
        return None
    for event, expected, other in zip_longest(found, right, again):
        if expected is not None and (other is None or call(expected) != call(other)):
            return None
        is_steady = expected is not None and other is not None and expected.digest == other.digest
        if event is None or expected is None or call(event) != call(expected):
            return name_of(event or expected)
        if is_steady and event.digest != expected.digest:
            return name_of(event)
    return None if len(right) >= MOST else ""


def call(event: FunctionEvent) -> tuple[str, str, str]:
    return event.kind, event.function, event.caller


def name_of(event: FunctionEvent) -> str:
    """The function to look into; that of the event for a call by code outside the stack."""
    return blame(event).function or event.function


def record(blamed: Blamed, rank: int) -> DeviationRecord:
    return DeviationRecord(
        kind=blamed.kind,
        name=blamed.module,
        module=blamed.module,
        function=blamed.function,
        step=0,
        rank=rank,
        distance=math.inf,
        allowed=0.0,
    )


def first_blamed(found: Sequence[FunctionEvent], right: Sequence[FunctionEvent]) -> Blamed | None:
    for event, expected in zip_longest(found, right):
        if event is None or expected is None or unlike(event, expected):
            return blame(event or expected)
    return None


def unlike(event: FunctionEvent, expected: FunctionEvent) -> bool:
    """Return whether two events differ in more than the names of modules, which a change may construct otherwise."""
    return any(getattr(event, name) != getattr(expected, name) for name in ("kind", "function", "caller", "digest"))


def blame(event: FunctionEvent) -> Blamed:
    """Blame the caller for a call, which passes something else, and a function for how it ends."""
    if event.kind == CALL:
        return Blamed(kind=FUNCTION, function=event.caller, module=event.caller_module)
    return Blamed(kind=ERROR if event.kind == RAISE else FUNCTION, function=event.function, module=event.module)
