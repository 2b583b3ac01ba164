"""The lines of a cell are the union over its ranks; the latest record of a cell counts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from matrix.experiments.executed_lines import harvest, stored_lines

if TYPE_CHECKING:
    from pathlib import Path


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
