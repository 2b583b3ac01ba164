"""One module starts processes, and ends all of them."""

from __future__ import annotations

import ast
import os
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from matrix import processes
from matrix.offline import joining
from matrix.processes import call

SLEEPER = "import time; time.sleep(600)"
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('armed', flush=True); time.sleep(600)"
)
PARENT = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {SLEEPER!r}])
print(child.pid, flush=True)
"""


STARTERS = ("subprocess", "multiprocessing", "pty")
MODULES = [
    path
    for layer in ("matrix", "reports")
    for path in sorted((Path(__file__).parents[2] / layer).rglob("*.py"))
    if path not in {Path(processes.__file__), Path(joining.__file__)}  # the latter is a script for hosts without us
    and "reproducers" not in path.parts  # scripts of plain library code, which import nothing of ours
    and "experiments/scripts" not in path.as_posix()
]


def imported_modules(path: Path) -> set[str]:
    """Top-level names of everything that a file imports, at any depth."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    from_imports = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    return {name.partition(".")[0] for name in plain | from_imports}


def test_no_other_module_of_the_harness_starts_processes() -> None:
    assert [path for path in MODULES if imported_modules(path) & set(STARTERS)] == []


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def alive(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:  # noqa: PTH123 - a pseudo-file
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    return False


def test_a_call_returns_the_exit_code_and_both_streams() -> None:
    done = call(python("import sys; print('out', flush=True); sys.exit('err')"), timeout_s=60)
    assert (done.exit_code, done.log) == (1, "out\nerr\n")


def test_a_signal_is_a_negative_exit_code() -> None:
    assert call(python("import os; os.kill(os.getpid(), 9)"), timeout_s=60).exit_code == -9


def test_a_passed_deadline_has_no_exit_code_but_the_output() -> None:
    done = call(python(f"print('so far', flush=True); {SLEEPER}"), timeout_s=1)
    assert done.exit_code is None
    assert done.log == "so far\n"


def test_a_child_that_outlives_its_parent_is_ended() -> None:
    done = call(python(PARENT), timeout_s=60)
    assert not alive(int(done.log))


def test_a_process_that_ignores_sigterm_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "GRACE_S", 0.1)
    assert call(python(STUBBORN), timeout_s=1).exit_code is None


def test_an_interrupt_ends_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []

    def interrupted(child: object, _timeout_s: float) -> int:
        started.append(child.pid)  # type: ignore[attr-defined]
        raise KeyboardInterrupt

    monkeypatch.setattr("subprocess.Popen.wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        call(python(SLEEPER), timeout_s=60)
    assert not alive(started[0])


def test_a_call_uses_the_given_variables_and_folder(tmp_path: Path) -> None:
    code = "import os; print(os.getcwd(), os.environ['COLOUR'])"
    done = call(python(code), timeout_s=60, env={"COLOUR": "green"}, cwd=tmp_path)
    assert done.log == f"{tmp_path} green\n"
