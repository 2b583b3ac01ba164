"""``ftmatrix known`` on stored results: which results judge which cells of a problem."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from matrix.run.outcome import ErrorRecord

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from matrix.run.outcome import Outcome, SetRecord

    Command = Callable[..., tuple[int, str, str]]
    RunOf = Callable[[str, str], Path]

CASE = "train-lora-ddp-fp32"
ROW = """
[[problem]]
id = "one"
title = "two devices"
links = ["huggingface/peft#1"]
needs = "a GPU"
red = [{ case = "train-lora-ddp-fp32", sets = ["2024-06"], device = "cuda", shows = "two devices" }]
"""


@pytest.fixture
def run_of(
    write_run: Callable[..., Path], build_set: Callable[..., SetRecord], build_outcome: Callable[..., Outcome]
) -> RunOf:
    """``run_of("cuda", "fail")``: the folder of a run on that device, of one cell."""

    def written(device: str, verdict: str) -> Path:
        hardware, facts = f"{device}: test", {"driver": "580"} if device == "cuda" else {}
        error = ErrorRecord(type="RuntimeError", message="two devices") if verdict == "fail" else None
        outcome = build_outcome(CASE, "2024-06", verdict, lock="abc-pypi", hardware=hardware, error=error)
        columns = [build_set("2024-06", lock="abc")]
        return write_run(outcome, name=device, columns=columns, device=device, hardware=hardware, facts=facts)

    return written


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "known.toml"
    path.write_text(ROW)
    return path


def test_published_results_on_gpus_judge_what_a_cpu_cannot(
    tmp_path: Path, table: Path, run_of: RunOf, ftmatrix: Command
) -> None:
    run, published, out = run_of("cpu", "pass"), tmp_path / "published", tmp_path / "new" / "folder"
    ftmatrix("report", str(run_of("cuda", "fail")), "--publish", str(published))
    options = ("--results", str(run), "--table", str(table), "--gpu-results", str(published), "--out", str(out))
    code, printed, _ = ftmatrix("known", *options)
    assert (code, printed.split()[:2]) == (0, ["reproduced", "one"])
    assert "; cuda: test, driver 580, " in (out / "known_problems.md").read_text()


@pytest.mark.parametrize(("verdict", "status"), [("fail", "reproduced"), ("pass", "not reproduced")])
def test_a_run_on_gpus_judges_them_itself(
    verdict: str, status: str, table: Path, run_of: RunOf, ftmatrix: Command
) -> None:
    code, printed, _ = ftmatrix("known", "--results", str(run_of("cuda", verdict)), "--table", str(table))
    assert (code, printed.startswith(status)) == (0, True)


def test_a_folder_without_results_on_gpus_is_bad_input(
    tmp_path: Path, table: Path, run_of: RunOf, ftmatrix: Command
) -> None:
    options = ("--results", str(run_of("cpu", "pass")), "--table", str(table), "--gpu-results", str(tmp_path / "no"))
    code, _, complaint = ftmatrix("known", *options)
    assert code == 2
    assert f"{tmp_path / 'no'}: holds no results measured on GPUs" in complaint


def test_bad_results_on_gpus_are_refused_before_any_cell_runs(tmp_path: Path, table: Path, ftmatrix: Command) -> None:
    out = tmp_path / "out"
    options = ("--table", str(table), "--gpu-results", str(tmp_path / "no"), "--device", "cpu", "--out", str(out))
    code, _, complaint = ftmatrix("known", *options)
    assert (code, out.exists()) == (2, False)
    assert f"{tmp_path / 'no'}: holds no results measured on GPUs" in complaint
