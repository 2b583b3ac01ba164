"""Shared leases exclude exclusive ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matrix.environments import leases

if TYPE_CHECKING:
    from pathlib import Path


def test_a_shared_lease_blocks_an_exclusive_one(tmp_path: Path) -> None:
    lease = leases.acquire_shared(tmp_path / "lock")
    assert leases.try_acquire_exclusive(tmp_path / "lock") is None
    lease.release()


def test_a_lease_can_be_shared_twice(tmp_path: Path) -> None:
    one, other = leases.acquire_shared(tmp_path / "lock"), leases.acquire_shared(tmp_path / "lock")
    one.release()
    assert leases.try_acquire_exclusive(tmp_path / "lock") is None
    other.release()


def test_a_released_lease_blocks_nobody(tmp_path: Path) -> None:
    leases.acquire_shared(tmp_path / "lock").release()
    lease = leases.try_acquire_exclusive(tmp_path / "lock")
    assert lease is not None
    lease.release()
