"""The history: idempotent, whole files, one line to read."""

from __future__ import annotations

import time
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from matrix.errors import UserError
from reports.render.text.history_text import lines
from reports.results import history

if TYPE_CHECKING:
    from pathlib import Path


def row(day: str, verdict: str = "pass", **other: Any) -> dict[str, Any]:
    night = datetime.fromisoformat(day)
    usual = {"night": night, "device": "cpu", "hardware": "cpu: test", "set": "2024-06", "case": "train-lora-ddp-fp32"}
    return {**usual, "repeat": 1, "verdict": verdict, "seconds": 1.0, **other}


def test_a_night_added_twice_is_one(tmp_path: Path) -> None:
    history.add(tmp_path, [row("2026-11-20", "fail")])
    assert history.add(tmp_path, [row("2026-11-20")]).replaced == 1
    assert history.read(tmp_path)["verdict"].tolist() == ["pass"]


def test_other_nights_and_hardware_stay(tmp_path: Path) -> None:
    history.add(tmp_path, [row("2026-11-20"), row("2026-11-20", hardware="cpu: other")])
    history.add(tmp_path, [row("2026-11-21")])
    history.add(tmp_path, [row("2026-11-20")])
    assert len(history.read(tmp_path)) == 3


def test_pandas_reads_all_months_in_one_line(tmp_path: Path) -> None:
    history.add(tmp_path, [row("2026-10-31"), row("2026-11-01", cause="bug")])
    table = pd.read_parquet(tmp_path)
    assert sorted(path.name for path in tmp_path.glob("*.parquet")) == ["2026-10.parquet", "2026-11.parquet"]
    assert (len(table), str(table["cause"].dtype)) == (2, "category")


def test_an_unfinished_file_is_ignored(tmp_path: Path) -> None:
    history.add(tmp_path, [row("2026-11-20")])
    (tmp_path / ".2026-11.parquet.unfinished").write_bytes(b"PAR1 torn")
    assert len(pd.read_parquet(tmp_path)) == 1


def test_an_unknown_case_gets_a_close_match(tmp_path: Path) -> None:
    history.add(tmp_path, [row("2026-11-20")])
    with pytest.raises(UserError, match="did you mean train-lora-ddp-fp32"):
        history.read(tmp_path, case="train-lora-ddp-fp23")


def test_a_file_that_is_no_history_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "2026-11.parquet").write_bytes(b"text")
    with pytest.raises(UserError, match=r"2026-11\.parquet: no history of ftmatrix"):
        history.add(tmp_path, [row("2026-11-20")])


def test_recent_verdicts_are_those_of_each_of_the_last_nights(tmp_path: Path) -> None:
    history.add(
        tmp_path, [row("2026-11-19", "fail"), row("2026-11-20"), row("2026-11-21"), row("2026-11-21", "fail", repeat=2)]
    )
    found = history.recent_verdicts(tmp_path, device="cpu", nights=2)
    assert found["2024-06", "train-lora-ddp-fp32"] == [frozenset({"pass"}), frozenset({"pass", "fail"})]


def test_the_first_red_night_is_that_of_a_cause_on_a_device(tmp_path: Path) -> None:
    red = {"cause": "flatten", "reason": "ValueError: x"}
    history.add(
        tmp_path,
        [
            row("2026-11-18", "fail", **red, device="cuda"),
            row("2026-11-19"),
            row("2026-11-20", "fail", **red),
            row("2026-11-21", "fail", **red),
            row("2026-11-22", "fail", **red | {"cause": "unexplained"}),
        ],
    )
    found = history.first_red_nights(tmp_path, device="cpu")
    cell = ("2024-06", "train-lora-ddp-fp32")
    assert found == {
        (*cell, "flatten", "ValueError: x"): date(2026, 11, 20),
        (*cell, "unexplained", "ValueError: x"): date(2026, 11, 22),
    }


def test_a_tenth_of_a_year_of_nights_is_read_in_little_time_and_memory(tmp_path: Path) -> None:
    """800,080 outcomes of a year took 5 s and 365 MiB on two busy cores; this guards against ten times as much."""
    first, cases = date(2026, 10, 1), [f"train-lora-ddp-fp32-{number}" for number in range(1_000)]
    red = {"cause": "flatten", "reason": "ValueError: x", "torch": "2.15.0", "lock": "1234", "code": "5678"}
    rows = [row(f"{first + timedelta(days=day)}", "fail", **red, case=case) for day in range(80) for case in cases]
    history.add(tmp_path, rows)
    began = time.process_time()
    table = history.read(tmp_path)
    assert len([*lines(history.read(tmp_path, case=cases[0]))]) == 3
    assert len(history.recent_verdicts(tmp_path, device="cpu", nights=14)) == len(cases)
    assert len(history.first_red_nights(tmp_path, device="cpu")) == len(cases)
    assert time.process_time() - began < 5.0
    assert table.memory_usage(deep=True).sum() < 100 * len(rows)  # texts stay encoded
