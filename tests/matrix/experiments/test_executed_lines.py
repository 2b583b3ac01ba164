"""The lines of a cell are the union over its ranks; the latest record of a cell counts."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cases.injection.line_suite import LINES
from cases.space.verdict import Verdict
from matrix.errors import UserError
from matrix.experiments import executed_lines
from matrix.experiments.executed_lines import harvest, stored_lines
from matrix.run import request as run_request
from matrix.run import store
from matrix.run.outcome import Outcome, RunRecord
from matrix.run.progress import Silent
from matrix.run.request import RunRequest
from matrix.versions import sets

VERSION_SET = next(each for each in sets.load() if each.key == "2026-11")


def record(raw: Path, case: str, rank: str, lines: str) -> None:
    (raw / case).mkdir(parents=True, exist_ok=True)
    (raw / case / f"{rank}.json").write_text(json.dumps({"root": "/env", "files": {"peft/a.py": lines}}))


def test_the_lines_of_all_ranks_count(tmp_path: Path) -> None:
    record(tmp_path / "raw", "a-case", "0-0", "1-3")
    record(tmp_path / "raw", "a-case", "0-1", "3,9")
    harvest(tmp_path / "raw", tmp_path / "lines.jsonl", "2026-11")
    lines = stored_lines(tmp_path / "lines.jsonl", "2026-11")
    assert lines == {"a-case": {"root": "/env", "files": {"peft/a.py": {1, 2, 3, 9}}}}
    assert not (tmp_path / "raw").exists()


def test_a_later_measurement_replaces_an_earlier_one(tmp_path: Path) -> None:
    for lines in ("1", "2"):
        record(tmp_path / "raw", "a-case", "0-0", lines)
        harvest(tmp_path / "raw", tmp_path / "lines.jsonl", "2026-11")
    assert stored_lines(tmp_path / "lines.jsonl", "2026-11")["a-case"]["files"] == {"peft/a.py": {2}}


def test_other_sets_and_a_torn_line_are_ignored(tmp_path: Path) -> None:
    record(tmp_path / "raw", "a-case", "0-0", "1")
    harvest(tmp_path / "raw", tmp_path / "lines.jsonl", "2025-12")
    with (tmp_path / "lines.jsonl").open("a") as sink:
        sink.write('{"set": "2026-11", "ca')
    assert stored_lines(tmp_path / "lines.jsonl", "2026-11") == {}


def an_outcome(case: str, verdict: str) -> Outcome:
    return Outcome(
        set=VERSION_SET.key,
        case=case,
        group="",
        why="",
        options={},
        verdict=Verdict(verdict),
        started=datetime.now(UTC),
        seconds=1.0,
    )


class FakeTracedRuns:
    """Runs that store the given verdicts for cells without one, and lines for those that came to their end."""

    def __init__(self, *rounds: dict[str, str]) -> None:
        self.rounds = list(rounds)
        self.ran: list[list[str]] = []

    def run(self, request: RunRequest, **_: Any) -> None:
        assert request.out is not None
        if not (request.out / store.RUN).exists():
            store.Store.create(request.out, a_record()).close()
        continued = store.Store.resume(request.out)
        finished = {each.case for each in continued.outcomes}
        verdicts = {case: verdict for case, verdict in self.rounds.pop(0).items() if case not in finished}
        self.ran.append(list(verdicts))
        for case, verdict in verdicts.items():
            continued.append(an_outcome(case, verdict))
            if verdict in {"pass", "wrong"}:
                record(Path(request.variables[LINES]), case, "0-0", "1")
        continued.close()


def a_record() -> RunRecord:
    return RunRecord(started=datetime.now(UTC), harness="1", code="", device="cpu", hardware="", request={}, planned=())


FIRST, SECOND, THIRD, FOURTH = "train-lora-single-fp32", "train-lora-ddp-bf16", "train-lora-single-bf16", "skipped"


def measured(runs: FakeTracedRuns, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[list[str], list[str]]:
    """The cells with lines, and what the measurement said."""
    monkeypatch.setattr(executed_lines, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(run_request, "run", runs.run)
    said: list[str] = []
    chosen: Any = [SimpleNamespace(id=case) for case in (FIRST, SECOND, THIRD, FOURTH)]
    request = RunRequest(sets=VERSION_SET.key, device="cpu")
    found = executed_lines.measure(VERSION_SET, chosen, request, watcher=lambda _: Silent(), say=said.append)
    return sorted(each.case for each in found), said


def test_cells_whose_lines_are_missing_are_counted_and_measured_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runs = FakeTracedRuns(
        {FIRST: "pass", SECOND: "hang", THIRD: "fail", FOURTH: "skip"},
        {FIRST: "pass", SECOND: "pass", THIRD: "wrong", FOURTH: "skip"},
        {FIRST: "pass", SECOND: "pass", THIRD: "wrong", FOURTH: "skip"},
    )
    cells, (said,) = measured(runs, monkeypatch, tmp_path)
    assert cells == [FIRST]
    assert "2026-11: the lines of 2 cells could not be measured (1 hang, 1 fail)" in said
    assert measured(runs, monkeypatch, tmp_path) == (sorted([FIRST, SECOND]), [])
    assert measured(runs, monkeypatch, tmp_path) == (sorted([FIRST, SECOND]), [])
    assert runs.ran == [[FIRST, SECOND, THIRD, FOURTH], [SECOND, THIRD], []]


def test_what_another_process_records_is_not_removed(tmp_path: Path) -> None:
    record(tmp_path / executed_lines.RAW / VERSION_SET.key, "a-case", "0-0", "1")
    lock = store.lock_directory(tmp_path)
    try:
        with pytest.raises(UserError, match="is in use"):
            executed_lines.forget_unmeasured(tmp_path, VERSION_SET.key)
    finally:
        lock.close()
    assert (tmp_path / executed_lines.RAW / VERSION_SET.key / "a-case").exists()
    executed_lines.forget_unmeasured(tmp_path, VERSION_SET.key)
    assert not (tmp_path / executed_lines.RAW / VERSION_SET.key).exists()
