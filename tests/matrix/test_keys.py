"""Tests parsing and formatting of keys, and that no other module does either."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import matrix
import reports
from matrix import keys
from matrix.keys import CellKey, EnvironmentKey, Extra, SetKey

ROOMS = [Path(package.__file__ or "").parent for package in (matrix, reports)]
BY_HAND = re.compile(r"""partition\(["'](__|\+)["']\)|["']\+["'] (not )?in |\}__\{|split\(["'](__|\+)["']\)""")


@pytest.mark.parametrize(
    ("text", "slice_", "extras"),
    [
        ("2025-09", "2025-09", ()),
        ("2025-09+peft0.13.2", "2025-09", (Extra("peft", "0.13.2"),)),
        ("2025-09+py3.12+torch2.11.0+cu130", "2025-09", (Extra("py", "3.12"), Extra("torch", "2.11.0+cu130"))),
        ("2024-06+autoawq0.2.7.post3", "2024-06", (Extra("autoawq", "0.2.7.post3"),)),
        ("2024-06+host", "2024-06", (Extra("host", ""),)),
        ("2026-11+peft@1a2b3c4.d5e6f70", "2026-11", (Extra("peft", "@1a2b3c4.d5e6f70"),)),
        ("mine", "mine", ()),
    ],
)
def test_a_set_key_survives_parsing_and_formatting(text: str, slice_: str, extras: tuple[Extra, ...]) -> None:
    key = SetKey.parse(text)
    assert (key, str(key)) == (SetKey(slice_, extras), text)


def test_python_and_host_are_no_changes() -> None:
    assert SetKey.parse("2025-09+py3.12+host+peft0.13.2").changes == (Extra("peft", "0.13.2"),)


def test_a_slice_has_no_extras() -> None:
    assert SetKey.parse("2025-09").is_slice
    assert not SetKey.parse("2025-09").plus("peft", "0.13.2").is_slice


def test_an_extra_can_be_removed() -> None:
    assert str(SetKey.parse("2025-09+torch2.11.0+cu130").without("torch")) == "2025-09"


def test_a_cell_key_survives_parsing_and_formatting() -> None:
    key = CellKey.parse("2025-09+peft0.13.2__train-lora-single-bf16")
    assert key == CellKey("2025-09+peft0.13.2", "train-lora-single-bf16")
    assert str(key) == "2025-09+peft0.13.2__train-lora-single-bf16"


@pytest.mark.parametrize("text", ["", "__", "2025-09", "2025-09__", "__train"])
def test_text_of_another_form_is_no_cell(text: str) -> None:
    with pytest.raises(ValueError, match="expected SET__CASE"):
        CellKey.parse(text)


def test_an_environment_key_survives_parsing_and_formatting() -> None:
    assert EnvironmentKey.parse("beef-cu128") == EnvironmentKey("beef", "cu128")
    assert str(EnvironmentKey("beef", "cu128")) == "beef-cu128"


def test_a_version_is_split_from_its_build() -> None:
    assert (keys.without_local("2.8.0+cu128"), keys.local_version("2.8.0+cu128")) == ("2.8.0", "cu128")


def test_no_other_module_parses_keys() -> None:
    files = [path for room in ROOMS for path in room.rglob("*.py") if path != Path(keys.__file__)]
    assert [path.name for path in files if BY_HAND.search(path.read_text(encoding="utf-8"))] == []
