"""What the command line says when it is ended from outside, and of options that do not go together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from reports import cli

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Run the command line on words; its exit code."""

    def run(*words: str) -> int:
        monkeypatch.setattr("sys.argv", ["ftmatrix", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return int(str(ended.value.code))

    return run


def stop(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("words", "where", "said"),
    [
        (
            ("run",),
            "matrix.run.request.taken_up",
            "interrupted; finished cells are kept; the same command with --resume",
        ),
        (
            ("pack", "--sets", "newest", "--out", "x"),
            "matrix.offline.packing.pack",
            "interrupted; whole wheels are kept",
        ),
        (("bench",), "matrix.run.request.bench", "ftmatrix: interrupted\n"),
    ],
)
def test_ctrl_c_says_what_is_kept(
    command: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    where: str,
    said: str,
) -> None:
    monkeypatch.setattr(where, stop)
    assert command(*words) == 130
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("selfcheck", "--resume"), "--resume goes on with an earlier selfcheck: name its directory"),
        (("selfcheck", "--resume", "--disasters", "--out", "x"), "--disasters begins anew"),
    ],
)
def test_what_selfcheck_cannot_go_on_with_is_said(
    command: Callable[..., int], capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    assert command(*words) == 2
    assert said in capsys.readouterr().err


def test_bench_does_not_measure_for_a_file_it_cannot_write(
    command: Callable[..., int], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert command("bench", "--out", str(tmp_path)) == 2
    assert "a folder is there; name a file" in capsys.readouterr().err
