"""Published results form one grid per device, with the newest code of each cell."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from cases.space.verdict import Verdict
from matrix.errors import UserError
from matrix.run.outcome import CheckRecord
from reports.answers import knowledge
from reports.results.document import document, dumped
from reports.results.grid import grid

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from matrix.run.outcome import Outcome, RunRecord, SetRecord


@pytest.fixture
def publish(
    tmp_path: Path, build_run: Callable[..., RunRecord], build_set: Callable[..., SetRecord]
) -> Callable[..., Path]:
    def write(name: str, *outcomes: Outcome, sets: tuple[SetRecord, ...] = (), **run: Any) -> Path:
        record = build_run(**run)
        matrix = grid(record, sets or (build_set(),), outcomes)
        folder = tmp_path / name
        folder.mkdir(parents=True)
        (folder / "matrix.json").write_text(dumped(document(record, matrix, generated=record.started)))
        return tmp_path

    return write


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


@pytest.mark.parametrize("new", [{"lock": "beef-pypi"}, {"hardware": "cpu: new"}], ids=["lock", "hardware"])
def test_the_newest_lock_and_hardware_of_a_cell_count(
    publish: Callable[..., Path], build_outcome: Callable[..., Outcome], new: dict[str, str]
) -> None:
    old = build_outcome("a", verdict="fail", lock="0123-pypi", hardware="cpu: old")
    publish("old", old)
    later = {"lock": old.lock, "hardware": old.hardware, **new}
    known = knowledge.load(publish("new", build_outcome("a", started=old.started + timedelta(days=1), **later)))
    assert known.verdict("a", "2024-06") is Verdict.PASS
    assert known.flaky == {}


def test_results_under_an_old_lock_do_not_apply_to_the_new_lock(
    publish: Callable[..., Path], build_outcome: Callable[..., Outcome], build_set: Callable[..., SetRecord]
) -> None:
    old = build_outcome("a", lock="0123-pypi")
    publish("old", old, build_outcome("b", lock="0123-pypi"), sets=(build_set(lock="0123"),))
    later = old.started + timedelta(days=1)
    again = build_outcome("b", lock="beef-pypi", started=later)
    known = knowledge.load(publish("new", again, sets=(build_set(lock="beef"),), started=later))
    assert (known.verdict("a", "2024-06"), known.verdict("b", "2024-06")) == (None, Verdict.PASS)


def test_results_count_even_if_the_set_could_not_be_installed_again(
    publish: Callable[..., Path], build_outcome: Callable[..., Outcome], build_set: Callable[..., SetRecord]
) -> None:
    good = build_outcome("a", lock="0123-pypi")
    publish("one", good, sets=(build_set(lock="0123"),))
    later = good.started + timedelta(days=1)
    blocked = build_outcome("a", verdict="blocked", reason="no network", started=later)
    folder = publish("two", blocked, sets=(build_set(blocked="no network"),), started=later)
    assert knowledge.load(folder).verdict("a", "2024-06") is Verdict.PASS


def test_the_worst_of_equal_code_counts_and_disagreement_is_flaky(
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
    good, blocked = build_set(lock="0123"), build_set(lock="0123", blocked="no network")
    publish("one", build_outcome("a"), sets=(good,))
    folder = publish("two", sets=(blocked,), started=build_outcome().started + timedelta(days=1))
    assert knowledge.load(folder).blocked == {}


def test_devices_are_not_mixed(publish: Callable[..., Path], build_outcome: Callable[..., Outcome]) -> None:
    publish("cpu", build_outcome("a"))
    folder = publish("gpu", build_outcome("b"), device="cuda")
    assert knowledge.load(folder, device="cuda").cases == ("b",)


def test_each_device_has_its_own_grid(publish: Callable[..., Path], build_outcome: Callable[..., Outcome]) -> None:
    publish("cpu", build_outcome("a"))
    found = knowledge.by_device(publish("gpu", build_outcome("b"), device="cuda"))
    assert {device: each.cases for device, each in found.items()} == {"cpu": ("a",), "cuda": ("b",)}


def test_a_folder_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"holds no results measured on cpu"):
        knowledge.load(tmp_path)
    with pytest.raises(UserError, match=r"holds no results; give"):
        knowledge.by_device(tmp_path)


def test_an_outcome_of_an_undescribed_set_is_refused(
    publish: Callable[..., Path], build_outcome: Callable[..., Outcome]
) -> None:
    folder = publish("one", build_outcome("a"))
    text = (folder / "one" / "matrix.json").read_text()
    (folder / "one" / "matrix.json").write_text(text.replace('"key":"2024-06"', '"key":"2025-06"'))
    with pytest.raises(UserError, match="outcomes of 2024-06, but no record of this set"):
        knowledge.load(folder)


def test_the_published_results_can_be_read() -> None:
    assert len(knowledge.load().outcomes) > len(knowledge.load().cases)


def test_only_the_requested_cases_are_read(publish: Callable[..., Path], build_outcome: Callable[..., Outcome]) -> None:
    folder = publish("one", build_outcome("a"), build_outcome("b"))
    found = knowledge.by_device(folder, only={"b"})
    assert [(device, matrix.cases) for device, matrix in found.items()] == [("cpu", ("b",))]


def test_results_are_kept_until_a_file_changes(
    publish: Callable[..., Path], build_outcome: Callable[..., Outcome]
) -> None:
    folder = publish("one", build_outcome("a"))
    first = knowledge.load(folder)
    assert knowledge.load(folder) is first
    file = folder / "one" / "matrix.json"
    file.write_text(file.read_text().replace('"verdict":"pass"', '"verdict":"fail"'))
    assert knowledge.load(folder).verdict("a", "2024-06") is Verdict.FAIL


@pytest.mark.parametrize(("missed", "verdict"), [(("wrapped as",), None), (("wrapped as", "loss"), Verdict.WRONG)])
def test_cells_that_a_harness_bug_made_red_are_left_out(
    publish: Callable[..., Path],
    build_outcome: Callable[..., Outcome],
    build_set: Callable[..., SetRecord],
    missed: tuple[str, ...],
    verdict: Verdict | None,
) -> None:
    """Torch 2.3 names FSDP2's class differently than the check expected. Other failed checks still count."""
    checks = tuple(CheckRecord(name=name, value=1, op="==", bound=0, ok=False) for name in missed)
    options = {"strategy": "fsdp2", "front_end": "loop"}
    wrong = build_outcome("a", verdict="wrong", hardware="cuda: test", options=options, checks=checks)
    of_2_3 = build_set(pins={"torch": "2.3.1"})
    folder = publish("one", wrong, sets=(of_2_3,), device="cuda", hardware="cuda: test")
    assert knowledge.load(folder, device="cuda").verdict("a", "2024-06") is verdict
