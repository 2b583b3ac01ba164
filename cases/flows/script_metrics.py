"""The metrics of a user's script: what it reported in files, and the checks of the declared bounds.

A script appends JSON objects, one on each line, to ``metrics.jsonl`` in its output folder, or lets transformers'
Trainer write ``trainer_state.json`` (``save_state``) and ``all_results.json`` (``save_metrics``).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cases.space.verdict import Check, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

LINES, STATE, RESULTS = "metrics.jsonl", "trainer_state.json", "all_results.json"
MOST_SHOWN = 50  # metrics that become metrics of the cell
SERIES = 2  # values that a change needs


@dataclass(frozen=True)
class Bound:
    """``min`` and ``max`` bound the last value; ``decreases`` and ``increases`` compare it with the first."""

    min: float | None = None
    max: float | None = None
    decreases: bool = False
    increases: bool = False


@dataclass
class ScriptMetrics:
    """The values of each metric, in order, and the places that could not be read."""

    series: dict[str, list[float]] = field(default_factory=dict)
    damaged: list[str] = field(default_factory=list)

    @property
    def last_values(self) -> dict[str, float]:
        return {name: values[-1] for name, values in [*self.series.items()][:MOST_SHOWN]}


def read(out: Path) -> ScriptMetrics:
    """Read the metrics below a folder. A metric in several files counts as in the first of them."""
    found = ScriptMetrics()
    for rows in (lines(out, found.damaged), states(out, found.damaged), results(out, found.damaged)):
        new: dict[str, list[float]] = {}
        for row in rows:
            for name, value in row.items():
                if isinstance(value, (int, float)) and not isinstance(value, bool):
                    new.setdefault(name, []).append(float(value))
        found.series = {**new, **found.series}
    return found


def lines(out: Path, damaged: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the objects of ``metrics.jsonl``."""
    path = out / LINES
    text = path.read_text(errors="replace") if path.is_file() else ""
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            yield from json_object(line, f"{LINES} line {number}", damaged)


def states(out: Path, damaged: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the log of the Trainer that trained longest; checkpoints have earlier states of it."""
    every = [
        state
        for path in files(out, STATE)
        for state in json_object(path.read_text(errors="replace"), path.name, damaged)
    ]
    longest = max(every, key=lambda state: len(history(state)), default={})
    yield from history(longest)


def history(state: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = state.get("log_history", [])
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def results(out: Path, damaged: list[str]) -> Iterator[dict[str, Any]]:
    for path in files(out, RESULTS):
        yield from json_object(path.read_text(errors="replace"), path.name, damaged)


def files(out: Path, name: str) -> list[Path]:
    return sorted(path for path in out.rglob(name) if path.is_file())


def json_object(text: str, place: str, damaged: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the object; add the place to ``damaged`` if the text is none."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if isinstance(found, dict):
        yield found
    else:
        damaged.append(place)


def checks(bounds: Mapping[str, Bound], reported: ScriptMetrics) -> list[Check]:
    """The checks of all metrics: every loss and every metric with a bound must be finite, and the bounds must hold."""
    finite = [name for name in reported.series if name in bounds or is_loss(name)]
    unbounded = [f"{name} (value {number})" for name in finite if (number := first_not_finite(reported.series[name]))]
    silent = [name for name in bounds if name not in reported.series]
    return [
        equal("places that hold no JSON object", "+".join(reported.damaged) or "none", "none"),
        equal("metrics that are not finite", "+".join(unbounded) or "none", "none"),
        equal("metrics with a bound that the script did not report", "+".join(silent) or "none", "none"),
        *(
            check
            for name, bound in bounds.items()
            if name in reported.series
            for check in bound_checks(name, bound, reported)
        ),
    ]


def is_loss(name: str) -> bool:
    return name == "loss" or name.endswith(("_loss", "/loss"))


def first_not_finite(values: list[float]) -> int:
    """The number of the first value that is NaN or infinite, counted from 1; 0 if there is none."""
    return next((number for number, value in enumerate(values, start=1) if not math.isfinite(value)), 0)


def bound_checks(name: str, bound: Bound, reported: ScriptMetrics) -> Iterator[Check]:
    values = reported.series[name]
    if bound.min is not None:
        yield at_least(f"last value of {name}", values[-1], bound.min)
    if bound.max is not None:
        yield at_most(f"last value of {name}", values[-1], bound.max)
    if bound.decreases or bound.increases:
        yield at_least(f"values of {name}", len(values), SERIES)
        change = values[-1] - values[0]
        ok = change < 0 if bound.decreases else change > 0
        yield Check(f"change of {name} from first to last", change, "<" if bound.decreases else ">", 0.0, ok=ok)
