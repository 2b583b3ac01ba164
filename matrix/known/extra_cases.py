"""A suite with further cases, which the harness declares in ``extra_cases.json``.

The harness copies this module next to ``cases/`` in an environment. Everything but the cases is the suite's own.
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

from cases.space.case import Case
from cases.space.options import Options

DECLARATION = json.loads(Path(__file__).with_name("extra_cases.json").read_text(encoding="utf-8"))
SUITE = importlib.import_module(DECLARATION["suite"])


def listed() -> Any:
    """The cases of the suite, the declared ones among them."""
    for row in DECLARATION["cases"]:
        case = Case(row["group"], row["why"], Options(**row["options"]))
        SUITE.CASES[case.id] = case
    return SUITE.CASES


if "CASES" in vars(SUITE):  # a suite that lists its cases on first use is left alone: ranks do not need the list
    listed()


def __getattr__(name: str) -> Any:
    return listed() if name == "CASES" else getattr(SUITE, name)
