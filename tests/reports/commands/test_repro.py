"""``ftmatrix repro``: its script, its bug report and its refusals."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from reports import cli
from reports.commands import repro
from reports.commands.runs.repro_confirm import Confirmation

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Run = Callable[..., tuple[int, str, str]]

CELL = "2026-11__train-lora-fsdp1-bf16"
NAME = "2026_11_train_lora_fsdp1_bf16"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Exit code, stdout and stderr of ``ftmatrix repro``."""

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["ftmatrix", "repro", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return int(ended.value.code or 0), *capsys.readouterr()

    return call


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that sets the result of running a script, so that no test downloads torch."""

    def shows(*, same: bool) -> None:
        found = Confirmation(
            same=same, script_error="ValueError: it", cell_error="ValueError: it", log="Traceback\nit", seconds=9.0
        )
        monkeypatch.setattr(repro, "confirmed", lambda *_, **__: found)

    return shows


def test_the_script_is_printed(run: Run) -> None:
    code, out, err = run(CELL)
    assert (code, err) == (0, "")
    assert out.startswith("# /// script\n")


def test_the_script_is_written_to_a_file_or_under_its_name_into_a_folder(run: Run, tmp_path: Path) -> None:
    _, text, _ = run(CELL)
    assert run(CELL, "-o", str(tmp_path / "mine.py"))[:2] == (0, "")
    assert run(CELL, "-o", str(tmp_path))[2] == f"{tmp_path / NAME}.py\n"
    assert (tmp_path / "mine.py").read_text() == (tmp_path / f"{NAME}.py").read_text() == text


def test_the_issue_is_a_text_with_the_script(run: Run, tmp_path: Path) -> None:
    code, out, _ = run(CELL, "--issue")
    assert code == 0
    assert out.startswith("# LoRA + FSDP: ValueError: ")
    run(CELL, "--issue", "-o", str(tmp_path))
    assert (tmp_path / f"{NAME}.md").read_text() == out


@pytest.mark.parametrize(
    ("same", "code", "message"), [(True, 0, "Same failure, after 9 s."), (False, 1, "DIFFERENT result")]
)
def test_a_check_decides_the_exit_code(
    *, same: bool, code: int, message: str, run: Run, checked: Callable[..., None], tmp_path: Path
) -> None:
    checked(same=same)
    found = run(CELL, "--check", "--record", str(tmp_path / "record.json"))
    assert (found[0], message in found[2]) == (code, True)
    assert f'"same":{str(same).lower()}' in (tmp_path / "record.json").read_text().replace('": ', '":')


def test_a_confirmed_script_gives_the_issue_its_traceback(run: Run, checked: Callable[..., None]) -> None:
    checked(same=True)
    assert "## Traceback\n\n```\nTraceback\nit\n```" in run(CELL, "--check", "--issue")[1]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["2026-11__train-lora-fsdp1-bf61"], f"did you mean {CELL}"),
        (["2026-11__train-lora-ddp-bf16"], "is green: there is nothing to reproduce"),
        ([CELL, "--device", "tpu"], "--device tpu: unknown device"),
        ([CELL, "--record", "x.json"], "add --check"),
        ([CELL, "--results", "/no/such/folder"], "holds no results measured on cpu"),
        ([CELL, "-o", "/no/such/folder/x.py"], "cannot write the file"),
    ],
)
def test_bad_input_is_one_sentence(arguments: list[str], sentence: str, run: Run) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("ftmatrix: ")
    assert sentence in err
