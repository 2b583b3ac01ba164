"""Builds a grid from a table that maps sets to the terms and verdicts of their cells."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from cases.space.case import case
from cases.space.written_values import parsed
from matrix.versions.sets import PACKAGES
from reports.results.grid import Grid, grid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from matrix.run.outcome import Outcome, RunRecord, SetRecord

MOVED = re.compile(r"\+([a-z]+)([\d.]+)")


class Measure(Protocol):
    def __call__(self, table: Mapping[str, Mapping[str, str]], **other: Any) -> Grid: ...


@pytest.fixture
def measure(
    build_outcome: Callable[..., Outcome], build_set: Callable[..., SetRecord], build_run: Callable[..., RunRecord]
) -> Measure:
    """``measure({"2025-06": {"quant=nf4": "pass"}})``. The first dated set pins 1.0 of everything, the next 2.0, ...

    A set such as ``2025-06+peft0.5`` is the dated one with that package moved.
    """

    def measured(table: Mapping[str, Mapping[str, str]], **other: Any) -> Grid:
        dated = sorted({key.partition("+")[0] for key in table})
        sets = [
            build_set(key, pins={**pins(dated.index(key.partition("+")[0]) + 1), **dict(MOVED.findall(key))})
            for key in table
        ]
        outcomes = [build(key, terms, verdict) for key, cells in table.items() for terms, verdict in cells.items()]
        return grid(build_run(**other), sets, outcomes)

    def build(key: str, terms: str, verdict: str) -> Outcome:
        named = (term.split("=") for term in terms.split())
        made = case("a feature", "why", **{name: parsed(name, text) for name, text in named})
        reason = {"skip": "needs a GPU", "fail": "RuntimeError: no"}.get(verdict, "")
        return build_outcome(made.id, key, verdict, options=made.options.stated, reason=reason)

    return measured


def pins(number: int) -> dict[str, str]:
    return dict.fromkeys(PACKAGES, f"{number}.0")
