"""Scripts of findings run isolated in an environment, and their exit codes are their answers."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from cases.space.verdict import Phase
from matrix.environments import leases
from matrix.environments.environment import Environment
from matrix.errors import UserError
from matrix.evidence import Evidence
from matrix.known import reproduction, script_runs
from matrix.known.script_runs import Answer, ScriptRecord, ScriptRun
from matrix.processes import Finished
from matrix.versions import sets

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

RUN = ScriptRun(
    finding="one",
    script="one.py",
    sha256="0",
    set="2026-11",
    lock="l",
    exit_code=1,
    line="found 2, expected 1",
    seconds=1.0,
    on=datetime(2026, 11, 22, tzinfo=UTC),
    hardware="cpu: A x 2",
)


class FakePython:
    """Prints a log with an exit code, and keeps what it was started with."""

    def __init__(self, exit_code: int | None, log: str) -> None:
        self.finished = Finished(exit_code=exit_code, log=log)
        self.argv: list[str] = []
        self.env: dict[str, str] = {}

    def __call__(self, argv: Any, *, env: Mapping[str, str] | None = None, **_: Any) -> Finished:
        self.argv, self.env = list(argv), dict(env or {})
        return self.finished


@contextmanager
def installed(folder: Path) -> Iterator[Environment]:
    lease = leases.acquire_shared(folder / "lease")
    yield Environment(key="2026-11", lock="l", backend="pypi", root=folder / "env", installed={}, lease=lease)
    lease.release()


def ran(folder: Path, python: FakePython) -> ScriptRun:
    (folder / "one.py").write_text("print()")
    with installed(folder) as environment:
        return reproduction.run("one", environment=environment, work=work(folder, call=python))


def work(folder: Path, **changed: Any) -> reproduction.ScriptWork:
    usual: dict[str, Any] = {
        "scripts": {"one": folder / "one.py"},
        "hardware": "cpu: A x 2",
        "install": lambda _: Evidence(phase=Phase.INSTALL, reason="no wheel"),
        "environ": {"PATH": "/bin", "PYTHONPATH": "/here", "HF_TOKEN": "x"},
    }
    return reproduction.ScriptWork(**{**usual, **changed})


@pytest.mark.parametrize(
    ("exit_code", "answer"),
    [
        (0, Answer.RIGHT),
        (1, Answer.SHOWN),
        (77, Answer.CANNOT_RUN),
        (2, Answer.UNCLEAR),
        (-11, Answer.UNCLEAR),
        (None, Answer.UNCLEAR),
    ],
)
def test_an_exit_code_is_an_answer(tmp_path: Path, exit_code: int | None, answer: Answer) -> None:
    assert ran(tmp_path, FakePython(exit_code, "found 2, expected 1")).answer is answer


@pytest.mark.parametrize(
    ("log", "line"),
    [
        ("a warning\ngradient: found 2, expected 1\n100%|###|\n", "gradient: found 2, expected 1"),
        ("this CPU has no AVX512-BF16\n", "this CPU has no AVX512-BF16"),
        ("", ""),
    ],
)
def test_the_line_with_both_values_is_kept_or_the_last_one(tmp_path: Path, log: str, line: str) -> None:
    assert ran(tmp_path, FakePython(1, log)).line == line


def test_a_script_runs_isolated_from_the_callers_python_and_tokens(tmp_path: Path) -> None:
    python = FakePython(0, "")
    ran(tmp_path, python)
    assert python.argv[:2] == [str(tmp_path / "env" / "bin" / "python"), "-I"]
    assert {"PYTHONPATH", "HF_TOKEN"}.isdisjoint(python.env)


def test_the_environments_folder_is_not_recorded(tmp_path: Path) -> None:
    found = ran(tmp_path, FakePython(2, f"ImportError: {tmp_path / 'env'}/lib"))
    assert found.line == "ImportError: <environment>/lib"


def test_a_set_that_cannot_be_installed_is_reported_and_left_out(tmp_path: Path) -> None:
    said: list[str] = []
    assert list(reproduction.measure(sets.load()[:1], work(tmp_path, say=said.append))) == []
    assert "cannot be installed: no wheel" in said[0]


def test_a_run_replaces_that_of_the_same_set_and_hardware() -> None:
    elsewhere = RUN.model_copy(update={"hardware": "cpu: B x 2"})
    record = ScriptRecord(runs=(RUN, elsewhere)).with_runs([RUN.model_copy(update={"exit_code": 0})])
    assert [(each.hardware, each.exit_code) for each in record.of("one")] == [("cpu: A x 2", 0), ("cpu: B x 2", 1)]


def test_a_run_replaces_those_of_another_version_of_the_script_on_its_set() -> None:
    elsewhere = RUN.model_copy(update={"hardware": "cpu: B x 2"})
    other_set = RUN.model_copy(update={"set": "2026-09"})
    changed = RUN.model_copy(update={"sha256": "1"})
    assert ScriptRecord(runs=(elsewhere, other_set)).with_runs([changed]).runs == (other_set, changed)


def test_a_record_survives_writing_and_reading(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(script_runs.text(ScriptRecord(runs=(RUN,))))
    assert script_runs.read(tmp_path / "r.json").runs == (RUN,)


def test_another_file_is_no_record(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text("[]")
    with pytest.raises(UserError, match="no record of reproducers"):
        script_runs.read(tmp_path / "r.json")
