"""Finds where the trace of a case's modules begins to differ from one of the same case that passed."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from cases.checks.module_traces import ERROR, INPUT, OUTPUT, WEIGHT
from matrix.run.outcome import DeviationRecord

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

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

    A module whose input is off is not to blame, but the one that calls it. On the same set, every call has a
    counterpart. Other versions may call other modules and pass other arguments: there, only tensors of the same place,
    dtype and shape are compared.
    """
    known = {(each.stage, each.rank): each.events for each in right}
    for trace in sorted(found, key=lambda each: (each.stage, each.rank)):
        events = known.get((trace.stage, trace.rank))
        if events is not None and (record := difference(trace, events, same_set=same_set)) is not None:
            return record
    return None


def difference(trace: ModuleTrace, right: Sequence[TraceEvent], *, same_set: bool) -> DeviationRecord | None:
    last = ""
    pairs = zip_longest(trace.events, right) if same_set else counterparts(trace.events, right)
    for position, (event, expected) in enumerate(pairs):
        limit = SAME_SET if same_set else allowed(expected, position)
        off = distance(event, expected)
        if off > limit:
            kind, module = blamed(event, expected)
            if (kind, module) == (ERROR, ""):
                kind, module = reshaped(trace.events, right) or (kind, module)
            at = event or expected
            name = module if kind == WEIGHT or at is None else at.name
            return DeviationRecord(
                kind=kind, name=name, module=module, step=0, rank=trace.rank, distance=off, allowed=limit, after=last
            )
        last = expected.name if expected is not None else ""
    return None


def counterparts(
    events: Sequence[TraceEvent], right: Sequence[TraceEvent]
) -> Iterator[tuple[TraceEvent, TraceEvent | None]]:
    """Each event with that of the same kind, module and number of call, both without what only one of them has."""
    known = dict(numbered(right))
    for place, event in numbered(events):
        if event.kind == ERROR:
            yield event, None
        elif place in known:
            common = set(event.values) & set(known[place].values)
            yield reduced(event, common), reduced(known[place], common)


def numbered(events: Iterable[TraceEvent]) -> Iterator[tuple[tuple[str, str, int], TraceEvent]]:
    counts: Counter[tuple[str, str]] = Counter()
    for each in events:
        counts[each.kind, each.name] += 1
        yield (each.kind, each.name, counts[each.kind, each.name]), each


def reduced(event: TraceEvent, values: Collection[str]) -> TraceEvent:
    """The event with the tensors among these values only; plain values are none."""
    pairs = zip(event.values, event.sketches, strict=True)
    kept = sorted((value, sketch) for value, sketch in pairs if sketch and value in values)
    return replace(event, values=tuple(value for value, _ in kept), sketches=tuple(sketch for _, sketch in kept))


def allowed(expected: TraceEvent | None, position: int) -> float:
    return 0.0 if expected is None else ROUNDINGS * expected.roundoff * math.sqrt(1 + position)


def blamed(event: TraceEvent | None, expected: TraceEvent | None) -> tuple[str, str]:
    """The kind of a difference, and the module to look into."""
    if event is None:  # one call fewer
        return MISSING, expected.caller if expected is not None else ""
    if event.kind == ERROR:
        return ERROR, event.name
    if expected is None or (event.kind, event.name) != (expected.kind, expected.name):
        if event.kind == WEIGHT:  # among the weights at the end: a module that only one of the models has
            return MISSING, event.name.rpartition(".")[0]
        return MISSING, event.name if event.kind == OUTPUT else event.caller
    return event.kind, event.caller if event.kind == INPUT else event.name


def reshaped(events: Sequence[TraceEvent], right: Sequence[TraceEvent]) -> tuple[str, str] | None:
    """The first module whose weights have other shapes, of a model into which no weights could be loaded.

    The weights of such a model follow the error.
    """
    place = next(number for number, each in enumerate(events) if each.kind == ERROR)
    left = [each for each in events[place:] if each.kind == WEIGHT]
    known = {each.name: each.values for each in reversed(right) if each.kind == WEIGHT}
    changed = (each.name for each in left if known.get(each.name, each.values) != each.values)
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
