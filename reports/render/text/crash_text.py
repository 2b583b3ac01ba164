"""Renders the results of ``selfcheck --crashes`` as text and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.space.plural import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matrix.experiments.crash_injection import CrashResults, InjectedCrash


def document(results: Sequence[CrashResults]) -> dict[str, Any]:
    """Return the totals, then each set with its injected crashes."""
    return {
        "crashes": sum(len(each.crashes) for each in results),
        "named": sum(crash.is_named for each in results for crash in each.crashes),
        "over_soon": sum(crash.is_over_soon for each in results for crash in each.crashes),
        "healthy_cells": sum(each.healthy for each in results),
        "harmed_cells": sum(len(each.harmed) for each in results),
        "sets": [each.as_json() for each in results],
    }


def lines(results: Sequence[CrashResults]) -> Iterator[str]:
    for each in results:
        yield from of_set(each)


def of_set(each: CrashResults) -> Iterator[str]:
    yield each.set
    for crash in each.crashes:
        yield from of_crash(crash)
    if each.not_injected:
        yield f"  not injected, since no clean cell is green: {', '.join(each.not_injected)}"
    crashes = counted(len(each.crashes), "crash", "crashes")
    yield (
        f"  {sum(crash.is_named for crash in each.crashes)} of {crashes} named correctly, "
        f"{sum(crash.is_over_soon for crash in each.crashes)} over in time; "
        f"{counted(each.healthy, 'healthy cell')} among them, "
        f"at least {each.after} after each (requested: {each.wanted}), {len(each.harmed)} harmed"
    )
    for harmed in each.harmed:
        yield f"  harmed: {harmed.case}, after {harmed.after}: {harmed.verdict}, {harmed.reason}"
    if each.lost:
        yield f"  lost, so their outcome is unknown: {', '.join(each.lost)}"


def of_crash(crash: InjectedCrash) -> Iterator[str]:
    yield f"  {'named' if crash.is_named else 'WRONG'}  {crash.crash}: {crash.what}"
    yield f"         {crash.case}: {crash.verdict}, {crash.reason}"
    if not crash.is_named:
        yield f"         expected: {crash.expected}, and a reason that matches {crash.shows}"
    free = "" if crash.settled_s is None else f", GPUs free {crash.settled_s:.1f} s later"
    late = "" if crash.is_over_soon else f"  TOO LATE{f': {crash.left}' if crash.left else ''}"
    ended = f"ranks ended {crash.ended_s or 0.0:.1f} s after the last sign of life"
    if crash.ended_s is None:
        ended = "no rank had to be ended"
    yield f"         {ended}{free}{late}"


def is_sound(results: Sequence[CrashResults]) -> bool:
    return all(each.is_sound for each in results)
