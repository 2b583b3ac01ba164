"""pack.toml is read back as it was written, and errors name their place."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any

import pytest

from matrix.errors import UserError
from matrix.offline import manifest
from matrix.offline.manifest import PACK, Pack, PackedSet
from matrix.versions import locks, sets
from matrix.versions.locks import Lock
from matrix.versions.sets import VersionSet

if TYPE_CHECKING:
    from pathlib import Path

PINS = dict.fromkeys(sets.PACKAGES, "1.0")
FILES = ("peft-1.0-py3-none-any.whl", "torch-1.0-py3-none-any.whl")


def a_set(key: str = "2025-03+py3.12") -> VersionSet:
    return VersionSet(key=key, python="3.12", as_of=date(2025, 3, 15), pins=PINS, why="a slice")


def a_pack(folder: Path, **other: Any) -> Pack:
    (folder / "wheels").mkdir(parents=True, exist_ok=True)
    for name in FILES:
        (folder / "wheels" / name).touch()
    lock = Lock(version_set=a_set(), text=f"{locks.header(a_set())}\npeft==1.0 --hash=sha256:aa\n")
    locks.write(lock, folder=folder / "locks")
    row = PackedSet(**{"version_set": a_set(), "wheels": FILES, "lock": lock.digest, **other})
    manifest.write(folder, [row], {"3.12": ["pytest-9-py3-none-any.whl"]})
    return Pack(folder=folder)


def test_a_complete_set_is_read_back_unchanged(tmp_path: Path) -> None:
    pack = a_pack(tmp_path)
    assert pack.complete_sets == (a_set(),)
    assert [(name, version) for name, version, _ in pack.wheels(a_set().key)] == [("peft", "1.0"), ("torch", "1.0")]
    assert "peft==1.0" in pack.lock(a_set()).text


def test_a_set_without_a_lock_is_not_complete(tmp_path: Path) -> None:
    assert a_pack(tmp_path, lock="").complete_sets == ()


def test_writing_again_adds_sets_and_keeps_runners(tmp_path: Path) -> None:
    a_pack(tmp_path)
    manifest.write(tmp_path, [PackedSet(version_set=a_set("2025-06"), wheels=FILES[:1])], {"3.11": ["x"]})
    pack = Pack(folder=tmp_path)
    assert (list(pack.rows), list(pack.runners)) == (["2025-03+py3.12", "2025-06"], ["3.12", "3.11"])
    assert pack.complete_sets == (a_set(),)


def test_a_set_packed_again_in_part_is_no_longer_complete(tmp_path: Path) -> None:
    a_pack(tmp_path)
    assert a_pack(tmp_path, wheels=FILES[:1], lock="").complete_sets == ()


def test_a_changed_lock_is_bad_input(tmp_path: Path) -> None:
    pack = a_pack(tmp_path)
    path = tmp_path / "locks" / "2025-03+py3.12.txt"
    path.write_text(path.read_text().replace("aa", "bb"))
    with pytest.raises(UserError, match=r"sets\.2025-03\+py3\.12: its lock has the digest .* pack the set again"):
        pack.lock(a_set())


def test_a_missing_lock_is_bad_input(tmp_path: Path) -> None:
    pack = a_pack(tmp_path)
    (tmp_path / "locks" / "2025-03+py3.12.txt").unlink()
    with pytest.raises(UserError, match=r"its lock is missing .* pack the set again"):
        pack.lock(a_set())


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('python = "3.12"', "python = 3", r"pack\.toml: sets\.2025-03\+py3\.12\.python: expected a version"),
        ("as-of = 2025-03-15", 'as-of = "then"', "as-of: expected a date"),
        ('trl = "1.0"', "", "pins.trl: expected an exact version"),
        ("[sets.", "[sets", "not valid TOML|sets: missing"),
    ],
)
def test_errors_name_their_place(tmp_path: Path, old: str, new: str, sentence: str) -> None:
    a_pack(tmp_path)
    path = tmp_path / PACK
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(UserError, match=sentence):
        _ = Pack(folder=tmp_path).complete_sets


def test_a_handwritten_pack_toml_is_extended(tmp_path: Path) -> None:
    (tmp_path / PACK).write_text('# mine\n[sets."2026-11"]\nas-of = 2026-11-15\nwhy = "x"\nwheels = ["a"]\n')
    a_pack(tmp_path)
    assert list(Pack(folder=tmp_path).rows) == ["2026-11", "2025-03+py3.12"]
    assert (tmp_path / PACK).read_text().startswith("# mine")
