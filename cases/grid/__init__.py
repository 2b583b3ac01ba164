"""The grid: all cases, in the order and under the headings of the reports.

To add a case, add a row to its module: the options that differ from the defaults of ``Options``, and what a user
learns from it.
"""

from __future__ import annotations

from functools import cache
from itertools import combinations
from typing import TYPE_CHECKING

from cases import api
from cases.flows import scripts
from cases.grid.adapters import ADAPTED
from cases.grid.data import DATA
from cases.grid.default import ADVISED, DEFAULT
from cases.grid.front_ends import FRONT_ENDS
from cases.grid.gpus import GPUS
from cases.grid.models import MODELS
from cases.grid.quantisation import QUANTISATION
from cases.grid.round_trips import ROUND_TRIPS
from cases.grid.stepping import STEPS
from cases.grid.strategies import STRATEGIES
from cases.space.case import Case
from cases.space.options import Options

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["DEFAULT", "FULL", "MORE", "calls", "commands"]

NEW_PAIRS = 2


def adding(known: Iterable[Case], more: Iterable[Case]) -> tuple[tuple[Case, ...], tuple[Case, ...]]:
    """Split more rows into those with at least two new pairs of options, and the others."""
    seen = {pair for row in known for pair in pairs(row)}
    telling: list[Case] = []
    others: list[Case] = []
    for row in more:
        new = pairs(row) - seen
        if len(new) < NEW_PAIRS:
            others.append(row)
            continue
        telling.append(row)
        seen |= new
    return tuple(telling), tuple(others)


def pairs(row: Case) -> set[tuple[object, object]]:
    return set(combinations(row.options.stated.items(), 2))


# FULL holds the rows with new pairs of options, MORE the others.
FULL, MORE = adding(
    DEFAULT, (*ADVISED, *ROUND_TRIPS, *STRATEGIES, *QUANTISATION, *STEPS, *ADAPTED, *MODELS, *DATA, *FRONT_ENDS, *GPUS)
)


def commands(table: Iterable[scripts.Script] = scripts.PACKAGED) -> tuple[Case, ...]:
    """One case for each script."""
    return tuple(
        Case(scripts.HEADING, each.why, Options().but(flow="script", call=each.name, world_size=each.ranks))
        for each in table
    )


def calls(*rooms: str) -> tuple[Case, ...]:
    """One case for each call of these packages."""
    return tuple(call_case(each) for each in api.load().values() if each.room in rooms)


@cache  # every command makes these cases when it starts, and several profiles have them
def call_case(each: api.Call) -> Case:
    return Case(each.group, each.why, Options().but(flow="api", call=each.name, world_size=each.ranks))
