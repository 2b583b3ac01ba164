"""Runs one job: forks its ranks, reads their events, notices hangs, ends every process, and reports.

A supervisor is a process that the fork server forks for one job. It uses the standard library only. Everything that its
ranks start ends before it does: it adopts orphans (PR_SET_CHILD_SUBREAPER) and ends them.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import time
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cases.runtime import (
    companions,
    failures,
    flight_recorder,
    hang_analysis,
    imported_modules,
    process_tree,
    silence,
    visible_gpus,
)
from cases.runtime import rank as rank_process
from cases.runtime.companions import Companions
from cases.runtime.judge import CellJudgement, judge
from cases.runtime.memory import by_rank
from cases.runtime.process_tree import anonymous_mib, die_with_parent, oom_kills
from cases.runtime.rank_state import RankState, parse_event, worst_metrics
from cases.runtime.wire import CellReport
from cases.space import devices
from cases.space.verdict import Phase, Verdict

if TYPE_CHECKING:
    from cases.runtime.case_suite import CaseSuite
    from cases.runtime.wire import Job

POLL_S = 0.02
ENDING_POLL_S = 0.005
GRACE_S = 3.0  # the other ranks may go on for this long after one has failed
ENDS_S = 14.0  # limit for the kernel to end a rank: one that waits in a driver may never end
SWEEP_S = 0.5  # for all other processes, even when a rank has used up that limit
EXTENSIONS = "TORCH_EXTENSIONS_DIR"  # the harness names a folder that all cells of a set share
STARTS_GPU = "set_device ("  # the call in which the driver gives a process its context on a GPU
PROFILE = "FTMATRIX_LATE_MODULES"  # if set, ranks report the modules that were not preloaded


@dataclass
class Child:
    """A rank's process and the pipe that it reports through."""

    pid: int
    pipe: int
    state: RankState
    buffered: bytes = b""
    closed: bool = False


@dataclass
class Supervisor:
    """Runs one job for a client. ``parent`` is the pid of the fork server."""

    suite: CaseSuite
    job: Job
    client: socket.socket
    parent: int = field(default_factory=os.getppid)
    started: float = field(default_factory=time.monotonic)
    children: list[Child] = field(default_factory=list)
    must_end: bool = False
    analysis_metrics: dict[str, float] = field(default_factory=dict)
    stopped_at: float = float("inf")  # when ranks that had to be stopped last made progress, or broke a limit
    load: silence.HostLoad = field(default_factory=silence.HostLoad)
    oom_kills_before: int = 0
    inherited_mib: float = field(default_factory=lambda: anonymous_mib(os.getpid()))

    def __post_init__(self) -> None:
        self.companions = Companions(self.suite, self.job.device, self.client.close)

    def run(self) -> CellReport:
        began = datetime.now(timezone.utc)
        self.oom_kills_before = oom_kills()
        process_tree.adopt_orphans()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.end)
        die_with_parent(self.parent, signal.SIGTERM)  # no SIGKILL: what the ranks started has to end before us
        Path(self.job.folder).mkdir(parents=True, exist_ok=True)
        for path, compute in self.suite.companions(self.job).items():
            self.companions.start(path, compute)
        stopped, why = self.run_stages()
        if not stopped:  # other jobs may wait for a companion of ours
            self.companions.wait(self.job.silence_s, lambda: self.must_end)
        left = self.end_everything()
        if EXTENSIONS in os.environ:
            process_tree.remove_locks_of_ended_builds(Path(os.environ[EXTENSIONS]))
        return self.report(judge(self.states, stopped=stopped, why=why), began, left)

    def run_stages(self) -> tuple[str, str]:
        """Run the stages in order, each in fresh ranks, up to the first that fails."""
        for stage, ranks in self.suite.stages(self.job):
            began_at = self.now if self.children else 0.0
            self.children += [self.start_rank(number, stage, began_at) for number in range(ranks)]
            stopped, why = self.watch()
            if stopped or any(state.failed for state in self.states):
                return stopped, why
        return "", ""

    @property
    def now(self) -> float:
        return time.monotonic() - self.started

    @property
    def states(self) -> list[RankState]:
        return [child.state for child in self.children]

    def end(self, *_: object) -> None:
        self.must_end = True

    def start_rank(self, number: int, stage: int, began_at: float) -> Child:
        reading, writing = os.pipe()
        parent, pid = os.getpid(), os.fork()
        if pid == 0:
            os.close(reading)
            self.client.close()  # the client must see it when we end, whichever processes are left
            if self.job.gpus:
                os.environ[visible_gpus.VISIBLE] = ",".join(self.job.gpus)  # before anything looks
                os.environ.update(flight_recorder.variables(Path(self.job.folder)))
            rank_process.run(self.job, number, writing, partial(self.body, number, stage), parent)
        os.close(writing)
        os.set_blocking(reading, False)
        return Child(pid, reading, RankState(number, began_at))

    def body(self, number: int, stage: int, reporter: rank_process.PipeReporter) -> None:
        """Run a rank's part of the job; after a warm start, the import takes no time."""
        reporter.phase(Phase.IMPORT)
        imported_modules.record(reporter.modules)
        if devices.uses_gpus(self.job.device) and self.job.kind != "facts":
            visible_gpus.limit(devices.gpus_of(self.job.device, self.job.ranks), os.environ)
        self.suite.preload()
        known = set(sys.modules)
        self.suite.run(self.job, number, stage, companions.wait_for, reporter)
        if PROFILE in os.environ:
            reporter.late_modules(sorted(sys.modules.keys() - known))

    def watch(self) -> tuple[str, str]:
        """Read events until every rank has ended, or until the job must stop.

        Returns:
            The kind of stop (``hang``, ``overload``, ``memory`` or ``client``) and a sentence; both empty if none was
            needed.
        """
        while self.alive():
            self.read_events()
            self.reap()
            self.companions.reap()
            reason = self.reason_to_stop()
            if reason is not None:
                return reason
        return "", ""

    def alive(self) -> list[Child]:
        return [child for child in self.children if child.state.exit_code is None]

    def read_events(self) -> None:
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
            child.state.receive(parse_event(line), self.now)

    def reap(self) -> None:
        for child in self.alive():
            pid, status = os.waitpid(child.pid, os.WNOHANG)
            if pid:
                self.drain(child)
                state = child.state
                state.exit_code = os.waitstatus_to_exitcode(status)
                state.exit_at = self.now
                if state.done:
                    state.metrics["ending_s"] = round(state.exit_at - state.metrics["body_s"], 4)
                self.explain_end(state)

    def explain_end(self, state: RankState) -> None:
        """Look up in its log, and in the kernel's counters, why a rank vanished."""
        if state.vanished:
            state.last_words = failures.last_words(Path(self.job.folder) / f"rank-{state.number}.log")
            state.oom_killed = state.exit_code == -signal.SIGKILL and oom_kills() > self.oom_kills_before

    def reason_to_stop(self) -> tuple[str, str] | None:
        now, alive = self.now, self.alive()
        over = [state for state in self.states if state.failed]
        if alive and over and now - min(min(state.exit_at, state.error_at) for state in over) > GRACE_S:
            return "", ""
        if self.client_left():
            return "client", "the run was ended"
        self.stopped_at = now
        held = sum(max(0.0, anonymous_mib(child.pid) - self.inherited_mib) for child in alive)
        if held > self.job.memory_mib:
            return "memory", f"out of host memory: the ranks held {held:.0f} MiB of {self.job.memory_mib} MiB"
        self.sample_load(now, alive)
        silent = [child.state for child in alive if self.is_silent(child.state, now)]
        if silent or now > self.job.deadline_s:
            overload = self.overload(silent, now)
            reason = self.explain_hang(alive, now, max((state.silence(now) for state in silent), default=0.0))
            excuse = overload or why_not_begun([child.state for child in alive])
            return ("overload", f"{excuse}: {reason}") if excuse else ("hang", reason)
        return None

    def sample_load(self, now: float, alive: list[Child]) -> None:
        if now - self.load.sampled_at >= silence.SAMPLE_S:
            starved_s = self.load.sample(now, [child.pid for child in alive])
            for child in alive:
                child.state.starve(starved_s, now)

    def is_silent(self, state: RankState, now: float) -> bool:
        limit = self.job.silence_s
        return state.counted_silence(now) > limit or state.silence(now) > silence.LONGEST * limit

    def overload(self, silent: list[RankState], now: float) -> str:
        """Why the host, not the stack, may be to blame; empty if it had cores enough."""
        longest = max(silent, key=lambda state: state.counted_silence(now), default=None)
        if longest is None:
            since, starved_s = 0.0, self.load.starved_s
            is_starved = starved_s > silence.STARVED_SHARE * now
        else:
            since, starved_s = longest.last_event_at, longest.starved_s
            is_starved = longest.counted_silence(now) <= self.job.silence_s
        self.analysis_metrics["starved_s"] = round(starved_s, 3)
        if is_starved:
            return f"the host was overloaded, ranks waited for a core for {starved_s:.0f} of {now - since:.0f} s"
        crowd = self.load.crowd(since)
        if crowd >= silence.OVERLOADED:
            return f"the host was overloaded, {crowd:.1f} threads of other processes wanted each core"
        return ""

    def explain_hang(self, hung: list[Child], now: float, silence_s: float) -> str:
        """Analyse the ranks while they hang. ``silence_s`` is the longest silence; 0 if the deadline passed."""
        if silence_s:
            self.stopped_at = now - silence_s
            self.analysis_metrics["noticed_s"] = round(silence_s, 3)
        desync = self.analyse(hung)
        limit = self.silence_limit() if silence_s else f"not done in {self.job.deadline_s:g} s"
        return f"{limit}: {desync}" if desync else limit

    def silence_limit(self) -> str:
        why = f" ({self.job.silence_why})" if self.job.silence_why else ""
        return f"no sign of life for {self.job.silence_s:g} s{why}"

    def client_left(self) -> bool:
        if self.must_end:
            return True
        try:
            return self.client.recv(1, socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def analyse(self, hung: list[Child]) -> str:
        """Analyse ranks while they still hang; returns the collective that they disagree on."""
        found = hang_analysis.examine(
            Path(self.job.folder),
            {child.state.number: child.pid for child in hung},
            self.job.gpus,
            cut_short=lambda: self.must_end,
        )
        for child in hung:
            child.state.waiting_in = found.waiting_in[child.state.number]
        self.analysis_metrics["autopsy_s"] = round(found.seconds, 3)
        return found.desync

    def end_everything(self) -> int:
        """End the ranks, their groups and all other processes of this job.

        Returns:
            How many processes there were besides ranks and companions.
        """
        for child in self.children:
            child.state.ended_by_us = child.state.exit_code is None
            # A rank that was forked a moment ago may not lead its group yet; a reaped one may have passed on its pid.
            for end in (os.killpg, os.kill) if child.state.ended_by_us else (os.killpg,):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    end(child.pid, signal.SIGKILL)
        until = time.monotonic() + ENDS_S
        while self.alive() and time.monotonic() < until:
            for child in self.alive():
                if os.waitpid(child.pid, os.WNOHANG)[0]:
                    self.drain(child)
                    child.state.exit_code = -signal.SIGKILL
            time.sleep(ENDING_POLL_S)
        ended = process_tree.end_descendants(max(until, time.monotonic() + SWEEP_S))
        self.companions.note_ended()
        return len(ended - self.companions.running.keys() - {child.pid for child in self.children})

    def report(self, judgement: CellJudgement, began: datetime, left: int) -> CellReport:
        first = [state for state in self.states if state.number == 0]
        facts = {name: value for state in first for name, value in state.facts.items()}
        seconds = round(self.now, 4)
        return CellReport(
            name=self.job.name,
            verdict=judgement.verdict,
            reason=judgement.reason,
            phase=judgement.phase,
            checks=judgement.checks,
            error=judgement.error,
            metrics=self.metrics(judgement, seconds, left),
            facts={**facts, **({"failure": judgement.failure} if judgement.failure else {})},
            series=next((state.series for state in reversed(first) if state.series), {}),
            modules=tuple(sorted({name for state in self.states for name in state.modules})),
            late_modules=tuple(name for state in first for name in state.late_modules),
            started=began,
            seconds=seconds,
        )

    def metrics(self, judgement: CellJudgement, seconds: float, left: int) -> dict[str, float]:
        """The worst metrics of the ranks, and the supervisor's own measurements."""
        states = self.states
        found = worst_metrics(states) | by_rank(states) | self.analysis_metrics
        if judgement.verdict in {Verdict.HANG, Verdict.CRASH, Verdict.FAIL}:
            ends = [min(state.error_at, state.exit_at) for state in states if state.failed and not state.ended_by_us]
            found["aftermath_s"] = round(self.now - min([*ends, self.stopped_at]), 3)
        if self.alive():
            found["ranks_that_cannot_be_ended"] = float(len(self.alive()))
        if left:
            found["left_processes"] = float(left)
        last = max((min(state.exit_at, seconds) for state in states), default=seconds)
        return {**found, "closing_s": round(seconds - last, 4)}


def why_not_begun(states: list[RankState]) -> str:
    """Why ranks that hang say nothing about the stack: the driver has not given one of them its GPU; empty otherwise.

    On hosts with 64 busy cores that took more than 15 s in 5 of 402 runs.
    """
    waiting = [f"rank {state.number}" for state in states if state.waiting_in.startswith(STARTS_GPU)]
    return f"the driver had not started the GPU of {' and '.join(waiting)}" if waiting else ""
