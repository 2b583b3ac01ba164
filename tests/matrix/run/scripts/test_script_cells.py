"""Tests the reports of users' scripts: the rank that died first, and where the ranks of a slow script were."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cases.flows.script_end import END, RANK
from cases.flows.scripts import Script
from cases.runtime.wire import CellReport, ErrorReport
from cases.space.verdict import Verdict
from matrix.errors import UserError
from matrix.run.execute import Suite
from matrix.run.request import RunRequest
from matrix.run.scripts.script_cells import hub_cache, of_ranks, waiting

if TYPE_CHECKING:
    from pathlib import Path

STACK = 'Timeout (0:00:03)!\nThread 0x1 (most recent call first):\n  File "/x/train.py", line 7 in step\n  File "y"\n'


def report(verdict: Verdict, reason: str, **more: object) -> CellReport:
    return CellReport("script-mine", verdict, reason, **more)  # type: ignore[arg-type]


def test_a_crash_names_the_rank_of_the_script(tmp_path: Path) -> None:
    reason = "out of host memory: rank 0 was ended by SIGKILL as the kernel ended processes for lack of memory"
    facts = {END: "rank 1 of the script was ended by SIGKILL", RANK: 1}
    found = of_ranks(report(Verdict.CRASH, reason, facts=facts), tmp_path)
    assert found.reason == reason.replace("rank 0", "rank 1 of the script")


def test_an_error_has_the_rank_of_the_script(tmp_path: Path) -> None:
    error = ErrorReport("ValueError", "boom", "", rank=0)
    found = of_ranks(report(Verdict.FAIL, "ValueError: boom", error=error, facts={RANK: 3}), tmp_path)
    assert found.error is not None
    assert (found.error.rank, found.reason) == (3, "ValueError: boom")


def test_a_slow_script_is_shown_where_its_ranks_were(tmp_path: Path) -> None:
    for name in ("rank-0-11.stack", "rank-1-12.stack", "rank-launcher-10.stack"):
        (tmp_path / name).write_text(STACK)
    found = of_ranks(report(Verdict.HANG, "not done in 8 s: rank 0 in run (script_process.py:77)"), tmp_path)
    assert found.reason == "not done in 8 s: rank 0 in step (train.py:7); rank 1 in step (train.py:7)"


def test_a_slow_program_without_stacks_is_shown_nowhere(tmp_path: Path) -> None:
    found = of_ranks(report(Verdict.HANG, "not done in 8 s: rank 0 in run (script_process.py:77)"), tmp_path)
    assert (found.reason, waiting(tmp_path)) == ("not done in 8 s", "")


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"HF_HUB_CACHE": "/hub", "HF_HOME": "/home"}, "/hub"),
        ({"HF_HOME": "/home"}, "/home/hub"),
        ({"XDG_CACHE_HOME": "/cache"}, "/cache/huggingface/hub"),
    ],
)
def test_scripts_use_the_users_cache_of_the_hub(environ: dict[str, str], folder: str) -> None:
    assert hub_cache(environ) == folder


def test_offline_refuses_further_packages(tmp_path: Path) -> None:
    script = Script(name="mine", command=("python",), dependencies=("tabulate",), source="--scripts x: scripts.mine")
    with pytest.raises(UserError, match="dependencies need a package index"):
        RunRequest(offline=tmp_path, suite=Suite(scripts=(script,))).check()
