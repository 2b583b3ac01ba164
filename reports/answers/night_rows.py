"""Turns a run into the rows of a night of the history."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Any

from cases.space.verdict import RED
from matrix.versions.sets import PACKAGES
from reports.answers.diagnosis.diagnose import UNEXPLAINED, diagnose, symptom
from reports.results.wording import gist

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from matrix.run.outcome import Outcome
    from reports.results.loading import RunResults


def rows(run: RunResults) -> Iterator[dict[str, Any]]:
    """Yield a row for the last attempt of each repeat; ``reports.results.history`` documents the columns."""
    night = run.record.started.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    pins = {each.key: each.pins for each in run.sets}
    last = {(each.set, each.case, each.repeat): each for each in run.outcomes}
    for outcome in last.values():
        yield row(outcome, pins.get(outcome.set, {}), night=night, device=run.record.device)


def row(outcome: Outcome, pins: Mapping[str, str], *, night: datetime, device: str) -> dict[str, Any]:
    is_red = outcome.verdict in RED
    return {
        "night": night,
        "device": device,
        "hardware": outcome.hardware,
        "set": outcome.set,
        "case": outcome.case,
        "repeat": outcome.repeat,
        "verdict": outcome.verdict.value,
        "cause": cause(outcome, pins) if is_red else None,
        "reason": gist(outcome) if is_red else None,
        "seconds": outcome.seconds,
        "memory_mib": outcome.metrics.get("peak_cuda_mib", outcome.metrics.get("peak_rss_mib")),
        **{name: pins.get(name) for name in PACKAGES},
        "lock": outcome.lock or None,
        "code": outcome.code or None,
    }


def cause(outcome: Outcome, pins: Mapping[str, str]) -> str:
    best = next(iter(diagnose(symptom(outcome, pins))), None)
    return UNEXPLAINED if best is None else best.signature.id
