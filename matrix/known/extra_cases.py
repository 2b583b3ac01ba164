"""A suite and cases that its grid does not have. It is copied beside ``cases/`` and runs inside an environment.

What ``extra_cases.json`` declares becomes cases like any others; everything else is the suite's own.
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

from cases.space.case import Case
from cases.space.options import Options

DECLARED = Path(__file__).with_name("extra_cases.json")
ASKED = json.loads(DECLARED.read_text(encoding="utf-8"))
SUITE = importlib.import_module(ASKED["suite"])
CASES = SUITE.CASES
for row in ASKED["cases"]:
    case = Case(row["group"], row["why"], Options(**row["options"]))
    CASES[case.id] = case


def __getattr__(name: str) -> Any:
    return getattr(SUITE, name)
