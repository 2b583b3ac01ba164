"""The analysis of hanging ranks, with real processes, a fake driver and a fake flight recorder."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from cases.runtime import flight_recorder, hang_analysis

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


def fake_query(code: str) -> tuple[str, ...]:
    """A fake of the command that queries the driver."""
    return (sys.executable, "-c", code)


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
    found = hang_analysis.examine(tmp_path, ranks(tmp_path, 2), ())
    assert {call.split(" ")[0] for call in found.waiting_in.values()} == {"waits_for_the_others"}
    assert found.seconds < 5


def test_on_gpus_the_analysis_has_the_collective_and_the_devices(
    tmp_path: Path, ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hang_analysis, "DEVICES", fake_query("import sys; print(*sys.argv[1:], sep='\\n')"))
    flight_recorder.listen(tmp_path, 0, lambda: pickle.dumps({"entries": [entry(1), entry(2)]}))
    flight_recorder.listen(tmp_path, 1, lambda: pickle.dumps({"entries": [entry(1)]}))
    found = hang_analysis.examine(tmp_path, ranks(tmp_path, 2), ("GPU-0", "GPU-1"))
    assert "rank 1 never entered collective 2" in found.desync
    text = (tmp_path / hang_analysis.FILE).read_text()
    assert "GPU-0\nGPU-1\n" in text
    assert "rank 1 never entered collective 2" in text
    assert (tmp_path / "rank-0.collectives").read_text().splitlines()[-1] == (
        "    2  scheduled  all_reduce of [64, 32] Float  [group 0 default_pg]"
    )


def test_a_driver_that_does_not_answer_costs_only_its_timeout(
    tmp_path: Path, ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hang_analysis, "DEVICES", fake_query("import time; time.sleep(5)"))
    monkeypatch.setattr(hang_analysis, "DEVICES_S", 0.1)
    found = hang_analysis.examine(tmp_path, ranks(tmp_path, 1), ("GPU-0",))
    assert (found.desync, found.seconds < 4) == ("", True)
    text = (tmp_path / hang_analysis.FILE).read_text()
    assert "the driver did not answer in 0.1 s" in text


def test_a_driver_that_crashes_its_caller_crashes_only_the_query(
    tmp_path: Path, ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hang_analysis, "DEVICES", fake_query("import ctypes; ctypes.string_at(0)"))
    hang_analysis.examine(tmp_path, ranks(tmp_path, 1), ("GPU-0",))
    assert (
        "GPUs: the process that queried the driver ended with exit code -11"
        in (tmp_path / hang_analysis.FILE).read_text()
    )


def test_the_query_reports_a_missing_driver_or_gpu() -> None:
    """The real query, which imports nothing else of ours. A driver, if installed, knows no such GPU."""
    (line,) = hang_analysis.device_states(("GPU-0",))
    assert line.startswith(("GPUs: no NVIDIA driver", "GPU-0: "))


def test_a_rank_that_has_ended_meanwhile_is_no_error(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    found = hang_analysis.examine(tmp_path, {0: child.pid}, ())
    assert found.waiting_in == {0: ""}
    assert "wrote no stack" in (tmp_path / hang_analysis.FILE).read_text()


def test_the_state_of_a_rank_comes_from_the_kernel(ranks: Ranks, tmp_path: Path) -> None:
    ((number, pid),) = ranks(tmp_path, 1).items()
    text = hang_analysis.process_state(number, pid)
    assert re.fullmatch(rf"rank 0: process {pid}, [RSD] \(.*\).*, \d+ kB of memory", text), text


def test_a_rank_outside_any_process_group_is_named(tmp_path: Path, ranks: Ranks) -> None:
    flight_recorder.listen(tmp_path, 0, lambda: pickle.dumps({"entries": [entry(1)]}))
    hang_analysis.examine(tmp_path, ranks(tmp_path, 2), ())
    text = (tmp_path / hang_analysis.FILE).read_text().splitlines()
    assert "rank 1 is in no process group" in text
    assert "collectives: unknown" in text


SIGNAL_TO_ANOTHER_THREAD = """
import faulthandler, signal, sys, threading, time
stacks = open(sys.argv[1], "w")
faulthandler.register(signal.SIGUSR1, stacks, all_threads=True)
def takes_the_signal():
    time.sleep(0.3)
    signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
def waits_for_the_others():
    time.sleep(0.6)
threading.Thread(target=takes_the_signal).start()
waits_for_the_others()
"""


def test_the_stack_of_the_main_thread_counts_whichever_thread_got_the_signal(tmp_path: Path) -> None:
    stacks = tmp_path / "rank-0.stack"
    subprocess.run([sys.executable, "-c", SIGNAL_TO_ANOTHER_THREAD, str(stacks)], check=True)
    assert "takes_the_signal" in stacks.read_text().split("\n\n")[0]
    assert hang_analysis.innermost(stacks).startswith("waits_for_the_others (")


def test_collectives_are_dumped_after_the_stacks_are_written(tmp_path: Path, ranks: Ranks) -> None:
    """Python 3.12 crashed when it wrote the stack of a thread that was dumping collectives at the same time."""
    written: list[int] = []

    def dump() -> bytes:
        written.append((tmp_path / "rank-0.stack").stat().st_size)
        return pickle.dumps({"entries": [entry(1)]})

    hung = ranks(tmp_path, 2)
    flight_recorder.listen(tmp_path, 0, dump)
    hang_analysis.examine(tmp_path, hung, ())
    assert len(written) == 1
    assert written[0] == (tmp_path / "rank-0.stack").stat().st_size > 0


def test_a_truncated_stack_names_no_call(tmp_path: Path) -> None:
    stacks = tmp_path / "rank-0.stack"
    stacks.write_text(
        'Thread 0x1 (most recent call first):\n  File "a.py", line 5 in f\n  File Fatal Python error: S\n'
    )
    assert hang_analysis.innermost(stacks) == ""
