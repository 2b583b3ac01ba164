"""The supervisor names the limit that a hanging job broke, and ends the job within a minute."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from cases.runtime import flight_recorder, gpu_pool, hang_analysis, silence, supervisor
from cases.runtime.rank_state import RankState
from cases.runtime.supervisor import Supervisor
from cases.runtime.wire import Event, Job
from cases.space.verdict import Phase

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


@pytest.fixture
def a_rank_silent_since_0() -> RankState:
    rank = RankState(0)
    rank.receive(Event(phase=Phase.FORWARD), now=0.0)
    return rank


def overload(rank: RankState, now: float, load: silence.HostLoad, deadline_s: float = 300.0) -> tuple[bool, str]:
    """Tell if a supervisor would end the rank for its silence of at most 15 s, and why the host may be to blame."""
    job = Job(kind="cell", name="a", ranks=1, device="cuda", folder="a", cache="b", silence_s=15, deadline_s=deadline_s)
    no_suite: Any = None
    with socket.socket(socket.AF_UNIX) as client:
        running = Supervisor(no_suite, job, client, load=load)
        is_silent = running.is_silent(rank, now)
        return is_silent, running.overload([rank] if is_silent else [], now)


def test_on_a_host_with_cores_enough_silence_is_a_hang_after_the_timeout(a_rank_silent_since_0: RankState) -> None:
    assert overload(a_rank_silent_since_0, 15.1, silence.HostLoad()) == (True, "")


def test_a_starved_rank_is_not_silent(a_rank_silent_since_0: RankState) -> None:
    a_rank_silent_since_0.starve(6.0, 20.0)
    assert overload(a_rank_silent_since_0, 20.0, silence.HostLoad())[0] is False


def test_a_rank_that_was_starved_for_less_time_still_hangs(a_rank_silent_since_0: RankState) -> None:
    a_rank_silent_since_0.starve(6.0, 21.5)
    assert overload(a_rank_silent_since_0, 21.5, silence.HostLoad()) == (True, "")


def test_a_starved_rank_ends_at_last_and_the_host_is_to_blame(a_rank_silent_since_0: RankState) -> None:
    a_rank_silent_since_0.starve(50.0, 60.1)
    ended = (True, "the host was overloaded, ranks waited for a core for 50 of 60 s")
    assert overload(a_rank_silent_since_0, 60.1, silence.HostLoad()) == ended


def test_a_sleeping_rank_on_a_crowded_host_shows_nothing(a_rank_silent_since_0: RankState) -> None:
    load = silence.HostLoad(others=[(5.0, 3.0), (10.0, 5.0)])
    ended = (True, "the host was overloaded, 4.0 threads of other processes wanted each core")
    assert overload(a_rank_silent_since_0, 15.1, load) == ended


@pytest.mark.parametrize(("starved_s", "is_to_blame"), [(1.0, False), (20.0, True)])
def test_past_the_deadline_a_starved_job_shows_nothing(starved_s: float, *, is_to_blame: bool) -> None:
    rank = RankState(0)
    rank.receive(Event(phase=Phase.FORWARD), now=30.0)
    load = silence.HostLoad(starved_s=starved_s)
    is_silent, why = overload(rank, 30.1, load, deadline_s=30.0)
    assert not is_silent
    assert bool(why) is is_to_blame


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("set_device (__init__.py:478)", "the driver had not started the GPU of rank 1"),
        ("all_reduce (distributed_c10d.py:2501)", ""),
        ("", ""),
    ],
)
def test_a_rank_that_waits_for_its_gpu_says_nothing_about_the_stack(call: str, why: str) -> None:
    ranks = [RankState(0, waiting_in="process_group (suite.py:238)"), RankState(1, waiting_in=call)]
    assert supervisor.why_not_begun(ranks) == why


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
