"""Who uses an environment is known to everyone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matrix import holds

if TYPE_CHECKING:
    from pathlib import Path


def test_what_is_shared_cannot_be_had_alone(tmp_path: Path) -> None:
    hold = holds.shared(tmp_path / "lock")
    assert holds.exclusive_now(tmp_path / "lock") is None
    hold.release()


def test_what_is_shared_can_be_shared_again(tmp_path: Path) -> None:
    one, other = holds.shared(tmp_path / "lock"), holds.shared(tmp_path / "lock")
    one.release()
    assert holds.exclusive_now(tmp_path / "lock") is None
    other.release()


def test_what_was_released_can_be_had_alone(tmp_path: Path) -> None:
    holds.shared(tmp_path / "lock").release()
    hold = holds.exclusive_now(tmp_path / "lock")
    assert hold is not None
    hold.release()
