"""Processes of a job as the Linux kernel shows them: parents, orphans, memory, open files, and how to end them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

PR_SET_PDEATHSIG = 1  # prctl(2)
PR_SET_CHILD_SUBREAPER = 36
ENDING_POLL_S = 0.005
RELEASE_S = 0.05
PAGE_MIB = os.sysconf("SC_PAGE_SIZE") / 2**20
NANOSECONDS = 1e9  # in a second


def die_with_parent(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Let the kernel signal this process when its parent ends, whatever ended the parent.

    Args:
        parent: pid of the process that started this one. It may have ended already, and then the kernel sends no
            signal: this process sends itself one instead.
        number: the signal.
    """
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


def lead_group(parent: int) -> None:
    """Give this process its own group, so that it can be ended with all its children, and tie it to its parent."""
    os.setpgid(0, 0)
    die_with_parent(parent)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)


def leave(code: int) -> None:
    """Leave without the interpreter's exit handlers: what an old library does at exit is not what a case is about."""
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1)


def end_descendants(until: float) -> set[int]:
    """End every child of this process, adopted orphans included, until there is none; returns their pids.

    Processes that the kernel has not ended by ``until`` (of ``time.monotonic``) are left to it.
    """
    ended: set[int] = set()
    while time.monotonic() < until:
        for pid in own_children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            break
        if pid:
            ended.add(pid)
        else:
            time.sleep(ENDING_POLL_S)
    return ended


def own_children() -> list[int]:
    """Pids of the children of this process, from /proc."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                after_name = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(after_name[1]) == os.getpid():
                    found.append(int(entry.name))
    return found


def is_open(path: Path) -> bool:
    """Tell if a process that this user can see holds a file open."""
    return any(path in open_files(process) for process in Path("/proc").glob("[0-9]*"))


def open_files(process: Path) -> set[Path]:
    """The files that a process holds open, from its folder in /proc; none if it is gone, or another user's."""
    found = set()
    with contextlib.suppress(OSError):
        for descriptor in (process / "fd").iterdir():
            with contextlib.suppress(OSError):  # closed by now
                found.add(descriptor.readlink())
    return found


def remove_locks_of_ended_builds(folder: Path) -> list[Path]:
    """Remove the locks in a folder of torch's extensions that no process holds any more; returns them.

    A process that builds an extension keeps its file ``lock`` open (``torch.utils.file_baton``). If it is killed, the
    file stays, and every process that needs the extension waits for it without limit.
    """
    removed = []
    for lock in folder.resolve().rglob("lock"):
        if not is_open(lock):
            time.sleep(RELEASE_S)  # a build that ends closes the file a moment before it removes it
            if lock.exists() and not is_open(lock):
                lock.unlink(missing_ok=True)
                removed.append(lock)
    return removed


def oom_kills() -> int:
    """The number of processes that the kernel has killed for lack of memory, in our control group or on the machine."""
    for counter in (Path("/sys/fs/cgroup/memory.events"), Path("/proc/vmstat")):
        with contextlib.suppress(OSError):
            counts = dict(line.split() for line in counter.read_text().splitlines())
            if "oom_kill" in counts:
                return int(counts["oom_kill"])
    return 0


def anonymous_mib(pid: int) -> float:
    """Memory of a process that no file backs. A fork starts with its parent's, which it shares until it writes."""
    with contextlib.suppress(OSError, ValueError):
        _, resident, of_files, *_ = map(int, Path(f"/proc/{pid}/statm").read_text().split())
        return (resident - of_files) * PAGE_MIB
    return 0.0


@dataclass(frozen=True)
class CoreTimes:
    """Seconds that a thread ran, and that it could have run but waited for a core."""

    ran_s: float = 0.0
    waited_s: float = 0.0


def core_times(pid: int) -> dict[int, CoreTimes]:
    """The times of each thread of a process and its descendants; empty where the kernel does not report them."""
    found: dict[int, CoreTimes] = {}
    with contextlib.suppress(OSError):  # the process ended
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError, ValueError):
                ran, waited, *_ = (task / "schedstat").read_text().split()
                found[int(task.name)] = CoreTimes(int(ran) / NANOSECONDS, int(waited) / NANOSECONDS)
            with contextlib.suppress(OSError):
                for child in (task / "children").read_text().split():
                    found.update(core_times(int(child)))
    return found


def runnable_threads() -> int:
    """The threads on this host that run or wait for a core; 0 where the kernel does not report them."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0])
    return 0
