"""Renders the results of ``selfcheck`` as text and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.space.plural import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from matrix.experiments.selfcheck import FaultResults
    from matrix.run.outcome import RunRecord, SetRecord


def run_document(record: RunRecord, sets: Iterable[SetRecord]) -> dict[str, Any]:
    """Return the hardware, code and versions of a selfcheck, for the start of its document."""
    return {
        "hardware": record.hardware,
        "started": record.started.isoformat(),
        "harness": record.harness,
        "code": record.code,
        "facts": record.facts,
        "versions": {each.key: each.pins for each in sets},
    }


def document(results: Sequence[FaultResults]) -> dict[str, Any]:
    """Return the totals, then each set with its faults."""
    return {
        "injected": sum(each.injected for each in results),
        "caught": sum(each.caught for each in results),
        "clean_cells": sum(each.clean_cells for each in results),
        "false_alarms": sum(len(each.false_alarms) for each in results),
        "sets": [each.as_json() for each in results],
    }


def lines(results: Sequence[FaultResults]) -> Iterator[str]:
    for each in results:
        yield from of_set(each)


def of_set(each: FaultResults) -> Iterator[str]:
    yield each.set
    for fault in each.faults:
        yield f"  {'caught' if fault.caught else 'MISSED'}  {fault.name}: {fault.what}"
        for cell in fault.cells:
            by = "; ".join(cell.caught_by) if cell.caught else "nothing"
            yield f"            {cell.case}: {cell.verdict}, by {by}"
    if each.not_injected:
        yield f"  not injected, since no clean cell is green: {', '.join(each.not_injected)}"
    yield (
        f"  {each.caught} of {counted(each.injected, 'fault')} caught, "
        f"{counted(len(each.false_alarms), 'false alarm')} in {counted(each.clean_cells, 'clean cell')}"
    )
    yield from (f"  false alarm: {case}" for case in each.false_alarms)
    if each.located:
        right = sum(location.is_right for location in each.located)
        yield f"  {right} of {counted(len(each.located), 'location')} name what the fault changed"
    for location in each.located:
        if not location.is_right:
            yield f"  located elsewhere: {location.case}: {location.named}, expected {location.expected}"
    if each.silent_errors:
        yield f"  wrong in every clean pass, a finding or an error of ours: {', '.join(each.silent_errors)}"
    if each.lost:
        yield f"  lost, and not counted: {', '.join(each.lost)}"


def is_sound(results: Sequence[FaultResults]) -> bool:
    """Tell whether every fault was caught, without a false alarm or a lost cell."""
    return all(each.caught == each.injected and not each.false_alarms and not each.lost for each in results)
