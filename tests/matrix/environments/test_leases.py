"""Who uses an environment is known to everyone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matrix.environments import leases

if TYPE_CHECKING:
    from pathlib import Path


def test_what_is_shared_cannot_be_had_alone(tmp_path: Path) -> None:
    hold = leases.shared(tmp_path / "lock")
    assert leases.exclusive_now(tmp_path / "lock") is None
    hold.release()


def test_what_is_shared_can_be_shared_again(tmp_path: Path) -> None:
    one, other = leases.shared(tmp_path / "lock"), leases.shared(tmp_path / "lock")
    one.release()
    assert leases.exclusive_now(tmp_path / "lock") is None
    other.release()


def test_what_was_released_can_be_had_alone(tmp_path: Path) -> None:
    leases.shared(tmp_path / "lock").release()
    hold = leases.exclusive_now(tmp_path / "lock")
    assert hold is not None
    hold.release()
