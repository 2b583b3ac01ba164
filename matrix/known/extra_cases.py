"""Extends a suite by the cases that the harness declares in ``extra_cases.json``.

The harness copies this module next to ``cases/`` in an environment. All attributes except the cases are the suite's.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cases.runtime import case_suite
from cases.space.case import Case
from cases.space.options import Options

if TYPE_CHECKING:
    from collections.abc import Sequence

DECLARATION = json.loads(Path(__file__).with_name("extra_cases.json").read_text(encoding="utf-8"))
BASE = case_suite.load(DECLARATION["suite"])


class ExtendedSuite:
    """The suite with the declared cases. Ranks never list the cases, because a job carries the options of its case."""

    @functools.cached_property
    def cases(self) -> dict[str, Any]:
        cases = BASE.cases
        for row in DECLARATION["cases"]:
            case = Case(row["group"], row["why"], Options(**row["options"]))
            cases[case.id] = case
        return cases

    def requirements(self, name: str, device: str) -> Sequence[Any]:
        _ = self.cases  # the suite looks the case up among its own, which only then have the declared ones
        return BASE.requirements(name, device)

    def __getattr__(self, name: str) -> Any:
        return getattr(BASE, name)


SUITE = ExtendedSuite()
