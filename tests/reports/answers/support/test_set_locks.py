"""The lock of a set is the one that the results used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from matrix.errors import UserError
from matrix.versions import locks
from matrix.versions import sets as known_sets
from reports.answers.support.set_locks import lock_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from matrix.run.outcome import SetRecord


def test_the_measured_lock_is_returned(build_set: Callable[..., SetRecord]) -> None:
    (newest,) = known_sets.select(known_sets.load(), "newest")
    stored = locks.read(newest)
    assert stored is not None
    text = lock_text(build_set(newest.key, lock=stored.digest))
    assert text == stored.text
    assert f"torch=={newest.pins['torch']} " in text
    assert "--hash=sha256:" in text
    assert "://" not in text


def test_another_lock_than_the_measured_one_is_refused(build_set: Callable[..., SetRecord]) -> None:
    (newest,) = known_sets.select(known_sets.load(), "newest")
    with pytest.raises(UserError, match="but the results used 0123456789ab"):
        lock_text(build_set(newest.key, lock="0123456789ab"))


def test_a_set_without_a_lock_is_refused(build_set: Callable[..., SetRecord]) -> None:
    with pytest.raises(UserError, match="this installation has no lock of 1999-01;"):
        lock_text(build_set("1999-01"))


HOSTED = "2026-11+py3.12+torch2.11.0+cu130"
KEPT = f"peft==0.21.2 --hash=sha256:{'0' * 64}\ntorch==2.11.0+cu130\n"


def test_a_run_on_a_hosts_torch_keeps_its_lock(build_set: Callable[..., SetRecord], tmp_path: Path) -> None:
    (tmp_path / "run" / "locks").mkdir(parents=True)
    (tmp_path / "run" / "locks" / f"{HOSTED}.txt").write_text(KEPT)
    column = build_set(HOSTED, python="3.12", lock=locks.digest_of("3.12", KEPT))
    text = lock_text(column, folder=tmp_path)
    assert text.endswith(KEPT)
    assert "the lines without hashes are the host's" in text


def test_a_kept_lock_of_another_run_is_not_used(build_set: Callable[..., SetRecord], tmp_path: Path) -> None:
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks" / f"{HOSTED}.txt").write_text(KEPT)
    with pytest.raises(UserError, match="no lock of 2026-11"):
        lock_text(build_set(HOSTED, python="3.12", lock="0123456789ab"), folder=tmp_path)
