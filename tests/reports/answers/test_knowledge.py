"""What is published becomes one grid a device, in which the newest code of a cell counts."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from cases.verdict import Verdict
from matrix.errors import UserError
from reports.answers import knowledge
from reports.data import document, dumped
from reports.grid import grid

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from matrix.outcome import Outcome, RunRecord, SetRecord


@pytest.fixture
def publish(
    tmp_path: Path, build_run: Callable[..., RunRecord], build_set: Callable[..., SetRecord]
) -> Callable[..., Path]:
    def put(name: str, *outcomes: Outcome, sets: tuple[SetRecord, ...] = (), **run: Any) -> Path:
        record = build_run(**run)
        matrix = grid(record, sets or (build_set(),), outcomes)
        folder = tmp_path / name
        folder.mkdir(parents=True)
        (folder / "matrix.json").write_text(dumped(document(record, matrix, generated=record.started)))
        return tmp_path

    return put


def test_documents_are_read_as_one(publish: Callable[..., Path], build_outcome: Callable[..., Outcome]) -> None:
    publish("one", build_outcome("a"))
    folder = publish("deep/er", build_outcome("b", verdict="fail"))
    known = knowledge.load(folder)
    assert (known.verdict("a", "2024-06"), known.verdict("b", "2024-06")) == (Verdict.PASS, Verdict.FAIL)


def test_the_newest_code_of_a_cell_counts(publish: Callable[..., Path], build_outcome: Callable[..., Outcome]) -> None:
    old = build_outcome("a", verdict="fail", code="old")
    publish("old", old)
    folder = publish("new", build_outcome("a", code="new", started=old.started + timedelta(days=1)))
    assert knowledge.load(folder).verdict("a", "2024-06") is Verdict.PASS


def test_of_one_code_the_worst_counts_and_disagreement_is_flaky(
    publish: Callable[..., Path], build_outcome: Callable[..., Outcome]
) -> None:
    first = build_outcome("a", verdict="wrong")
    publish("one", first)
    known = knowledge.load(publish("two", build_outcome("a", started=first.started + timedelta(days=1))))
    assert known.verdict("a", "2024-06") is Verdict.WRONG
    assert known.flaky[("a", "2024-06")] == {Verdict.WRONG: 1, Verdict.PASS: 1}


def test_a_set_that_could_be_installed_once_is_not_blocked(
    publish: Callable[..., Path], build_outcome: Callable[..., Outcome], build_set: Callable[..., SetRecord]
) -> None:
    good, cut = build_set(lock="0123"), build_set(lock="0123", blocked="no network")
    publish("one", build_outcome("a"), sets=(good,))
    folder = publish("two", sets=(cut,), started=build_outcome().started + timedelta(days=1))
    assert knowledge.load(folder).blocked == {}


def test_devices_are_not_mixed(publish: Callable[..., Path], build_outcome: Callable[..., Outcome]) -> None:
    publish("cpu", build_outcome("a"))
    folder = publish("gpu", build_outcome("b"), device="cuda")
    assert knowledge.load(folder, device="cuda").cases == ("b",)


def test_each_device_has_a_grid_of_its_own(publish: Callable[..., Path], build_outcome: Callable[..., Outcome]) -> None:
    publish("cpu", build_outcome("a"))
    found = knowledge.by_device(publish("gpu", build_outcome("b"), device="cuda"))
    assert {device: each.cases for device, each in found.items()} == {"cpu": ("a",), "cuda": ("b",)}


def test_nothing_published_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"holds no matrix\.json measured on cpu"):
        knowledge.load(tmp_path)
    with pytest.raises(UserError, match=r"holds no matrix\.json; give"):
        knowledge.by_device(tmp_path)


def test_what_this_project_published_can_be_read() -> None:
    assert len(knowledge.load().outcomes) > len(knowledge.load().cases)


def test_only_the_cases_that_are_asked_for_are_read(
    publish: Callable[..., Path], build_outcome: Callable[..., Outcome]
) -> None:
    folder = publish("one", build_outcome("a"), build_outcome("b"))
    found = knowledge.by_device(folder, only={"b"})
    assert [(device, matrix.cases) for device, matrix in found.items()] == [("cpu", ("b",))]
