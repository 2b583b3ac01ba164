"""What ``selfcheck`` found, in words and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from matrix.experiments.selfcheck import OfSet
    from matrix.run.outcome import RunRecord, SetRecord


def run_document(record: RunRecord, sets: Iterable[SetRecord]) -> dict[str, Any]:
    """Where and on what it was measured, in front of what was found."""
    return {
        "hardware": record.hardware,
        "started": record.started.isoformat(),
        "harness": record.harness,
        "code": record.code,
        "facts": record.facts,
        "versions": {each.key: each.pins for each in sets},
    }


def document(found: Sequence[OfSet]) -> dict[str, Any]:
    """Sums over the sets, then each set with every fault."""
    return {
        "planted": sum(each.planted for each in found),
        "caught": sum(each.caught for each in found),
        "clean_cells": sum(each.clean_cells for each in found),
        "false_alarms": sum(len(each.false_alarms) for each in found),
        "sets": [each.as_json() for each in found],
    }


def lines(found: Sequence[OfSet]) -> Iterator[str]:
    for each in found:
        yield from of_set(each)


def of_set(each: OfSet) -> Iterator[str]:
    yield each.set
    for fault in each.faults:
        yield f"  {'caught' if fault.caught else 'MISSED'}  {fault.name}: {fault.what}"
        for cell in fault.cells:
            by = "; ".join(cell.caught_by) if cell.caught else "nothing"
            yield f"            {cell.case}: {cell.verdict}, by {by}"
    if each.not_planted:
        yield f"  not planted, since no clean cell is green: {', '.join(each.not_planted)}"
    yield (
        f"  {each.caught} of {each.planted} faults caught, {len(each.false_alarms)} false alarms in "
        f"{each.clean_cells} clean cells"
    )
    yield from (f"  false alarm: {case}" for case in each.false_alarms)
    if each.silent_errors:
        yield f"  wrong in every clean pass, a finding or an error of ours: {', '.join(each.silent_errors)}"
    if each.lost:
        yield f"  lost, and not counted: {', '.join(each.lost)}"


def is_sound(found: Sequence[OfSet]) -> bool:
    """Every fault caught, no false alarm, nothing lost."""
    return all(each.caught == each.planted and not each.false_alarms and not each.lost for each in found)
