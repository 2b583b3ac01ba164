"""The classes of compared cells, their causes, and the packages that moved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from matrix.run.outcome import ErrorRecord
from reports.answers.diff.changes import ChangeKind, DiffSide
from reports.answers.diff.compare import compare
from reports.results.grid import grid

if TYPE_CHECKING:
    from collections.abc import Callable

    from matrix.run.outcome import Outcome, RunRecord, SetRecord
    from reports.answers.diff.changes import CellChange, ResultDiff

    Make = Callable[..., DiffSide]

CASE, SET = "train-lora-ddp-fp32", "2024-06"
FLAT = ErrorRecord(
    type="ValueError", message="cannot flatten 3 tensors", traceback='File "/x/site-packages/peft/a.py", line 1, in f'
)
OTHER = ErrorRecord(type="TypeError", message="no such argument")


@pytest.fixture
def side(
    build_run: Callable[..., RunRecord], build_set: Callable[..., SetRecord], build_outcome: Callable[..., Outcome]
) -> Make:
    """A side with one cell that ran once for each verdict; ``lock`` has the versions of its lock."""

    def made(*verdicts: str, case: str = CASE, lock: dict[str, str] | None = None, **other: Any) -> DiffSide:
        outcomes = [build_outcome(case, SET, each, repeat=n, **other) for n, each in enumerate(verdicts, start=1)]
        matrix = grid(build_run(f"{SET}__{case}"), [build_set(SET)], outcomes)
        return DiffSide(name="x", device="cpu", hardware="cpu: test", matrix=matrix, locks={SET: lock} if lock else {})

    return made


def compared(base: DiffSide, new: DiffSide, **how: Any) -> ResultDiff:
    return compare(base, new, [(SET, SET)], rows=[], **how)


def change(base: DiffSide, new: DiffSide) -> CellChange:
    (only,) = compared(base, new).changes
    return only


@pytest.mark.parametrize(
    ("base", "new", "kind"),
    [
        (["pass"], ["fail"], ChangeKind.REGRESSED),
        (["wrong"], ["pass"], ChangeKind.FIXED),
        (["pass"], ["pass"], ChangeKind.GREEN),
        (["pass"], ["fail", "pass"], ChangeKind.FLAKY),
        (["pass", "wrong"], ["pass"], ChangeKind.FLAKY),
        (["pass"], ["fail", "fail"], ChangeKind.REGRESSED),
        (["pass"], ["skip"], ChangeKind.UNKNOWN),
        (["lost"], ["fail"], ChangeKind.UNKNOWN),
        (["pass"], [], ChangeKind.UNKNOWN),
        (["pass"], ["lost", "pass"], ChangeKind.GREEN),
    ],
)
def test_verdicts_decide_the_class(base: list[str], new: list[str], kind: ChangeKind, side: Make) -> None:
    assert change(side(*base), side(*new)).kind is kind


@pytest.mark.parametrize("verdicts", [("pass", "fail"), ("wrong", "pass")])
def test_a_new_verdict_of_other_case_code_is_unknown(verdicts: tuple[str, str], side: Make) -> None:
    base, new = (side(each, code=code) for each, code in zip(verdicts, ("1" * 12, "2" * 12), strict=True))
    assert change(base, new).kind is ChangeKind.UNKNOWN
    assert "other case code" in change(base, new).reason


def test_a_cell_of_other_case_code_is_still_green(side: Make) -> None:
    assert change(side("pass", code="1" * 12), side("pass", code="2" * 12)).kind is ChangeKind.GREEN


def test_numbers_in_a_message_do_not_make_another_reason(side: Make) -> None:
    later = FLAT.model_copy(update={"message": "cannot flatten 4 tensors"})
    assert change(side("fail", error=FLAT), side("fail", error=later)).kind is ChangeKind.SAME_REASON


def test_another_message_is_another_reason(side: Make) -> None:
    assert change(side("fail", error=FLAT), side("fail", error=OTHER)).kind is ChangeKind.OTHER_REASON


def test_cells_of_one_side_are_new_or_gone(side: Make) -> None:
    diff = compared(side("pass", case="a"), side("pass", case="b"))
    assert {each.case: each.kind for each in diff.changes} == {"a": ChangeKind.GONE, "b": ChangeKind.NEW}


def test_the_reason_names_the_side_that_did_not_run(side: Make) -> None:
    assert change(side("pass"), side("skip", reason="no GPU")).reason == "skipped on the new side: no GPU"


def test_a_moved_package_in_the_traceback_is_a_suspect(side: Make) -> None:
    base, new = side("pass", lock={"peft": "1", "trl": "1"}), side("fail", error=FLAT, lock={"peft": "2", "trl": "2"})
    assert change(base, new).suspects == ("peft",)


@pytest.mark.parametrize(("trl", "suspects"), [("1", ("peft",)), ("2", ())])
def test_a_package_that_moved_alone_is_the_suspect_of_wrong_numbers(
    trl: str, suspects: tuple[str, ...], side: Make
) -> None:
    base, new = side("pass", lock={"peft": "1", "trl": "1"}), side("wrong", lock={"peft": "2", "trl": trl})
    assert change(base, new).suspects == suspects


def test_packages_of_the_stack_come_first_among_the_moves(side: Make) -> None:
    base, new = (
        side("pass", lock={"attrs": "1", "old": "1", "torch": "1"}),
        side("pass", lock={"attrs": "2", "torch": "2", "zip": "1"}),
    )
    (pair,) = compared(base, new).pairs
    assert [*map(str, pair.moves)] == ["torch 1 -> 2", "attrs 1 -> 2", "old 1 removed", "zip 1 added"]


def test_an_unknown_lock_is_noted(side: Make) -> None:
    (pair,) = compared(side("pass"), side("pass")).pairs
    assert "the lock of 2024-06 and 2024-06 is not known" in pair.note


def test_cells_of_other_hardware_are_unknown(side: Make) -> None:
    assert change(side("pass"), side("fail", hardware="cpu: other")).kind is ChangeKind.UNKNOWN


def test_hardware_may_differ_on_request(side: Make) -> None:
    (only,) = compared(side("pass"), side("fail", hardware="cpu: other"), across_hardware=True).changes
    assert only.kind is ChangeKind.REGRESSED
