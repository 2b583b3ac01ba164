"""A process ends with its parent, even if the parent ended before the process could set its death signal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from cases.runtime import process_tree

ROOT = Path(process_tree.__file__).parents[2]
# The middle process starts a child and ends; only then, the child calls die_with_parent.
ORPHAN = """
import os, sys, time
from pathlib import Path
from cases.runtime.process_tree import die_with_parent

folder = Path(sys.argv[1])
parent = os.getpid()
if os.fork() == 0:
    while os.getppid() == parent:
        time.sleep(0.001)
    die_with_parent(parent)
    (folder / "survived").touch()
"""


def wait_until_gone(pid: int) -> bool:
    until = time.monotonic() + 60.0
    while time.monotonic() < until:
        with suppress(OSError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                time.sleep(0.01)
                continue
        return True
    return False


def test_a_process_whose_parent_has_ended_already_ends(tmp_path: Path) -> None:
    started = subprocess.Popen([sys.executable, "-c", ORPHAN, tmp_path], cwd=ROOT, stdout=subprocess.PIPE)
    started.communicate(timeout=60)  # the orphan holds the pipe open until it ends
    assert list(tmp_path.iterdir()) == []


def test_a_fork_server_whose_starter_has_ended_does_not_serve(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    command = [sys.executable, "-m", "cases.runtime.forkserver", str(tmp_path / "socket"), "--parent", str(ended.pid)]
    done = subprocess.run(command, cwd=ROOT, check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert not (tmp_path / "socket").exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_process_ends_with_its_parent(number: signal.Signals) -> None:
    code = f"""
import os, signal, time
from cases.runtime.process_tree import die_with_parent

parent = os.getpid()
pid = os.fork()
if pid == 0:
    die_with_parent(parent, signal.Signals({int(number)}))
    print(os.getpid(), flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        os.kill(parent.pid, signal.SIGKILL)
    assert wait_until_gone(child)


def test_the_kernel_counts_the_processes_that_it_killed() -> None:
    assert process_tree.oom_kills() >= 0


def test_only_locks_that_no_process_holds_are_removed(tmp_path: Path) -> None:
    held, left = tmp_path / "held" / "lock", tmp_path / "left" / "lock"
    for each in (held, left):
        each.parent.mkdir()
    left.touch()
    with held.open("w"):
        assert process_tree.remove_locks_of_ended_builds(tmp_path) == [left]
    assert (held.exists(), left.exists()) == (True, False)


def test_a_process_that_ended_while_it_was_looked_at_holds_no_file(tmp_path: Path) -> None:
    assert process_tree.open_files(tmp_path / "gone") == set()


def test_a_file_is_open_as_long_as_a_process_holds_it(tmp_path: Path) -> None:
    path = tmp_path.resolve() / "held"
    with path.open("w"):
        assert path in process_tree.open_files(Path("/proc/self"))
    assert path not in process_tree.open_files(Path("/proc/self"))


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the kernel does not report times of threads")
def test_the_core_times_of_a_process_grow_while_it_runs() -> None:
    before = process_tree.core_times(os.getpid())
    until = time.process_time() + 0.05
    while time.process_time() < until:
        pass
    after = process_tree.core_times(os.getpid())
    assert after[os.getpid()].ran_s > before[os.getpid()].ran_s


def test_a_process_that_is_gone_has_no_core_times() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert process_tree.core_times(child.pid) == {}
