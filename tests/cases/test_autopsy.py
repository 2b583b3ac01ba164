"""Ranks that hang are looked at: real processes, with a driver and a flight recorder that are played."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from cases import autopsy, flight, nvml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Ranks = Callable[[Path, int], dict[int, int]]

HUNG = """
import faulthandler, signal, sys, time
stacks = open(sys.argv[1], "w")
faulthandler.register(signal.SIGUSR1, stacks, all_threads=True)
def waits_for_the_others():
    print(flush=True)
    time.sleep(60)
waits_for_the_others()
"""


@pytest.fixture
def ranks() -> Iterator[Ranks]:
    """Processes that hang, by rank."""
    started: list[subprocess.Popen[bytes]] = []

    def start(folder: Path, count: int) -> dict[int, int]:
        for number in range(count):
            command = [sys.executable, "-c", HUNG, str(folder / f"rank-{number}.stack")]
            started.append(subprocess.Popen(command, stdout=subprocess.PIPE))
            assert started[-1].stdout is not None
            started[-1].stdout.readline()
        return {number: child.pid for number, child in enumerate(started)}

    yield start
    for child in started:
        child.kill()
        child.communicate()


class Driver:
    def state(self, uuid: str) -> nvml.State:
        return nvml.State(nvml.Gpu(uuid, "NVIDIA H200", 0), (("memory used", "900 MiB"), ("temperature", "40 C")))


class Unanswering:
    def state(self, _uuid: str) -> nvml.State:
        time.sleep(5)
        raise AssertionError


def entry(number: int) -> dict[str, Any]:
    return {
        "process_group": ("0", "default_pg"),
        "collective_seq_id": number,
        "profiling_name": "nccl:all_reduce",
        "input_sizes": [[64, 32]],
        "input_dtypes": ["Float"],
        "state": "scheduled",
    }


def test_the_call_that_each_rank_waits_in_is_found(tmp_path: Path, ranks: Ranks) -> None:
    found = autopsy.examine(tmp_path, ranks(tmp_path, 2), ())
    assert {call.split(" ")[0] for call in found.waiting_in.values()} == {"waits_for_the_others"}
    assert found.seconds < 5


def test_on_gpus_the_collective_is_named_and_the_devices_are_told_of(
    tmp_path: Path, ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml, "Driver", Driver)
    flight.listen(tmp_path, 0, lambda: pickle.dumps({"entries": [entry(1), entry(2)]}))
    flight.listen(tmp_path, 1, lambda: pickle.dumps({"entries": [entry(1)]}))
    found = autopsy.examine(tmp_path, ranks(tmp_path, 2), ("GPU-0", "GPU-1"))
    assert "rank 1 never entered collective 2" in found.desync
    told = (tmp_path / autopsy.FILE).read_text()
    assert "GPU 0 (NVIDIA H200): memory used 900 MiB, temperature 40 C" in told
    assert "rank 1 never entered collective 2" in told
    assert (tmp_path / "rank-0.collectives").read_text().splitlines()[-1] == (
        "    2  scheduled  all_reduce of [64, 32] Float  [group 0 default_pg]"
    )


def test_what_does_not_answer_costs_only_its_time(
    tmp_path: Path, ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml, "Driver", Unanswering)
    monkeypatch.setattr(autopsy, "DEVICES_S", 0.1)
    found = autopsy.examine(tmp_path, ranks(tmp_path, 1), ("GPU-0",))
    assert (found.desync, found.seconds < 4) == ("", True)
    told = (tmp_path / autopsy.FILE).read_text()
    assert "the driver did not answer in 0.1 s" in told


def test_without_a_driver_that_is_said(tmp_path: Path, ranks: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "LIBRARY", "libnothing.so.1")
    autopsy.examine(tmp_path, ranks(tmp_path, 1), ("GPU-0",))
    assert "UnavailableError: no NVIDIA driver" in (tmp_path / autopsy.FILE).read_text()


def test_a_rank_that_is_gone_meanwhile_breaks_nothing(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    found = autopsy.examine(tmp_path, {0: child.pid}, ())
    assert found.waiting_in == {0: ""}
    assert "wrote no stack" in (tmp_path / autopsy.FILE).read_text()


def test_the_kernel_is_asked_what_a_rank_does(ranks: Ranks, tmp_path: Path) -> None:
    ((number, pid),) = ranks(tmp_path, 1).items()
    told = autopsy.process_state(number, pid)
    assert re.fullmatch(rf"rank 0: process {pid}, [RSD] \(.*\).*, \d+ kB of memory", told), told


def test_who_never_joined_the_others_is_said(tmp_path: Path, ranks: Ranks) -> None:
    flight.listen(tmp_path, 0, lambda: pickle.dumps({"entries": [entry(1)]}))
    autopsy.examine(tmp_path, ranks(tmp_path, 2), ())
    told = (tmp_path / autopsy.FILE).read_text().splitlines()
    assert "rank 1 is in no process group" in told
    assert "collectives: unknown" in told
