"""A candidate must have what a user's script requires."""

from __future__ import annotations

from datetime import date
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from matrix.bisect.candidate import MixedEnvironment
from matrix.bisect.runner import CandidateRunner
from matrix.evidence import Evidence
from matrix.run.execute import Suite
from matrix.run.scripts.script_cells import ScriptPackages
from matrix.run.scripts.user_scripts import load_all
from matrix.versions.locks import Lock
from matrix.versions.sets import PACKAGES, VersionSet

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = """# /// script
# requires-python = ">=3.10"
# dependencies = ["torch{}"]
# ///
"""


@pytest.mark.parametrize(("required", "reason"), [(">=2.9", ""), (">=2.10", "the set has 2.9.1")])
def test_a_script_that_requires_another_version_cannot_run(tmp_path: Path, required: str, reason: str) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT.format(required))
    suite = Suite(scripts=load_all([path]))
    pins = dict.fromkeys(PACKAGES, "1.0") | {"torch": "2.9.1"}
    version_set = VersionSet(key="2025-12", python="3.11", as_of=date(2025, 12, 15), why="test", pins=pins)
    lock = Lock(version_set=version_set, text="torch==2.9.1\n")
    ctx: Any = SimpleNamespace(suite=suite, cache=tmp_path, uv=None)
    runner = CandidateRunner(ctx=ctx, case=suite.cases["script-train"], ends=[])
    environment: Any = SimpleNamespace(root=tmp_path, variables=lambda: {"PATH": "/usr/bin:/bin"}, key="2025-12")
    candidate = MixedEnvironment(label="x", version_set=version_set, lock=lock)
    found = runner.script_packages(candidate, environment)
    if reason:
        assert isinstance(found, Evidence)
        assert reason in found.reason
    else:
        assert isinstance(found, ScriptPackages)
