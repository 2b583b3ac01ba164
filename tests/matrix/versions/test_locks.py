"""Locks of the packaged sets, and their digests."""

from __future__ import annotations

from datetime import date

from matrix.versions import locks, sets
from matrix.versions.locks import Lock
from matrix.versions.sets import VersionSet

PINS = dict(zip(sets.PACKAGES, ("2.8.0", "4.56.1", "0.17.1", "0.47.0", "1.10.1", "0.23.0"), strict=True))


def a_set(key: str = "2025-09", **moved: str) -> VersionSet:
    return VersionSet(key=key, python="3.11", as_of=date(2025, 9, 15), pins={**PINS, **moved}, why="a slice")


BLOCKED = ("2024-06+tokenizers0.20.0", "2025-12+hub1.2.3")  # no resolver accepts them, but users have them installed


def test_every_packaged_set_has_a_current_lock() -> None:
    stored = {each.key: locks.read(each) for each in sets.load() if each.key not in BLOCKED}
    assert [key for key, lock in stored.items() if lock is None or lock.stale] == []


def test_no_packaged_lock_names_an_index() -> None:
    texts = {path.name: path.read_text(encoding="utf-8") for path in locks.PACKAGED.glob("*.txt")}
    assert [name for name, text in texts.items() if "://" in text or "/" in text or "--index" in text] == []


def test_every_packaged_lock_has_a_hash_for_everything() -> None:
    lines = [line for each in sets.load() if each.key not in BLOCKED for line in locks.statements(text_of(each))]
    assert [line for line in lines if "--hash=sha256:" not in line] == []


def text_of(version_set: VersionSet) -> str:
    stored = locks.read(version_set)
    assert stored is not None
    return stored.text


def test_the_digest_ignores_order_and_comments() -> None:
    one = Lock(version_set=a_set(), text="# a\nsix==1 \\\n    --hash=sha256:1 \\\n    --hash=sha256:2\npip==2\n")
    other = Lock(version_set=a_set("other"), text="pip==2\nsix==1 --hash=sha256:2 --hash=sha256:1\n")
    assert one.digest == other.digest


def test_the_digest_depends_on_versions() -> None:
    assert Lock(version_set=a_set(), text="six==1\n").digest != Lock(version_set=a_set(), text="six==2\n").digest


def test_a_local_build_is_the_same_version() -> None:
    assert locks.same_version("2.8.0", "2.8.0+cpu")
    assert not locks.same_version("2.8.0", "2.8.1+cpu")
