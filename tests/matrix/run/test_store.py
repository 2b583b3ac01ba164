"""Tests that a stored run survives a killed writer, and that unreadable runs raise errors."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from cases.grid.catalogue import CASES
from cases.space.renamed import OPTIONS, current_options
from cases.space.verdict import Verdict
from matrix.errors import UserError
from matrix.run.outcome import FORMER_GROUPS, SCHEMA, Outcome, RunRecord, SetRecord
from matrix.run.store import Store, newest_runs, read, read_run
from matrix.search.finder import OFF_GRID

if TYPE_CHECKING:
    from pathlib import Path

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
RECORD = RunRecord(harness="0", code="c", started=NOON, device="cpu", request={}, planned=("s__a",), hardware="cpu: x")


def outcome(case: str = "a", **other: Any) -> Outcome:
    fields: dict[str, Any] = {"group": "g", "why": "w", "options": {}, "verdict": Verdict.PASS, "started": NOON}
    return Outcome(set="s", case=case, seconds=1.0, **{**fields, **other})


def test_an_outcome_is_read_back_as_it_was(tmp_path: Path) -> None:
    kept = Store.create(tmp_path / "run", RECORD)
    kept.append(outcome(metrics={"loss": float("nan")}, reason="\x00\u2028 \U0001f600"))
    kept.close()
    (found,) = read(tmp_path / "run")[2]
    assert found.model_dump_json() == kept.outcomes[0].model_dump_json()


def test_a_former_heading_is_read_as_the_present_one() -> None:
    former = json.loads(outcome(group="g").model_dump_json()) | {"group": "Advice, judged"}
    assert Outcome.model_validate(former).group == "Advice from upstream threads"


@pytest.mark.parametrize("name", [*OPTIONS, "also_trained"])
def test_a_former_option_is_read_as_the_present_one(name: str) -> None:
    stored = json.loads(outcome(options={"method": "lora"}).model_dump_json())
    former = stored | {"options": {"method": "lora", name: "head"}}
    assert Outcome.model_validate(former).options == current_options(former["options"])


def test_every_heading_that_replaces_a_former_one_is_in_use() -> None:
    present = {case.group for case in CASES.values()} | {OFF_GRID}
    assert present >= set(FORMER_GROUPS.values())
    assert present.isdisjoint(FORMER_GROUPS)


def test_nothing_on_disk_has_a_secret_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_TOKEN", "correct-horse")
    kept = Store.create(tmp_path / "run", RECORD.model_copy(update={"request": {"script": "correct-horse"}}))
    kept.note(SetRecord(key="s", python="3.11", as_of="2026-01-01", pins={}, why="correct-horse"))
    kept.append(outcome(reason="correct-horse", facts={"token": "correct-horse"}))
    kept.replan(kept.record.model_copy(update={"request": {"again": "correct-horse"}}))
    kept.close()
    texts = [path.read_text(encoding="utf-8") for path in (tmp_path / "run").iterdir()]
    assert not [text for text in texts if "horse" in text]
    assert kept.outcomes[0].reason == "***"


def test_the_record_of_a_new_run_has_no_secret_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_TOKEN", "correct-horse")
    Store.create(tmp_path / "run", RECORD.model_copy(update={"request": {"script": "correct-horse"}})).close()
    assert "horse" not in (tmp_path / "run" / "run.json").read_text(encoding="utf-8")


def test_an_outcome_is_on_disk_before_the_next_one(tmp_path: Path) -> None:
    kept = Store.create(tmp_path / "run", RECORD)
    kept.append(outcome())
    assert len(read(tmp_path / "run")[2]) == 1
    kept.close()


def test_a_full_disk_raises_a_user_error(tmp_path: Path) -> None:
    kept = Store.create(tmp_path / "run", RECORD)
    kept.sink.close()
    kept.sink = open("/dev/full", "a", encoding="utf-8")  # noqa: PTH123, SIM115 - closed by the store
    with pytest.raises(UserError, match=r"No space left on device.*--resume"):
        kept.append(outcome())
    kept.close()


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    kept = Store.create(tmp_path / "run", RECORD)
    with pytest.raises(UserError, match=r"is in use by a run \(pid \d+\)"):
        Store.resume(tmp_path / "run")
    kept.close()


def test_a_refused_directory_can_be_used_afterwards(tmp_path: Path) -> None:
    Store.create(tmp_path / "run", RECORD).close()
    (tmp_path / "run" / "outcomes.jsonl").write_text("{}\n")
    for _ in range(2):
        with pytest.raises(UserError, match=r"outcomes\.jsonl line 1"):
            Store.resume(tmp_path / "run")


def test_abandoning_a_run_without_outcomes_removes_it_with_its_new_folders(tmp_path: Path) -> None:
    kept = Store.create(tmp_path / "runs" / "one", RECORD)
    kept.abandon()
    kept.close()
    assert list(tmp_path.iterdir()) == []


def test_abandoning_a_run_with_an_outcome_keeps_it(tmp_path: Path) -> None:
    kept = Store.create(tmp_path / "run", RECORD)
    kept.append(outcome())
    kept.abandon()
    kept.close()
    assert len(read(tmp_path / "run")[2]) == 1


def test_abandoning_a_run_keeps_files_of_others(tmp_path: Path) -> None:
    kept = Store.create(tmp_path / "run", RECORD)
    (tmp_path / "run" / "notes.txt").touch()
    kept.abandon()
    kept.close()
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["notes.txt"]


def test_the_newest_run_is_the_one_that_started_last(tmp_path: Path) -> None:
    for name, day in (("2026-01-02T00-00-00Z", 2), ("nightly", 1), ("2025", 3)):
        Store.create(tmp_path / name, RECORD.model_copy(update={"started": NOON.replace(day=day)})).close()
    assert newest_runs(tmp_path) == (tmp_path / "2025",)


def test_the_newest_run_on_two_devices_is_both_of_its_directories(tmp_path: Path) -> None:
    for name, day in (("old", 2), ("new/cpu", 4), ("new/cuda", 3)):
        Store.create(tmp_path / name, RECORD.model_copy(update={"started": NOON.replace(day=day)})).close()
    assert newest_runs(tmp_path) == (tmp_path / "new/cpu", tmp_path / "new/cuda")


def test_a_record_that_cannot_be_read_counts_as_started_when_it_was_written(tmp_path: Path) -> None:
    Store.create(tmp_path / "old", RECORD).close()
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "run.json").write_text("{")
    assert newest_runs(tmp_path) == (tmp_path / "damaged",)


def test_a_run_of_a_newer_schema_raises_a_user_error(tmp_path: Path) -> None:
    Store.create(tmp_path / "run", RECORD).close()
    path = tmp_path / "run" / "run.json"
    path.write_text(path.read_text().replace(f'"schema": {SCHEMA}', f'"schema": {SCHEMA + 1}'))
    with pytest.raises(UserError, match=f"schema {SCHEMA + 1} is newer than {SCHEMA}.*update ftmatrix"):
        Store.resume(tmp_path / "run")


def test_a_run_of_an_older_schema_is_read(tmp_path: Path) -> None:
    kept = Store.create(tmp_path / "run", RECORD)
    kept.append(outcome(code="0123456789ab"))
    kept.close()
    lines = tmp_path / "run" / "outcomes.jsonl"
    lines.write_text(lines.read_text().replace(f'"schema":{SCHEMA}', '"schema":2').replace('"modules":"",', ""))
    (found,) = read(tmp_path / "run")[2]
    assert (found.code, found.modules) == ("0123456789ab", "")


def test_the_error_names_an_unknown_field(tmp_path: Path) -> None:
    Store.create(tmp_path / "run", RECORD).close()
    path = tmp_path / "run" / "run.json"
    path.write_text(path.read_text().replace('"device"', '"divice"'))
    with pytest.raises(UserError, match=r"run\.json: device"):
        read(tmp_path / "run")


@pytest.mark.parametrize(
    "damage", [b'{"set": "\xff"}\n', b"{half a line\n", b"\n"], ids=["no UTF-8", "no JSON", "empty"]
)
def test_a_damaged_line_costs_only_itself(damage: bytes, tmp_path: Path) -> None:
    kept = Store.create(tmp_path / "run", RECORD)
    kept.append(outcome("a"))
    kept.close()
    path = tmp_path / "run" / "outcomes.jsonl"
    path.write_bytes(damage + path.read_bytes() + damage)
    found = read_run(tmp_path / "run")
    assert [each.case for each in found.outcomes] == ["a"]
    assert found.problems == (
        "2 damaged lines were dropped from outcomes.jsonl (line 1, 3); run the cells again with --resume",
    )


def test_a_whole_run_has_no_problems(tmp_path: Path) -> None:
    kept = Store.create(tmp_path / "run", RECORD)
    kept.append(outcome("a"))
    kept.close()
    assert read_run(tmp_path / "run").problems == ()


def test_an_outcome_of_a_newer_schema_is_refused_and_not_dropped(tmp_path: Path) -> None:
    kept = Store.create(tmp_path / "run", RECORD)
    kept.append(outcome("a", schema=99))
    kept.close()
    with pytest.raises(UserError, match=r"line 1: schema 99 is newer"):
        read_run(tmp_path / "run")


def test_a_run_record_that_is_not_utf_8_raises_a_user_error(tmp_path: Path) -> None:
    Store.create(tmp_path / "run", RECORD).close()
    (tmp_path / "run" / "run.json").write_bytes(b"\xff")
    with pytest.raises(UserError, match=r"run\.json is damaged"):
        read_run(tmp_path / "run")
