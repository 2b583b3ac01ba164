from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from matrix.errors import UserError
from matrix.search.fixes import Change, Fix, Fixes, Kind
from reports.answers.fixes import remedies

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from matrix.run.outcome import Outcome

CELL = "2025-12__red"
THEN = datetime(2026, 11, 20, tzinfo=UTC)
NONE = Fix(set="2025-12", case="red", kind=Kind.NONE, tried=4, within="4 single settings")
WRAP = Change(name="wrap", old="transformer", new="peft")
SETTING = NONE.model_copy(
    update={"kind": Kind.SETTINGS, "to_set": "2025-12", "to_case": "green", "changes": (WRAP,), "runs": 2}
)


def write(folder: Path, *fixes: Fix, device: str = "cpu", days: int = 0, code: str = "c0de") -> None:
    found = Fixes(
        generated=THEN + timedelta(days=days), device=device, hardware=f"{device}: test", code=code, fixes=fixes
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / remedies.FIXES).write_text(found.model_dump_json(by_alias=True))


def test_a_fix_states_its_change_and_its_proof(tmp_path: Path) -> None:
    write(tmp_path, SETTING)
    remedy = remedies.load(tmp_path, device="cpu")[CELL]
    assert remedy.words == "set auto_wrap_policy=peft instead of transformer"
    assert remedy.proof == "2025-12__green, green in 2 runs on cpu: test, 2026-11-20"


def test_a_search_without_result_states_its_extent(tmp_path: Path) -> None:
    write(tmp_path, NONE)
    remedy = remedies.load(tmp_path, device="cpu")[CELL]
    assert (remedy.words, remedy.proof) == ("none found (4 single settings)", "")


def test_a_fix_outlives_a_later_vain_search_with_other_case_code(tmp_path: Path) -> None:
    write(tmp_path / "a", SETTING)
    write(tmp_path / "b", NONE, days=1, code="0ther")
    assert remedies.load(tmp_path, device="cpu")[CELL].fix.kind is Kind.SETTINGS


def test_the_newer_of_two_fixes_counts(tmp_path: Path) -> None:
    write(tmp_path / "b", SETTING)
    write(tmp_path / "a", SETTING.model_copy(update={"kind": Kind.ALTERNATIVE}), days=1)
    assert remedies.load(tmp_path, device="cpu")[CELL].fix.kind is Kind.ALTERNATIVE


def test_fixes_of_another_device_are_ignored(tmp_path: Path) -> None:
    write(tmp_path, SETTING, device="cuda")
    assert remedies.load(tmp_path, device="cpu") == {}


def test_an_invalid_file_is_named(tmp_path: Path) -> None:
    (tmp_path / remedies.FIXES).write_text("{}")
    with pytest.raises(UserError, match=r"fixes\.json: not a file of fixes"):
        remedies.load(tmp_path, device="cpu")


def test_many_moves_are_summarised_by_their_set(tmp_path: Path) -> None:
    moves = tuple(Change(name=name, old="1", new="2") for name in ("torch", "peft", "trl"))
    update = {"kind": Kind.VERSIONS, "to_set": "2026-03", "changes": moves, "minimal": False}
    write(tmp_path, SETTING.model_copy(update=update))
    remedy = remedies.load(tmp_path, device="cpu")[CELL]
    assert remedy.words == "move to the versions of 2026-03"
    assert remedy.proof.endswith("; fewer changes may do")


def test_a_later_vain_search_with_the_same_case_code_replaces_a_fix(tmp_path: Path) -> None:
    write(tmp_path / "a", SETTING)
    write(tmp_path / "b", NONE, days=1, code="0ther")
    write(tmp_path / "c", NONE, days=2)
    assert remedies.load(tmp_path, device="cpu")[CELL].fix.kind is Kind.NONE


def test_a_fix_mentions_that_the_cell_has_other_case_code(
    tmp_path: Path, build_outcome: Callable[..., Outcome]
) -> None:
    write(tmp_path, SETTING)
    remedy = remedies.load(tmp_path, device="cpu")[CELL]
    same, other = (remedy.for_cell(build_outcome("red", "2025-12", "fail", code=code)) for code in ("c0de", "0ther"))
    assert same.proof == remedy.proof
    assert other.proof.endswith("; found with another case code")


def test_a_move_mentions_the_newly_resolved_packages(tmp_path: Path) -> None:
    move = {"kind": Kind.VERSIONS, "to_set": "2025-12+peft2", "changes": (Change(name="peft", old="1", new="2"),)}
    write(tmp_path, SETTING.model_copy(update=move))
    words = remedies.load(tmp_path, device="cpu")[CELL].words
    assert words == "move peft=2 instead of 1, with what was resolved for 2025-12+peft2"
