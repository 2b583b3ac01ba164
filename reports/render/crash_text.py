"""What ``selfcheck --disasters`` found, in words and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matrix.experiments.crash_injection import Met, OfSet


def document(found: Sequence[OfSet]) -> dict[str, Any]:
    """Sums over the sets, then each set with every disaster."""
    return {
        "disasters": sum(len(each.met) for each in found),
        "named": sum(met.is_named for each in found for met in each.met),
        "over_soon": sum(met.is_over_soon for each in found for met in each.met),
        "healthy_cells": sum(each.healthy for each in found),
        "harmed_cells": sum(len(each.harmed) for each in found),
        "sets": [each.as_json() for each in found],
    }


def lines(found: Sequence[OfSet]) -> Iterator[str]:
    for each in found:
        yield from of_set(each)


def of_set(each: OfSet) -> Iterator[str]:
    yield each.set
    for met in each.met:
        yield from of_disaster(met)
    if each.not_planted:
        yield f"  not planted, since no clean cell is green: {', '.join(each.not_planted)}"
    yield (
        f"  {sum(met.is_named for met in each.met)} of {len(each.met)} disasters named rightly, "
        f"{sum(met.is_over_soon for met in each.met)} over soon; {each.healthy} healthy cells among them, at least "
        f"{each.after} after each (asked for: {each.wanted}), {len(each.harmed)} harmed"
    )
    for harmed in each.harmed:
        yield f"  harmed: {harmed.case}, after {harmed.after}: {harmed.verdict}, {harmed.reason}"
    if each.lost:
        yield f"  lost, so nothing is known of them: {', '.join(each.lost)}"


def of_disaster(met: Met) -> Iterator[str]:
    yield f"  {'named' if met.is_named else 'WRONG'}  {met.disaster}: {met.what}"
    yield f"         {met.case}: {met.verdict}, {met.reason}"
    if not met.is_named:
        yield f"         expected: {met.expected}, and a reason that matches {met.shows}"
    free = "" if met.settled_s is None else f", GPUs free {met.settled_s:.1f} s later"
    late = "" if met.is_over_soon else f"  TOO LATE{f': {met.left}' if met.left else ''}"
    ended = f"ranks ended {met.ended_s or 0.0:.1f} s after the last sign of life"
    if met.ended_s is None:
        ended = "no rank had to be ended"
    yield f"         {ended}{free}{late}"


def is_sound(found: Sequence[OfSet]) -> bool:
    return all(each.is_sound for each in found)
