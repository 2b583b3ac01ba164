"""Tests how the end of a user's command is judged, on real processes: exceptions, signals, launchers, missing programs.

The launchers here print what torchrun and others print; ``tests/real`` runs the real ones.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cases.flows import script_end, script_process
from cases.flows.script_end import ScriptError

if TYPE_CHECKING:
    from cases.flows.script_process import FinishedScript

ROOT = Path(__file__).parents[3]
TABLE = """
Root Cause (first observed failure):
[0]:
  time      : 2026-11-20_10:00:00
  host      : localhost
  rank      : {rank} (local_rank: {rank})
  exitcode  : {code} (pid: 7)
"""
# Starts two ranks and, like torchrun, ends with its own error.
LAUNCHER = """
import os, subprocess, sys
ranks = [subprocess.Popen([sys.executable, "-c", sys.argv[1]], env={**os.environ, "RANK": str(n)}) for n in (0, 1)]
codes = [rank.wait() for rank in ranks]
print(open(sys.argv[2]).read() if len(sys.argv) > 2 else "", file=sys.stderr)
class ChildFailedError(Exception): pass
raise ChildFailedError("train.py FAILED")
"""
FIRST_ONE = """
import os, time
if os.environ["RANK"] == "1":
    raise ValueError("the cause")
time.sleep(0.7)
raise RuntimeError("Connection closed by peer")
"""


def finished(folder: Path, *words: str, **variables: str) -> FinishedScript:
    """Run a command as a cell does."""
    own = {"PYTHONPATH": script_process.HOOK, script_process.STACKS_AT: str(time.time() + 60), **variables}
    return script_process.run(words, folder=str(folder), variables=own, log=folder / "out.log", beat=lambda: None)


def python(folder: Path, program: str, *words: str) -> FinishedScript:
    return finished(folder, sys.executable, "-c", program, *words)


def failure(found: FinishedScript) -> tuple[str, str, dict[str, Any]]:
    """The name of the type, the message and the facts of the exception."""
    facts: dict[str, Any] = {}
    with pytest.raises(ScriptError) as raised:
        script_end.raise_failure(found, facts.update)
    return raised.type.__name__, str(raised.value), facts


def ending(found: FinishedScript) -> tuple[int, dict[str, Any], str]:
    """The exit code, the facts and the output of a process that judges the command; the facts are its first line."""
    program = (
        "import sys; from cases.flows import script_end; from cases.flows.script_process import *;"
        f"script_end.raise_failure({found!r}, lambda facts: print(facts, flush=True))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    first, _, rest = done.stdout.partition("\n")
    return done.returncode, dict(eval(first or "{}")), rest  # noqa: S307 - our own output


def test_success_raises_nothing(tmp_path: Path) -> None:
    script_end.raise_failure(python(tmp_path, "print(1)"), lambda _: None)


def test_an_exception_has_the_type_the_message_and_the_frame_of_the_script(tmp_path: Path) -> None:
    found = python(tmp_path, "def train():\n    raise KeyError('column')\ntrain()")
    with pytest.raises(ScriptError) as raised:
        script_end.raise_failure(found, lambda _: None)
    assert (raised.type.__name__, str(raised.value)) == ("KeyError", "'column'")
    assert "line 2, in train" in raised.value.log


def test_the_rank_that_died_first_counts_not_its_launcher(tmp_path: Path) -> None:
    assert failure(python(tmp_path, LAUNCHER, FIRST_ONE)) == ("ValueError", "the cause", {"script_rank": 1})


def test_a_consequence_counts_if_no_rank_shows_a_cause(tmp_path: Path) -> None:
    program = "raise RuntimeError('Connection reset by peer')"
    assert failure(python(tmp_path, LAUNCHER, program))[:2] == ("RuntimeError", "Connection reset by peer")


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGABRT", "SIGKILL", "SIGTERM", "SIGBUS"])
def test_this_process_ends_by_the_signal_that_ended_the_command(tmp_path: Path, name: str) -> None:
    number = signal.Signals[name]
    found = python(tmp_path, f"import os; print('last words', flush=True); os.kill(os.getpid(), {number.value})")
    code, facts, output = ending(found)
    assert (code, facts) == (-number, {"script_end": f"the command was ended by {name}"})
    assert "last words" in output


def test_a_signal_that_ended_a_rank_of_torchrun_names_the_rank(tmp_path: Path) -> None:
    (tmp_path / "table").write_text(TABLE.format(rank=1, code=-11))
    found = python(tmp_path, LAUNCHER, "import os; os._exit(1)", str(tmp_path / "table"))
    expected = {"script_end": "rank 1 of the script was ended by SIGSEGV", "script_rank": 1}
    assert ending(found)[:2] == (-signal.SIGSEGV, expected)


def test_an_abort_after_the_error_of_another_rank_is_no_crash(tmp_path: Path) -> None:
    (tmp_path / "table").write_text(TABLE.format(rank=0, code=-6))
    found = python(tmp_path, LAUNCHER, FIRST_ONE, str(tmp_path / "table"))
    assert failure(found) == ("ValueError", "the cause", {"script_rank": 1})


def test_a_segmentation_fault_precedes_the_errors_of_other_ranks(tmp_path: Path) -> None:
    (tmp_path / "table").write_text(TABLE.format(rank=0, code=-11))
    found = python(tmp_path, LAUNCHER, FIRST_ONE, str(tmp_path / "table"))
    assert ending(found)[0] == -signal.SIGSEGV


@pytest.mark.parametrize(
    ("line", "clause"),
    [
        ("CalledProcessError: Command 'x' died with <Signals.SIGSEGV: 11>.", "the command was ended by SIGSEGV"),
        ("process 3 terminated with signal SIGKILL", "rank 3 of the script was ended by SIGKILL"),
        ("Process 7 exits with return code = -9", "the command was ended by SIGKILL"),
    ],
)
def test_launchers_name_signals_in_their_own_words(tmp_path: Path, line: str, clause: str) -> None:
    assert str(script_end.signal_of(python(tmp_path, f"print({line!r}); raise SystemExit(1)"))) == clause


def test_a_shell_reports_a_signal_by_its_exit_code(tmp_path: Path) -> None:
    found = finished(tmp_path, "sh", "-c", f"{sys.executable} -c 'import os; os.abort()'; exit $?")
    assert (found.code, str(script_end.signal_of(found))) == (134, "the command was ended by SIGABRT")


def test_an_ordinary_exit_code_has_no_signal(tmp_path: Path) -> None:
    found = finished(tmp_path, "sh", "-c", "echo no space; exit 3")
    assert failure(found) == ("ScriptError", "exit code 3: no space", {})


def test_a_command_that_cannot_be_started_says_why(tmp_path: Path) -> None:
    assert failure(finished(tmp_path, "./nowhere")) == (
        "ScriptError",
        "'./nowhere' cannot be started: No such file or directory",
        {},
    )


def test_an_exception_in_a_worker_of_multiprocessing_is_read_from_the_output(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(
        "import multiprocessing\n"
        "def work(): raise ValueError('in a worker')\n"
        "if __name__ == '__main__':\n"
        "    child = multiprocessing.get_context('spawn').Process(target=work)\n"
        "    child.start(); child.join(); raise SystemExit(child.exitcode)\n"
    )
    assert failure(finished(tmp_path, sys.executable, "work.py"))[:2] == ("ValueError", "in a worker")


def test_a_sitecustomize_of_the_user_runs_as_well(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('mine')\n")
    path = f"{script_process.HOOK}:{tmp_path}"
    assert finished(tmp_path, sys.executable, "-c", "1", PYTHONPATH=path).output == "mine\n"


def test_a_process_leaves_its_stacks_shortly_before_the_deadline(tmp_path: Path) -> None:
    late = {script_process.STACKS_AT: str(time.time() + 0.8), "RANK": "1"}
    finished(tmp_path, sys.executable, "-c", "import time\ndef wait(): time.sleep(3)\nwait()", **late)
    (stack,) = tmp_path.glob("rank-1-*.stack")
    assert "in wait" in stack.read_text()
