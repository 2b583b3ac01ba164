"""The command line as a user meets it."""

from __future__ import annotations

from typing import Protocol

import pytest

from reports import cli


class Command(Protocol):
    def __call__(self, *arguments: str) -> tuple[int, str, str]: ...


@pytest.fixture
def ftmatrix(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run the command line: exit code, output, what it said on stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["ftmatrix", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        return int(str(ended.value.code)), said.out, said.err

    return run
