"""Silence timeouts: how long a rank may go without an event before the supervisor takes it for hung.

Every phase and every training step is an event. The metric ``longest_silence_s`` of a cell shows the time that its
ranks really needed; the timeouts rest on it. Time in which a rank could run but waited for a core does not count: it
says something about the host, not about the stack.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cases.runtime import process_tree
from cases.runtime.process_tree import CoreTimes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cases.space.options import Options

SILENCE_S = {"cpu": 60.0, "cuda": 15.0, "cuda-gloo": 15.0}  # the harness has to notice a hang on GPUs within 20 s
# Calls that torch.compile compiles for a CPU; the first one on a machine compiles the headers, too.
COMPILING_CALLS = (
    "four_bit_blocksizes",
    "four_bit_codes",
    "four_bit_codes_of_small_blocks",
    "four_bit_odd_rows",
    "shapes_for_the_compiler",
)
# Calls that use BOFT, alone or among all methods. Where nvcc is installed, PEFT builds a CUDA kernel at its first use,
# also for a CPU, and all other ranks on the machine wait for it.
BUILDING_CALLS = ("by_method", "boft", "start_with_or_without_effect")  # parts of their names
PROBE_S = 60.0  # a probe tries one thing, and that may be a first compilation
SAMPLE_S = 1.0  # reading the times of all threads takes milliseconds
LONGEST = 4.0  # silence timeouts after which a rank is ended, however long it waited for a core
STARVED_SHARE = 1 / 3  # of a job's time: a job past its deadline that waited longer for cores shows nothing
OVERLOADED = 2.0  # runnable threads of others for each core: a rank may then wait for a process that is starved


@dataclass(frozen=True)
class SilenceTimeout:
    """A timeout in seconds. ``why`` explains a longer one than usual; reports of a hang show it."""

    silence_s: float
    why: str = ""


@dataclass(frozen=True)
class TimeoutRule:
    """A longer timeout for some cases."""

    applies: Callable[[Options], bool]
    timeout: SilenceTimeout


RULES = (
    TimeoutRule(
        lambda o: o.torch_compile or o.call in COMPILING_CALLS,
        SilenceTimeout(240.0, "torch.compile reports nothing while it compiles"),
    ),
    TimeoutRule(
        lambda o: any(each in o.call for each in BUILDING_CALLS),
        SilenceTimeout(240.0, "PEFT reports nothing while it builds BOFT's kernel"),
    ),
    TimeoutRule(
        lambda o: o.flow == "api", SilenceTimeout(60.0, "a call of the libraries reports nothing until it returns")
    ),
    TimeoutRule(lambda o: o.prequantised, SilenceTimeout(60.0, "the checkpoint is quantised and saved first")),
)


def usual(device: str) -> SilenceTimeout:
    return SilenceTimeout(SILENCE_S[device])


def timeout(options: Options, device: str) -> SilenceTimeout:
    """The longest timeout of the rules that apply to a case, and never less than the usual one."""
    longer = [rule.timeout for rule in RULES if rule.applies(options)]
    return max([usual(device), *longer], key=lambda each: each.silence_s)


@dataclass
class HostLoad:
    """How long the ranks of a job waited for a core, and how many threads of others wanted one while all ranks slept.

    A rank that sleeps may wait for a process of others that has no core. One that runs has a core itself.
    """

    times: dict[int, CoreTimes] = field(default_factory=dict)
    sampled_at: float = 0.0
    starved_s: float = 0.0
    others: list[tuple[float, float]] = field(default_factory=list)  # when, and their runnable threads for each core

    def sample(self, now: float, pids: Iterable[int]) -> float:
        """The seconds since the last sample in which the ranks, or one that the others wait for, were starved.

        Of several threads, the one that waited longest counts. A rank in a collective waits for the slowest one, so
        what starves one rank delays all.
        """
        times = {thread: each for pid in pids for thread, each in process_tree.core_times(pid).items()}
        before = {thread: self.times.get(thread, CoreTimes()) for thread in times}
        waits = [each.waited_s - before[thread].waited_s for thread, each in times.items()]
        wants = [wait + times[thread].ran_s - before[thread].ran_s for wait, thread in zip(waits, times, strict=True)]
        interval_s = max(now - self.sampled_at, SAMPLE_S)
        others = max(0.0, process_tree.runnable_threads() - sum(wants) / interval_s) / (os.cpu_count() or 1)
        is_asleep = max(wants, default=0.0) < interval_s / 2
        self.others.append((now, others if is_asleep else 0.0))
        self.times, self.sampled_at = times, now
        starved_s = min(max(waits, default=0.0), now - self.starved_s)
        self.starved_s += starved_s
        return starved_s

    def crowd(self, since: float) -> float:
        """The mean of the runnable threads of others for each core, 0 at times at which a rank did not sleep."""
        found = [threads for when, threads in self.others if when >= since]
        return sum(found) / len(found) if found else 0.0
