"""A fixture that runs the command line in this process."""

from __future__ import annotations

from typing import Protocol

import pytest

from matrix.run import machine
from reports import cli


class Command(Protocol):
    def __call__(self, *arguments: str) -> tuple[int, str, str]: ...


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``--device auto`` mean the CPU, on every machine."""
    monkeypatch.setattr(machine, "why_no_gpu", lambda: "this machine has no NVIDIA GPU")


@pytest.fixture
def ftmatrix(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run the command line; return the exit code, standard output and standard error."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["ftmatrix", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        printed = capsys.readouterr()
        return int(str(ended.value.code)), printed.out, printed.err

    return run
