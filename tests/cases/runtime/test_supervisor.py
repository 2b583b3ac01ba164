"""The supervisor names the limit that a hanging job broke, and ends the job within a minute."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from cases.runtime import flight_recorder, gpu_pool, hang_analysis, silence, supervisor
from cases.runtime.supervisor import Supervisor
from cases.runtime.wire import Job

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        ({"silence_s": 15.0}, "no sign of life for 15 s"),
        ({"silence_s": 240.0, "silence_why": "it compiles"}, "no sign of life for 240 s (it compiles)"),
    ],
)
def test_the_reason_of_a_hang_has_the_limit_and_why_it_is_longer(limits: dict[str, Any], sentence: str) -> None:
    job = Job(kind="cell", name="a", ranks=2, device="cpu", folder="a", cache="b", **limits)
    no_suite: Any = None
    with socket.socket(socket.AF_UNIX) as client:
        assert Supervisor(no_suite, job, client).silence_limit() == sentence


def test_the_gpus_of_a_hanging_cell_are_free_or_given_up_within_a_minute() -> None:
    """From its last event, if each part takes its whole time."""
    looking = hang_analysis.STACKS_S + flight_recorder.DUMP_S + hang_analysis.DEVICES_S + hang_analysis.KILLED_S
    ending = supervisor.ENDS_S + supervisor.SWEEP_S
    assert silence.SILENCE_S["cuda"] + looking + ending + gpu_pool.SETTLES_S <= 60


ENDING = """
import os, socket, subprocess, sys
from cases.runtime import supervisor
from cases.runtime.process_tree import own_children
from cases.runtime.rank_state import RankState
from cases.runtime.wire import Job

supervisor.ENDS_S = 0.0  # as if a rank that cannot be ended had used up the limit
supervisor.SWEEP_S = 60.0  # under load, reaping takes its time; the sweep returns as soon as no child is left
job = Job(kind="cell", name="a", ranks=1, device="cpu", folder="a", cache="b")
running = supervisor.Supervisor(None, job, socket.socket(socket.AF_UNIX))
sleeps = ["sleep", "600"]
running.companions.running = {subprocess.Popen(sleeps).pid: sys.argv[1]}
rank = subprocess.Popen(sleeps, process_group=0)
running.children = [supervisor.Child(rank.pid, os.open(os.devnull, os.O_RDONLY), RankState(0))]
strangers = [subprocess.Popen(sleeps) for _ in range(2)]
print(running.end_everything(), own_children())
"""


def test_end_everything_ends_all_processes_and_counts_only_strangers_as_leftovers(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENDING, tmp_path / "made"], capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.stdout, done.stderr) == ("2 []\n", "")


BUILDING = """
import os, signal, socket, sys
from cases.runtime.supervisor import Supervisor
from cases.runtime.wire import Job

class Suite:
    def companions(self, job):
        return {}

    def stages(self, job):
        return [(0, 1)]

    def preload(self):
        pass

    def run(self, *_):
        os.open(sys.argv[1], os.O_CREAT | os.O_EXCL)
        os.kill(os.getpid(), signal.SIGKILL)

client, server = socket.socketpair()
job = Job(kind="cell", name="a", ranks=1, device="cpu", folder=sys.argv[2], cache="b")
print(Supervisor(Suite(), job, server).run().verdict.value, os.path.exists(sys.argv[1]))
"""


def test_a_rank_that_is_killed_while_it_builds_an_extension_leaves_no_lock(tmp_path: Path) -> None:
    lock = tmp_path / "extensions" / "kernel" / "lock"
    lock.parent.mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, "-c", BUILDING, lock, tmp_path / "job"],
        env={**os.environ, "TORCH_EXTENSIONS_DIR": str(tmp_path / "extensions")},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.stdout, done.stderr) == ("crash False\n", "")
