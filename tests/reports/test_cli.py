"""The command line: interruption, registration, and options that exclude each other."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from reports import cli

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Run the command line; return the exit code."""

    def run(*words: str) -> int:
        monkeypatch.setattr("sys.argv", ["ftmatrix", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return int(str(ended.value.code))

    return run


def stop(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("words", "where", "message"),
    [
        (
            ("run",),
            "matrix.run.both.parts",
            "interrupted; finished cells are kept; add --resume to the same command",
        ),
        (
            ("pack", "--sets", "newest", "--out", "x"),
            "matrix.offline.packing.pack",
            "interrupted; complete wheels are kept",
        ),
        (
            ("fix", "2026-11__train-lora-fsdp1-flatparams-fp32"),
            "reports.commands.runs.fix_search.search",
            "interrupted; finished cells are kept; add --resume to the same command",
        ),
        (
            ("pr", "--with", "."),
            "reports.commands.pr.compare_with_base",
            "interrupted; finished cells of both sides are kept; the same command continues",
        ),
        (("bench",), "matrix.experiments.bench_request.run", "ftmatrix: interrupted\n"),
    ],
)
def test_ctrl_c_tells_the_user_what_is_kept(
    command: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    where: str,
    message: str,
) -> None:
    monkeypatch.setattr(where, stop)
    assert command(*words) == 130
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("selfcheck", "--resume"), "--resume needs the directory of the selfcheck to resume"),
        (("selfcheck", "--resume", "--crashes", "--out", "x"), "--resume cannot continue a run of --crashes"),
        (("selfcheck", "--resume", "--disasters", "--out", "x"), "--resume cannot continue a run of --crashes"),
    ],
)
def test_selfcheck_refuses_what_it_cannot_resume(
    command: Callable[..., int], capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
) -> None:
    assert command(*words) == 2
    assert message in capsys.readouterr().err


def test_bench_does_not_measure_for_a_file_it_cannot_write(
    command: Callable[..., int], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert command("bench", "--out", str(tmp_path)) == 2
    assert "this is a folder; name a file" in capsys.readouterr().err


def test_the_old_name_of_crashes_is_accepted_and_not_shown(
    command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("selfcheck", "--help") == 0
    shown = capsys.readouterr().out
    assert ("--crashes" in shown, "--disasters" in shown) == (True, False)


def test_only_the_module_of_the_given_command_is_imported() -> None:
    start = "import sys; from reports import cli; cli.application(cli.named_first(['explain'])); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", start], check=True, capture_output=True, text=True)
    modules = {f"reports.commands.{name.replace('-', '_')}" for name in cli.COMMANDS}
    assert modules & {*done.stdout.split()} == {"reports.commands.explain"}


@pytest.mark.parametrize("words", [[], ["--help"], ["explan"]])
def test_help_and_errors_know_every_command(words: list[str]) -> None:
    assert cli.named_first(words) == cli.COMMANDS
