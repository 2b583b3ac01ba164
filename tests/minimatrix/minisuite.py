"""A suite of small cases that misbehave, one way each. A case's name begins with the verdict it has to get.

It takes the place of ``cases/suite.py`` (``--suite minisuite``) and needs only the standard library and the fake
packages. Each cell that starts leaves a line in the folder FTMATRIX_MINISUITE_NOTES, so that tests can count them.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

from cases.runtime import process_tree, silence
from cases.space.verdict import PROBING, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from cases.runtime.case_suite import CaseSuite
    from cases.runtime.silence import SilenceTimeout
    from cases.runtime.wire import CellReport, Job

QUICK = 24  # cases that only pass, to have something to interrupt
ODD = "\x00\x1b[31m</script> \u202e \ud800 \U0001f600 {{ 7 * 7 }} &amp; |"
JSON_LIKE = '{"done": true}\n{"name": "passes", "verdict": "pass", "checks": []}\n{"error": {\n'
WHEN_FREED_MIB = 2000  # an allocation that nobody stops ends by itself before the machine suffers


@dataclass(frozen=True)
class Nothing:
    """The options of a case without options."""

    flow = "train"
    stated = {"flow": "train"}  # noqa: RUF012 - read only


@dataclass(frozen=True)
class Need:
    name: str
    because: str
    ranks: int = 1


@dataclass(frozen=True)
class MiniCase:
    id: str
    body: Callable[[Rank], None]
    ranks: int = 1
    needs: tuple[Need, ...] = ()
    twin: Callable[[], None] | None = None  # any: it has one, which works unless it is `bad_twin`
    group: str = "mini"
    why: str = "it misbehaves in one way"
    options: Nothing = Nothing()
    source: str = ""
    stages: tuple[int, ...] = ()  # the number of ranks of each, if there are several


@dataclass(frozen=True)
class Rank:
    """One rank of a case: its number, its job and its reporter."""

    number: int
    job: Job
    reporter: Any
    twin: Callable[[], Iterator[None]]
    stage: int = 0

    @property
    def folder(self) -> Path:
        return Path(self.job.folder)

    def meet(self) -> None:
        """Wait for every other rank, as a collective would."""
        (self.folder / f"here-{self.number}").touch()
        while len(list(self.folder.glob("here-*"))) < self.job.ranks:
            time.sleep(0.005)

    def fine(self) -> None:
        self.reporter.checks([equal("steps", 3, 3), at_most("gradient", 0.01, 0.06)])


def passes(rank: Rank) -> None:
    rank.fine()


def runs_two_stages(rank: Rank) -> None:
    """The second stage finds a file of the first one, in another process."""
    left = rank.folder / f"pid-{rank.number}-of-the-first"
    if rank.stage == 0:
        left.write_text(str(os.getpid()))
    rank.reporter.checks([equal("a process of its own", left.read_text() != str(os.getpid()), rank.stage == 1)])


def raises_in_the_second_stage(rank: Rank) -> None:
    rank.fine()
    if rank.stage == 1:
        raise ValueError("what was saved cannot be read")


def raises_in_the_first_stage(rank: Rank) -> None:
    rank.fine()
    raise ValueError(f"stage {rank.stage}")


SILENCE_S = 0.05  # between two events of ``meets``


def meets(rank: Rank) -> None:
    rank.meet()
    rank.fine()
    time.sleep(SILENCE_S)
    rank.fine()


def prints(rank: Rank) -> None:
    for stream in (1, 2):
        os.write(stream, bytes(range(256)) * 4096)
        os.write(stream, JSON_LIKE.encode())
    rank.fine()


def prints_and_raises(rank: Rank) -> NoReturn:
    prints(rank)
    raise ValueError("after a megabyte of garbage")


def leaves_children(rank: Rank) -> None:
    sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
    subprocess.Popen(sleeper)
    subprocess.Popen(sleeper, start_new_session=True)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(600)
        os._exit(0)
    rank.fine()


def leaves_children_and_hangs(rank: Rank) -> None:
    leaves_children(rank)
    time.sleep(600)


def raises(_: Rank) -> NoReturn:
    raise ValueError("the stack says no\nand then some")


def raises_odd_text(_: Rank) -> NoReturn:
    raise RuntimeError(ODD * 300)


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise TypeError("this error cannot be shown")


def raises_unspeakable(_: Rank) -> NoReturn:
    raise UnspeakableError


def exits(_: Rank) -> NoReturn:
    sys.exit(3)


def raises_on_rank_1(rank: Rank) -> None:
    if rank.number == 1:
        raise ValueError("rank 1 says no")
    time.sleep(600)


def imports_what_is_not_there(_: Rank) -> None:
    import bitsandbytes.missing  # noqa: F401 - the fake one has no such module


def misses_a_check(rank: Rank) -> None:
    rank.reporter.checks([at_most("loss", 0.001, 0.01), at_most("gradient", 2.0 if rank.number else 0.01, 0.06)])


def measures_no_number(rank: Rank) -> None:
    rank.reporter.checks([at_most("gradient", float("nan"), 0.06), at_most("weights", float("inf"), 0.06)])


def loops_on_rank_0(rank: Rank) -> None:
    while rank.number == 0:
        pass
    time.sleep(600)


def stops(_: Rank) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def beats_for_ever(rank: Rank) -> None:
    while True:
        rank.reporter.beat()
        time.sleep(0.05)


def reads_nowhere(_: Rank) -> None:
    ctypes.string_at(0)


def kills_itself_on_rank_1(rank: Rank) -> None:
    if rank.number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)


def misses_rank_1(rank: Rank) -> None:
    """Raise the error of gloo for a missing rank, before the supervisor notices that the rank is missing."""
    if rank.number == 1:
        os._exit(3)
    raise RuntimeError("[pair.cc:534] Connection closed by peer [127.0.0.1]:1234")


def breaks_its_gpu(_: Rank) -> NoReturn:
    raise RuntimeError("CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be")


def is_ended_by_a_library(_: Rank) -> None:
    """Raise the error of bitsandbytes for a failed kernel."""
    os.write(2, b"Error an illegal memory access was encountered at line 90 in file /src/csrc/ops.cu\n")
    os._exit(1)


def vanishes(_: Rank) -> None:
    os._exit(0)


def vanishes_with_7(_: Rank) -> None:
    os._exit(7)


def closes_every_file(rank: Rank) -> None:
    os.closerange(3, 256)
    rank.fine()


def takes_all_memory(rank: Rank) -> None:
    held: list[bytes] = []
    while len(held) * 16 < WHEN_FREED_MIB:
        held.append(b"\1" * (16 * 2**20))
        rank.reporter.beat()
    raise MemoryError("nobody minded")


def says_nothing(_: Rank) -> None:
    pass


def asks_its_twin(rank: Rank) -> None:
    for _ in rank.twin():
        rank.reporter.beat()
    rank.fine()


def good_twin(path: Path) -> None:
    path.write_text("reference")


def bad_twin() -> NoReturn:
    raise ArithmeticError("no reference today")


CASES = {
    case.id: case
    for case in (
        MiniCase("pass-plain", passes),
        MiniCase("pass-on-two-ranks", meets, ranks=2),
        MiniCase("pass-printing-garbage", prints, ranks=2),
        MiniCase("pass-leaving-children", leaves_children),
        MiniCase("pass-in-two-stages", runs_two_stages, stages=(2, 1), ranks=2),
        MiniCase("fail-in-the-second-stage", raises_in_the_second_stage, stages=(2, 1), ranks=2),
        MiniCase("fail-in-the-first-stage", raises_in_the_first_stage, stages=(1, 1)),
        MiniCase("pass-with-a-twin", asks_its_twin, ranks=2, twin=lambda: None),
        MiniCase("pass-where-a-need-is-met", passes, needs=(Need("met", "never said"),)),
        MiniCase("fail-raising", raises),
        MiniCase("fail-raising-on-rank-1", raises_on_rank_1, ranks=2),
        MiniCase("fail-raising-odd-text", raises_odd_text),
        MiniCase("fail-raising-unspeakable", raises_unspeakable),
        MiniCase("fail-printing-garbage", prints_and_raises),
        MiniCase("fail-exiting", exits),
        MiniCase("fail-importing", imports_what_is_not_there),
        MiniCase("wrong-numbers-on-rank-1", misses_a_check, ranks=2),
        MiniCase("wrong-no-number", measures_no_number),
        MiniCase("hang-looping-on-rank-0", loops_on_rank_0, ranks=2),
        MiniCase("hang-stopped", stops),
        MiniCase("hang-beating-for-ever", beats_for_ever),
        MiniCase("hang-leaving-children", leaves_children_and_hangs),
        MiniCase("crash-segfault", reads_nowhere),
        MiniCase("crash-killed-on-rank-1", kills_itself_on_rank_1, ranks=2),
        MiniCase("crash-missed-by-the-other", misses_rank_1, ranks=2),
        MiniCase("crash-breaking-a-gpu", breaks_its_gpu),
        MiniCase("crash-by-a-library", is_ended_by_a_library),
        MiniCase("crash-vanishing", vanishes),
        MiniCase("crash-vanishing-with-7", vanishes_with_7),
        MiniCase("crash-closing-every-file", closes_every_file),
        MiniCase("crash-out-of-memory", takes_all_memory),
        MiniCase("skip-for-a-need", passes, needs=(Need("met", "never said"), Need("unmet", "this peft lacks it"))),
        MiniCase("pass-where-the-probe-crashes", passes, needs=(Need("crashing", "needs a GPU"),)),
        MiniCase("lost-without-its-twin", asks_its_twin, twin=bad_twin),
        MiniCase("lost-saying-nothing", says_nothing),
        *(MiniCase(f"pass-quick-{number:02}", passes, group="quick") for number in range(QUICK)),
        MiniCase("hang-among-the-quick", leaves_children_and_hangs, ranks=2, group="slow"),
    )
}


class MiniSuite:
    """A suite with the cases above."""

    cases = CASES
    profiles: Mapping[str, Any] = MappingProxyType({})

    def preload(self, *, to_fork: bool = False) -> None:  # noqa: ARG002 - nothing here could touch a GPU
        import bitsandbytes  # noqa: F401
        import torch  # noqa: F401

    def why_unforkable(self) -> str:
        import torch

        if torch.cuda_is_initialised:
            return "importing the stack initialised CUDA"
        if threading.active_count() > 1:
            return f"importing the stack started threads: {', '.join(t.name for t in threading.enumerate()[1:])}"
        return ""

    def requirements(self, name: str, device: str) -> Sequence[Need]:  # noqa: ARG002 - the protocol's
        return self.cases[name].needs

    def why_settled(self, name: str, session: Path) -> str:  # noqa: ARG002 - the protocol's
        return ""

    def note(self, report: CellReport, session: Path) -> None: ...

    def silence_timeout(self, name: str, device: str) -> SilenceTimeout:  # noqa: ARG002 - the protocol's
        return silence.usual(device)

    def companions(self, job: Job) -> dict[str, Callable[[], None]]:
        ignore_the_load_of_this_host()
        case = self.cases.get(job.name)
        if job.kind != "cell" or case is None or case.twin is None:
            return {}
        path = twin_path(job)
        return {str(path): bad_twin if case.twin is bad_twin else lambda: good_twin(path)}

    def stages(self, job: Job) -> list[tuple[int, int]]:
        ranks = self.cases[job.name].stages if job.kind == "cell" else ()
        return list(enumerate(ranks or (job.ranks,)))

    def run(self, job: Job, rank: int, stage: int, companion: Callable[[str], Iterator[None]], reporter: Any) -> None:
        if job.kind == "facts":
            import torch

            reporter.facts({"torch": torch.__version__, "python": sys.version.split()[0]})
        elif job.kind == "probe":
            reporter.facts({PROBING: True})
            PROBES[job.name]()
        else:
            if stage == 0:
                note(job, rank)
            reporter.phase(Phase.FORWARD)
            ctx = Rank(rank, job, reporter, lambda: companion(str(twin_path(job))), stage)
            self.cases[job.name].body(ctx)


def no_times(pid: int) -> dict[int, process_tree.CoreTimes]:  # noqa: ARG001 - as the function that it replaces
    return {}


def ignore_the_load_of_this_host() -> None:
    """Let the supervisor see what a kernel that reports no load shows: a hang is one beside other tests, too."""
    process_tree.core_times = no_times
    process_tree.runnable_threads = lambda: 0


SUITE: CaseSuite = MiniSuite()


def twin_path(job: Job) -> Path:
    return Path(job.cache) / f"twin-{job.name}"


def lacking() -> None:
    raise AttributeError("there is no such option")


PROBES: dict[str, Callable[[], object]] = {
    "met": list,
    "unmet": lacking,
    "crashing": lambda: ctypes.string_at(0),
}


def note(job: Job, rank: int) -> None:
    """One line per start of a cell, in one write, so that lines of several ranks do not mix."""
    folder = os.environ.get("FTMATRIX_MINISUITE_NOTES")
    if folder and rank == 0:
        with (Path(folder) / "started").open("ab", buffering=0) as file:
            file.write(f"{job.name}\n".encode())
