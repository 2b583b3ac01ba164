"""A supervisor that notices a hang says what its limit was, and is done with it within a minute."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from cases.runtime import flight_recorder, gpu_pool, hang_analysis, silence
from cases.runtime import supervisor as supervise
from cases.runtime.judge import RankEnd
from cases.runtime.supervisor import Supervisor, heard, starved_processes
from cases.runtime.wire import Job
from cases.space.verdict import Phase

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"silence_s": 15.0}, "no sign of life for 15 s"),
        ({"silence_s": 240.0, "silence_why": "it compiles"}, "no sign of life for 240 s (it compiles)"),
    ],
)
def test_the_limit_is_said_and_why_it_is_longer_than_others(other: dict[str, Any], said: str) -> None:
    fields = {"kind": "cell", "name": "a", "ranks": 2, "device": "cpu", "folder": "a", "cache": "b", **other}
    with socket.socket(socket.AF_UNIX) as client:
        assert Supervisor(ModuleType("suite"), Job(**fields), client).silence_limit() == said


def test_however_badly_a_hang_ends_its_gpus_are_free_or_given_up_within_a_minute() -> None:
    """From the last sign of life: each part takes its whole time."""
    looking = hang_analysis.STACKS_S + flight_recorder.DUMP_S + hang_analysis.DEVICES_S + hang_analysis.KILLED_S
    ending = supervise.ENDS_S + supervise.SWEEP_S
    assert silence.SILENCE_S["cuda"] + looking + ending + gpu_pool.SETTLES_S <= 60


def test_the_longest_silence_is_kept_and_an_import_has_none() -> None:
    end = RankEnd(0)
    for event, now in (({"phase": "import"}, 0.0), ({"phase": "load"}, 30.0), ({"beat": True}, 32.5), ({}, 33.0)):
        heard(end, event, now)
    assert end.phase is Phase.LOAD
    assert end.metrics["longest_silence_s"] == 2.5


def test_the_kernel_tells_how_many_processes_it_ended() -> None:
    assert starved_processes() >= 0


@pytest.mark.parametrize(("device", "seen"), [("cpu", "GPU-a"), ("cuda", "")])
def test_a_companion_computes_on_the_cpu_and_sees_no_gpu_that_is_not_lent_to_it(
    device: str, seen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a")
    suite = ModuleType("suite")
    vars(suite)["preload"] = tuple
    job = Job(kind="cell", name="a", ranks=2, device=device, folder="a", cache="b")
    made = tmp_path / "seen"

    def compute() -> None:
        made.write_text(os.environ["CUDA_VISIBLE_DEVICES"])

    with socket.socket(socket.AF_UNIX) as client:
        supervisor = Supervisor(suite, job, client)
        supervisor.start_companion(str(made), compute)
        supervisor.await_companions()
    assert made.read_text() == seen


ENDING = """
import os, socket, subprocess, sys, time
from types import ModuleType
from cases import supervise
from cases.job import Job
from cases.judge import RankEnd

supervise.ENDS_S = 0.0  # as if a rank that cannot be ended had taken it all
job = Job(kind="cell", name="a", ranks=1, device="cpu", folder="a", cache="b")
supervisor = supervise.Supervisor(ModuleType("suite"), job, socket.socket(socket.AF_UNIX))
sleeps = ["sleep", "60"]
supervisor.companion = {subprocess.Popen(sleeps).pid: sys.argv[1]}
rank = subprocess.Popen(sleeps, process_group=0)
supervisor.children = [supervise.Child(rank.pid, os.open(os.devnull, os.O_RDONLY), RankEnd(0))]
strangers = [subprocess.Popen(sleeps) for _ in range(2)]
print(supervisor.end_everything(), supervise.own_children())
"""


def test_nothing_outlives_a_rank_that_takes_all_the_time_and_only_strangers_are_leftovers(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENDING, tmp_path / "made"], capture_output=True, text=True, check=False, timeout=30
    )
    assert (done.stdout, done.stderr) == ("2 []\n", "")
