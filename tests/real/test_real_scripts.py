"""Scripts of findings, in the really installed newest default set: one that shows its finding, one that is right."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from matrix.known import findings, known_problems, script_runs
from matrix.known.script_runs import Answer
from matrix.run import request
from matrix.versions import sets
from reports.commands.runs import known_scripts

if TYPE_CHECKING:
    from pathlib import Path

NEWEST = sets.select(sets.load(), "default")[-1].key
EXPECTED = {"state-dict-without-frozen": Answer.SHOWN, "lokr-ignores-alpha": Answer.RIGHT}


@pytest.mark.parametrize("finding", EXPECTED)
def test_a_script_gives_its_published_answer(tmp_path: Path, finding: str) -> None:
    run_request = request.RunRequest(sets=NEWEST, device="cpu")
    chosen = known_problems.select(findings.load(), finding)
    assert known_scripts.reproduce(run_request, chosen, tmp_path, say=print) == 0
    (run,) = script_runs.read(tmp_path / script_runs.FILE).of(finding)
    assert run.answer is EXPECTED[finding]
