"""Runs one job: forks its ranks, listens to them, notices silence, ends whatever is left, and reports.

A supervisor is a process of its own, forked from the fork server for one job. It uses the standard library only, and
everything its ranks start ends before it does: it adopts orphans (PR_SET_CHILD_SUBREAPER) and ends them.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import sys
import time
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cases.runtime import failures, flight_recorder, imported_modules, visible_gpus
from cases.runtime import hang_analysis as autopsy
from cases.runtime import rank as ranks_own
from cases.runtime.judge import Judgement, RankEnd, judge, vanished
from cases.runtime.memory import by_rank
from cases.space.verdict import Check, Phase, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from cases.runtime.wire import Job

PR_SET_CHILD_SUBREAPER = 36
POLL_S = 0.02
ENDING_POLL_S = 0.005
GRACE_S = 3.0  # how long the others may go on when one rank has failed
ENDS_S = 14.0  # how long the kernel may take to end a rank: one that waits in a driver may never end
SWEEP_S = 0.5  # for everything else, even when a rank has taken all of that
PROFILE = "FTMATRIX_LATE_MODULES"  # set: a rank says which modules were not there before it ran
PAGE_MIB = os.sysconf("SC_PAGE_SIZE") / 2**20


@dataclass
class Child:
    """A process of the job and the pipe it reports through."""

    pid: int
    pipe: int
    end: RankEnd
    buffered: bytes = b""
    closed: bool = False


@dataclass
class Supervisor:
    suite: ModuleType
    job: Job
    client: socket.socket
    started: float = field(default_factory=time.monotonic)
    children: list[Child] = field(default_factory=list)
    companion: dict[int, str] = field(default_factory=dict)  # pid: file it computes
    told_to_end: bool = False
    looked_at: dict[str, float] = field(default_factory=dict)  # metrics of how ranks that hung were looked at
    stopped_at: float = float("inf")  # when ranks that had to be stopped last did anything, or did too much
    killed_before: int = 0  # processes that the kernel ended for want of memory before the job began
    inherited_mib: float = field(default_factory=lambda: anonymous_mib(os.getpid()))

    def run(self) -> dict[str, Any]:
        """The outcome of the job, as plain data."""
        began = datetime.now(timezone.utc)
        self.killed_before = starved_processes()
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.end)
        ranks_own.die_with_parent(signal.SIGTERM)  # no SIGKILL: what the ranks started has to end before us
        Path(self.job.folder).mkdir(parents=True, exist_ok=True)
        for path, compute in self.suite.companions(self.job).items():
            self.start_companion(path, compute)
        stopped, why = self.play()
        if not stopped:
            self.await_companions()
        left = self.end_everything()
        judgement = judge([child.end for child in self.children], stopped=stopped, why=why)
        return self.report(judgement, began, left)

    def play(self) -> tuple[str, str]:
        """One act after the other, each in fresh ranks; none follows on one that failed."""
        for act, ranks in self.suite.acts(self.job):
            begun = self.now if self.children else 0.0
            self.children += [self.start_rank(number, act, begun) for number in range(ranks)]
            stopped, why = self.watch()
            if stopped or any(failed(child.end) for child in self.children):
                return stopped, why
        return "", ""

    @property
    def now(self) -> float:
        return time.monotonic() - self.started

    def end(self, *_: object) -> None:
        self.told_to_end = True

    def start_rank(self, number: int, act: int, begun: float) -> Child:
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            self.client.close()  # the client must see it when we end, whoever is left
            if self.job.gpus:
                os.environ[visible_gpus.VISIBLE] = ",".join(self.job.gpus)  # before anything looks
                os.environ.update(flight_recorder.variables(Path(self.job.folder)))
            ranks_own.live(self.job, number, writing, partial(self.body, number, act))
        os.close(writing)
        os.set_blocking(reading, False)
        return Child(pid, reading, RankEnd(number, begun))

    def body(self, number: int, act: int, say: ranks_own.Pipe) -> None:
        """What a rank does; the import is instantaneous in a fork of a parent that has imported everything."""
        say.phase(Phase.IMPORT)
        imported_modules.record(say.modules)
        if self.job.device == "cuda" and self.job.kind != "facts":
            visible_gpus.limit(self.job.ranks, os.environ)
        self.suite.preload()
        known = set(sys.modules)
        self.suite.run(self.job, number, act, ranks_own.waiting, say)
        if PROFILE in os.environ:
            say.facts({PROFILE: sorted(sys.modules.keys() - known)})

    def start_companion(self, path: str, compute: Callable[[], None]) -> None:
        """Compute what several jobs share, unless another supervisor does or did; who makes the claim file computes."""
        with contextlib.suppress(FileExistsError):
            os.close(os.open(f"{path}.claim", os.O_CREAT | os.O_EXCL))
            pid = os.fork()
            if pid == 0:
                self.client.close()
                ranks_own.own_group()
                if self.job.device == "cuda":
                    os.environ[visible_gpus.VISIBLE] = ""  # it computes on the CPU, and no GPU is lent to it
                ranks_own.leave(computed(self.suite, path, compute))
            self.companion[pid] = path

    def watch(self) -> tuple[str, str]:
        """Listen until every rank has ended or there is a reason to end them: ``hang``, ``memory`` or ``client``."""
        while self.alive():
            self.listen()
            self.reap()
            self.note_companions()
            reason = self.reason_to_stop()
            if reason is not None:
                return reason
        return "", ""

    def alive(self) -> list[Child]:
        return [child for child in self.children if child.end.exit_code is None]

    def listen(self) -> None:
        pipes = {child.pipe: child for child in self.alive() if not child.closed}
        ready, _, _ = select.select([*pipes, self.client.fileno()], [], [], POLL_S)
        for source in ready:
            if source in pipes:
                self.drain(pipes[source])

    def drain(self, child: Child) -> None:
        with contextlib.suppress(BlockingIOError):
            while block := os.read(child.pipe, 65536):
                child.buffered += block
            child.closed = True
        *lines, child.buffered = child.buffered.split(b"\n")
        for line in lines:
            heard(child.end, event(line), self.now)

    def reap(self) -> None:
        for child in self.alive():
            pid, status = os.waitpid(child.pid, os.WNOHANG)
            if pid:
                self.drain(child)
                child.end.exit_code = os.waitstatus_to_exitcode(status)
                child.end.exit_at = self.now
                if child.end.done:
                    child.end.metrics["ending_s"] = round(child.end.exit_at - child.end.metrics["body_s"], 4)
                self.ask_why(child.end)

    def ask_why(self, end: RankEnd) -> None:
        """Of a rank that vanished, what its log and the kernel tell."""
        if vanished(end):
            end.last_words = failures.last_words(Path(self.job.folder) / f"rank-{end.number}.log")
            end.starved = end.exit_code == -signal.SIGKILL and starved_processes() > self.killed_before

    def note_companions(self) -> None:
        """A companion that ended without its file failed; who waits for the file is told."""
        for pid, path in list(self.companion.items()):
            if os.waitpid(pid, os.WNOHANG)[0]:
                del self.companion[pid]
                disown(path)

    def await_companions(self) -> None:
        """Other jobs may wait for a companion of ours: it is not ended with the ranks, unless it hangs."""
        until = time.monotonic() + self.job.silence_s
        while self.companion and time.monotonic() < until and not self.told_to_end:
            self.note_companions()
            time.sleep(POLL_S)

    def reason_to_stop(self) -> tuple[str, str] | None:
        now, alive = self.now, self.alive()
        over = [child.end for child in self.children if failed(child.end)]
        if alive and over and now - min(min(end.exit_at, end.error_at) for end in over) > GRACE_S:
            return "", ""
        if self.client_left():
            return "client", "the run was ended"
        self.stopped_at = now
        held = sum(max(0.0, anonymous_mib(child.pid) - self.inherited_mib) for child in alive)
        if held > self.job.memory_mib:
            return "memory", f"out of host memory: the ranks held {held:.0f} MiB of {self.job.memory_mib} MiB"
        silent = [child for child in alive if silence(child.end, now) > self.job.silence_s]
        if silent or now > self.job.deadline_s:
            if silent:
                self.stopped_at = now - max(silence(child.end, now) for child in silent)
                self.looked_at["noticed_s"] = round(now - self.stopped_at, 3)
            desync = self.autopsy(alive)
            limit = self.silence_limit() if silent else f"not done in {self.job.deadline_s:g} s"
            return "hang", f"{limit}: {desync}" if desync else limit
        return None

    def silence_limit(self) -> str:
        why = f" ({self.job.silence_why})" if self.job.silence_why else ""
        return f"no sign of life for {self.job.silence_s:g} s{why}"

    def client_left(self) -> bool:
        if self.told_to_end:
            return True
        try:
            return self.client.recv(1, socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def autopsy(self, hung: list[Child]) -> str:
        """Look at the ranks while they still hang; the collective that they disagree on."""
        found = autopsy.examine(
            Path(self.job.folder),
            {child.end.number: child.pid for child in hung},
            self.job.gpus,
            cut_short=lambda: self.told_to_end,
        )
        for child in hung:
            child.end.waiting_in = found.waiting_in[child.end.number]
        self.looked_at["autopsy_s"] = round(found.seconds, 3)
        return found.desync

    def end_everything(self) -> int:
        """End the ranks, their groups, and whatever else is left of this job; how many processes were left over."""
        for child in self.children:
            child.end.ended_by_us = child.end.exit_code is None
            # A rank that was forked a moment ago may not lead its group yet; one that is reaped may have lent its pid.
            for end in (os.killpg, os.kill) if child.end.ended_by_us else (os.killpg,):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    end(child.pid, signal.SIGKILL)
        until = time.monotonic() + ENDS_S
        while self.alive() and time.monotonic() < until:
            for child in self.alive():
                if os.waitpid(child.pid, os.WNOHANG)[0]:
                    self.drain(child)
                    child.end.exit_code = -signal.SIGKILL
            time.sleep(ENDING_POLL_S)
        ended = end_descendants(max(until, time.monotonic() + SWEEP_S))
        for path in self.companion.values():
            disown(path)
        return len(ended - self.companion.keys() - {child.pid for child in self.children})

    def report(self, judgement: Judgement, began: datetime, left: int) -> dict[str, Any]:
        ends = [child.end for child in self.children]
        metrics = worst_metrics(ends) | self.looked_at
        if judgement.verdict in {Verdict.HANG, Verdict.CRASH, Verdict.FAIL}:
            failed_at = [min(end.error_at, end.exit_at) for end in ends if failed(end) and not end.ended_by_us]
            metrics["aftermath_s"] = round(self.now - min([*failed_at, self.stopped_at]), 3)
        if self.alive():
            metrics["ranks_that_cannot_be_ended"] = float(len(self.alive()))
        if left:
            metrics["left_processes"] = float(left)
        seconds = round(self.now, 4)
        metrics["closing_s"] = round(seconds - max((min(end.exit_at, seconds) for end in ends), default=seconds), 4)
        return {
            "name": self.job.name,
            "verdict": judgement.verdict.value,
            "reason": judgement.reason,
            "phase": judgement.phase.value if judgement.phase else None,
            "checks": [asdict(check) for check in judgement.checks],
            "error": judgement.error,
            "metrics": metrics,
            "facts": {
                **{name: value for end in ends if end.number == 0 for name, value in end.facts.items()},
                **({"failure": judgement.failure} if judgement.failure else {}),
            },
            "modules": sorted(set().union(*(end.modules for end in ends))),
            "started": began.isoformat(),
            "seconds": seconds,
        }


def computed(suite: ModuleType, path: str, compute: Callable[[], None]) -> int:
    """Exit code of a companion; its error goes into a file beside the one it should have made."""
    try:
        imported_modules.record(imported_modules.note_in(imported_modules.file_beside(path)))
        suite.preload()
        compute()
    except BaseException as error:  # noqa: BLE001 - whatever it is, who waits must be told
        unfinished = Path(f"{path}.error.unfinished")
        unfinished.write_text(f"{type(error).__name__}: {error}")
        unfinished.rename(f"{path}.error")
        return 1
    return 0


def disown(path: str) -> None:
    """A companion has ended: if it did not make its file, who waits for that is told, and does not wait in vain."""
    if not Path(path).exists() and not Path(f"{path}.error").exists():
        Path(f"{path}.error").write_text("the process that computes it was ended")


def event(line: bytes) -> dict[str, Any]:
    """An event of a rank. What is none was written to our pipe by something else, and is the rank's error."""
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    if isinstance(found, dict):
        return found
    shown = line[:200].decode(errors="replace")
    return {"error": {"type": "ForeignReport", "message": f"not a report: {shown}", "traceback": "", "ours": True}}


def heard(end: RankEnd, event: dict[str, Any], now: float) -> None:
    """Take in one event of a rank."""
    if not end.last_heard:
        end.metrics["start_s"] = round(now - end.begun, 4)
    if silence(end, now):
        end.metrics["longest_silence_s"] = round(max(end.metrics.get("longest_silence_s", 0.0), silence(end, now)), 3)
    end.last_heard = now
    if "phase" in event:
        end.phase = Phase(event["phase"])
    end.checks += [Check(**check) for check in event.get("checks", ())]
    end.metrics.update(event.get("metrics", {}))
    end.facts.update(event.get("facts", {}))
    end.modules.update(event.get("modules", ()))
    for name, seconds in event.get("spent", {}).items():
        end.metrics[name] = round(end.metrics.get(name, 0.0) + seconds, 4)
    if "error" in event:
        end.error, end.error_at = event["error"], now
    if event.get("done"):
        end.done = True
        end.metrics["body_s"] = round(now, 4)


def silence(end: RankEnd, now: float) -> float:
    """Seconds since a rank was heard; none counts during the import of a cold start, which has nothing to say."""
    return 0.0 if end.phase in (None, Phase.IMPORT) else now - end.last_heard


def failed(end: RankEnd) -> bool:
    return end.error is not None or (end.exit_code is not None and not end.done)


def starved_processes() -> int:
    """How many processes the kernel has ended for want of memory: of our control group, or of the machine."""
    for counter in (Path("/sys/fs/cgroup/memory.events"), Path("/proc/vmstat")):
        with contextlib.suppress(OSError):
            counts = dict(line.split() for line in counter.read_text().splitlines())
            if "oom_kill" in counts:
                return int(counts["oom_kill"])
    return 0


def worst_metrics(ends: list[RankEnd]) -> dict[str, float]:
    """Of each metric the worst of all ranks; of peak memory, each rank's as well."""
    names = {name for end in ends for name in end.metrics}
    return {name: max(end.metrics.get(name, 0.0) for end in ends) for name in sorted(names)} | by_rank(ends)


def anonymous_mib(pid: int) -> float:
    """Memory of a process that no file backs. A fork starts with its parent's, which it shares until it writes."""
    with contextlib.suppress(OSError, ValueError):
        _, resident, of_files, *_ = map(int, Path(f"/proc/{pid}/statm").read_text().split())
        return (resident - of_files) * PAGE_MIB
    return 0.0


def end_descendants(until: float) -> set[int]:
    """End every process that is still a child of ours, adopted orphans included, until there is none; their pids.

    What the kernel has not ended by ``until`` is left to it.
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
    """Pids whose parent we are, from /proc."""
    mine = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                after_name = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(after_name[1]) == os.getpid():
                    mine.append(int(entry.name))
    return mine
