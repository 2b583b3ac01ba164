"""The versions file: its contents, and errors that name their place."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

import pytest
from packaging.version import Version

from matrix.errors import UserError
from matrix.versions import sets

if TYPE_CHECKING:
    from pathlib import Path

GOOD = """# the first comment
[sets.2025-09]
python = "3.11"
as-of = 2025-09-15
why = "a slice"  # the second comment
default = true

[sets.2025-09.pins]
torch = "2.8.0"
transformers = "4.56.1"
peft = "0.17.1"
bitsandbytes = "0.47.0"
accelerate = "1.10.1"
trl = "0.23.0"
"""


def versions(tmp_path: Path, text: str = GOOD) -> Path:
    path = tmp_path / "versions.toml"
    path.write_text(text, encoding="utf-8")
    return path


def added(base: sets.VersionSet, **pins: str) -> sets.VersionSet:
    return sets.with_pins(base, pins, key="2025-09+moved", as_of=date(2025, 10, 1), why="a change")


def test_thirteen_packaged_sets_are_quarterly_and_four_are_default() -> None:
    packaged = sets.load()
    assert len([each for each in packaged if "+" not in each.key]) == 13
    assert [each.key for each in packaged if each.default] == ["2024-06", "2025-06", "2025-12", "2026-11"]


def test_the_packaged_sets_are_in_order_of_their_dates() -> None:
    dates = [each.as_of for each in sets.load()]
    assert dates == sorted(dates)


def test_the_set_of_the_int8_report_has_the_reported_versions() -> None:
    (reported,) = sets.select(sets.load(), "2024-05")
    expected = {"torch": "2.3.0", "transformers": "4.41.1", "accelerate": "0.30.1"}
    assert {name: reported.pins[name] for name in expected} == expected


def test_sets_before_torch_2_7_have_the_undeclared_setuptools() -> None:
    old = [each for each in sets.load() if Version(each.pins["torch"]) < Version("2.7")]
    assert [each.key for each in old if "setuptools" not in each.extras] == []


@pytest.mark.parametrize(
    ("before", "after", "place"),
    [
        ('torch = "2.8.0"', 'torch = ">=2.8"', "versions.toml: sets.2025-09.pins.torch: expected an exact version"),
        ('torch = "2.8.0"', "", "versions.toml: sets.2025-09.pins.torch: expected an exact version"),
        ('trl = "0.23.0"', 'trl = "0.23.0"\nnumpy = "2"', "sets.2025-09.pins.numpy: not one of the pinned packages"),
        ('python = "3.11"', "python = 3.11", 'sets.2025-09.python: expected a version such as "3.11", got 3.11'),
        ("as-of = 2025-09-15", 'as-of = "now"', "sets.2025-09.as-of: expected a date"),
        ("default = true", 'default = "yes"', "sets.2025-09.default: expected true or false"),
        ("default = true", "defualt = true", "sets.2025-09.defualt: unknown; expected one of"),
        ('why = "a slice"', 'why = ""', "sets.2025-09.why: expected a sentence"),
        ("[sets.2025-09.pins]", "[sets.2025-09.pin]", "sets.2025-09.pin: unknown"),
        ("default = true", 'extras = {"a b" = "c"}', "sets.2025-09.extras.a b: not a requirement"),
        ("default = true", "default = ", "not valid TOML"),
    ],
)
def test_an_error_names_its_place(tmp_path: Path, before: str, after: str, place: str) -> None:
    with pytest.raises(UserError) as error:
        sets.load(versions(tmp_path, GOOD.replace(before, after)))
    assert place in str(error.value)


def test_a_missing_file_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        sets.load(tmp_path / "none.toml")


def test_default_all_and_keys_select() -> None:
    packaged = sets.load()
    assert len(sets.select(packaged, "default")) == 4
    assert sets.select(packaged, "all") == packaged
    assert [each.key for each in sets.select(packaged, "2025-09, 2024-05")] == ["2024-05", "2025-09"]


def test_an_unknown_set_lists_near_ones() -> None:
    with pytest.raises(UserError, match=r"unknown version set '2025-9'; did you mean .*2025-09"):
        sets.select(sets.load(), "2025-9")


def test_naming_no_set_is_bad_input() -> None:
    with pytest.raises(UserError, match="no version set named"):
        sets.select(sets.load(), " , ")


def test_adding_keeps_the_comments(tmp_path: Path) -> None:
    path = versions(tmp_path)
    sets.write(added(sets.load(path)[0], peft="0.17.0"), path=path)
    assert path.read_text(encoding="utf-8").startswith(GOOD)


def test_an_added_set_is_read_back_unchanged(tmp_path: Path) -> None:
    path = versions(tmp_path)
    new = added(sets.load(path)[0], peft="0.17.0")
    sets.write(new, path=path)
    assert sets.load(path)[1] == new


def test_an_existing_name_is_refused(tmp_path: Path) -> None:
    path = versions(tmp_path)
    new = added(sets.load(path)[0])
    sets.write(new, path=path)
    with pytest.raises(UserError, match="exists; choose another name"):
        sets.write(new, path=path)


@pytest.mark.parametrize("key", ["../up", "", "a b", "all", "-x"])
def test_a_name_that_could_not_be_a_file_or_an_argument_is_refused(key: str) -> None:
    with pytest.raises(UserError, match="a set's name has"):
        sets.with_pins(sets.load()[0], {}, key=key, as_of=date(2025, 1, 1), why="no")


def test_only_exact_pins_are_accepted() -> None:
    assert sets.parsed_pins(["peft==0.13.0"]) == {"peft": "0.13.0"}
    with pytest.raises(UserError, match="expected an exact pin"):
        sets.parsed_pins(["peft>=0.13"])


def test_only_pinned_packages_can_be_changed() -> None:
    with pytest.raises(UserError, match="not one of the pinned packages"):
        added(sets.load()[0], numpy="2.0")
