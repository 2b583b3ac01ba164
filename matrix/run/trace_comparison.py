"""Finds where the trace of a case's modules begins to differ from one of the same case that passed."""

from __future__ import annotations

import math
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from cases.checks.module_traces import ERROR, INPUT, OUTPUT, WEIGHT
from matrix.run.outcome import DeviationRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cases.checks.module_traces import ModuleTrace, TraceEvent

# In roundoffs of the tensors' dtype, times the root of the number of events before: what other versions may change. On
# one version set, a rank on a CPU computes the same numbers each time.
ROUNDINGS: Final = 8.0
SAME_SET: Final = 1e-12
MISSING: Final = "call"  # the kind where a module calls another one than in the right trace, or one call fewer


def first_difference(
    found: Sequence[ModuleTrace], right: Sequence[ModuleTrace], *, same_set: bool
) -> DeviationRecord | None:
    """The first event that differs, of the earliest stage and of the lowest rank; None if there is none.

    A module whose input is off is not to blame, but the one that calls it.
    """
    known = {(each.stage, each.rank): each.events for each in right}
    for trace in sorted(found, key=lambda each: (each.stage, each.rank)):
        events = known.get((trace.stage, trace.rank))
        if events is not None and (record := difference(trace, events, same_set=same_set)) is not None:
            return record
    return None


def difference(trace: ModuleTrace, right: Sequence[TraceEvent], *, same_set: bool) -> DeviationRecord | None:
    last = ""
    for position, (event, expected) in enumerate(zip_longest(trace.events, right)):
        limit = SAME_SET if same_set else allowed(expected, position)
        off = distance(event, expected)
        if off > limit:
            kind, module = blamed(event, expected)
            if (kind, module) == (ERROR, ""):
                kind, module = reshaped(trace.events[position + 1 :], right) or (kind, module)
            name = module if kind == WEIGHT else (event or expected).name
            return DeviationRecord(
                kind=kind, name=name, module=module, step=0, rank=trace.rank, distance=off, allowed=limit, after=last
            )
        last = expected.name
    return None


def allowed(expected: TraceEvent | None, position: int) -> float:
    return 0.0 if expected is None else ROUNDINGS * expected.roundoff * math.sqrt(1 + position)


def blamed(event: TraceEvent | None, expected: TraceEvent | None) -> tuple[str, str]:
    """The kind of a difference, and the module to look into."""
    if event is None:  # one call fewer
        return MISSING, expected.caller if expected is not None else ""
    if event.kind == ERROR:
        return ERROR, event.name
    if expected is None or (event.kind, event.name) != (expected.kind, expected.name):
        return MISSING, event.name if event.kind == OUTPUT else event.caller
    return event.kind, event.caller if event.kind == INPUT else event.name


def reshaped(left: Sequence[TraceEvent], right: Sequence[TraceEvent]) -> tuple[str, str] | None:
    """The first module whose weights have other shapes, of a model into which no weights could be loaded."""
    known = {each.name: each.values for each in reversed(right) if each.kind == WEIGHT}
    changed = (each.name for each in left if each.kind == WEIGHT and known.get(each.name, each.values) != each.values)
    return next(((WEIGHT, name) for name in changed), None)


def distance(event: TraceEvent | None, expected: TraceEvent | None) -> float:
    """The largest relative distance of two events' tensors, by their sketches; infinite if anything else differs."""
    if event is None or expected is None or event.kind == ERROR:
        return math.inf
    if (event.kind, event.name, event.values) != (expected.kind, expected.name, expected.values):
        return math.inf
    pairs = zip(event.sketches, expected.sketches, strict=True)
    return max((sketch_distance(*pair) for pair in pairs), default=0.0)


def sketch_distance(found: Sequence[float], expected: Sequence[float]) -> float:
    if list(map(repr, found)) == list(map(repr, expected)):  # also where both are NaN
        return 0.0
    (norm, *projected), (size, *wanted) = found, expected
    apart = math.sqrt(sum((a - b) ** 2 for a, b in zip(projected, wanted, strict=True)) / len(wanted))
    off = max(abs(norm - size), apart) / size if size else math.inf
    return off if math.isfinite(off) else math.inf
