"""Building and updating the map."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Protocol

import pytest

from matrix.api_map import store
from matrix.api_map.query import ApiMap
from matrix.api_map.verify import verify
from matrix.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class FakeIndex(Protocol):
    def add(
        self, package: str, version: str, sources: dict[str, str] | None, day: date, requires: tuple[str, ...] = ()
    ) -> None: ...


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_release_between_two_others_gives_the_same_map_later_as_at_once(
    index: FakeIndex, old_trainer: dict[str, str], updated: Callable[[FakeIndex, Path], dict[str, str]], tmp_path: Path
) -> None:
    updated(index, tmp_path / "late")
    index.add("transformers", "4.42.0", old_trainer, date(2024, 6, 1))
    updated(index, tmp_path / "late")
    updated(index, tmp_path / "once")
    assert contents(tmp_path / "late" / "map") == contents(tmp_path / "once" / "map")


def test_an_update_without_new_releases_adds_nothing(
    index: FakeIndex, updated: Callable[[FakeIndex, Path], dict[str, str]], folder: Path
) -> None:
    assert updated(index, folder.parent) == {}


def test_a_wheel_that_cannot_be_read_is_recorded_with_the_reason(
    index: FakeIndex, updated: Callable[[FakeIndex, Path], dict[str, str]], tmp_path: Path
) -> None:
    index.add("trl", "0.9.1", None, date(2024, 5, 2))
    assert updated(index, tmp_path)["trl 0.9.1"] == "trl 0.9.1: its wheel cannot be read (gone)"
    assert ApiMap(tmp_path / "map").place("trl", "0.9.1") is None


def test_a_file_of_python_2_has_no_names(
    index: FakeIndex, updated: Callable[[FakeIndex, Path], dict[str, str]], tmp_path: Path
) -> None:
    index.add("trl", "0.9.2", {"trl/__init__.py": "", "trl/old.py": "print 'x'\n"}, date(2024, 5, 3))
    updated(index, tmp_path)
    assert ApiMap(tmp_path / "map").having("trl.old").versions == ("0.9.2",)


def test_a_loop_that_copies_the_names_of_a_module_exports_them(
    index: FakeIndex, updated: Callable[[FakeIndex, Path], dict[str, str]], tmp_path: Path
) -> None:
    copying = "for name in dir(_C.functions):\n    globals()[name] = getattr(_C.functions, name)\n"
    sources = {"trl/__init__.py": copying, "trl/_C/functions.pyi": "def add(x): ...\n"}
    index.add("trl", "0.9.3", sources, date(2024, 5, 4))
    updated(index, tmp_path)
    assert ApiMap(tmp_path / "map").having("trl.add(x)").versions == ("0.9.3",)


def test_a_map_that_was_built_from_the_same_wheels_verifies(index: FakeIndex, folder: Path) -> None:
    arguments = {"index": index, "cache": folder.parent / "other.sqlite", "packages": ("transformers", "trl")}
    assert verify(folder, newest=9, **arguments) == []  # type: ignore[arg-type]


def test_a_changed_wheel_does_not_verify(index: FakeIndex, old_trainer: dict[str, str], folder: Path) -> None:
    index.add("transformers", "4.46.0", old_trainer, date(2024, 10, 1))
    arguments = {"index": index, "cache": folder.parent / "other.sqlite", "packages": ("transformers",)}
    assert [each.version for each in verify(folder, **arguments)] == ["4.46.0"]  # type: ignore[arg-type]


def test_a_folder_without_a_map_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no map of the API"):
        store.releases_of(tmp_path)


@pytest.mark.parametrize(
    ("bits", "expected"), [(0, []), (0b1, [(0, 0)]), (0b1110, [(1, 3)]), (0b101, [(0, 0), (2, 2)])]
)
def test_ranges_of_a_set_of_releases(bits: int, expected: list[tuple[int, int]]) -> None:
    assert list(store.ranges(bits)) == expected


def test_a_call_of_another_package_is_stored_once_without_its_arguments(
    index: FakeIndex, updated: Callable[[FakeIndex, Path], dict[str, str]], tmp_path: Path
) -> None:
    source = "from transformers.utils import is_peft_available\nif is_peft_available():\n    import peft\n"
    index.add("trl", "0.9.4", {"trl/__init__.py": source}, date(2024, 5, 5))
    updated(index, tmp_path)
    calls = [use.target for use in store.load("trl", tmp_path / "map").uses if use.kind == "call"]
    assert calls == ["transformers.utils.is_peft_available"]
