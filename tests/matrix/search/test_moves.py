"""Tests the differences between version sets, their distance, and the order of moves."""

from __future__ import annotations

from datetime import date
from typing import Any

from cases.space.options import Options
from matrix.search.moves import distance, likely, moves
from matrix.versions.sets import PACKAGES, VersionSet


def a_set(key: str = "2025-09", *, extras: tuple[str, ...] = (), python: str = "3.11", **pins: str) -> VersionSet:
    return VersionSet(
        key=key,
        python=python,
        as_of=date.fromisoformat(f"{key}-15"),
        pins={**dict.fromkeys(PACKAGES, "1.0"), **pins},
        why="a test",
        extras=dict.fromkeys(extras, "a reason"),
    )


def nearest(*sets: VersionSet) -> str:
    return min(sets, key=lambda each: distance(a_set(), each)).key


def first(**changes: Any) -> str:
    return likely(Options().but(**changes))[0]


def test_every_difference_is_a_move() -> None:
    other = a_set(extras=("numpy==1.26.4",), python="3.12", peft="2.0")
    found = {each.name: (each.old, each.new) for each in moves(a_set(), other)}
    assert found == {"python": ("3.11", "3.12"), "peft": ("1.0", "2.0"), "numpy": ("", "1.26.4")}


def test_a_requirement_without_a_version_is_no_move() -> None:
    assert moves(a_set(), a_set(extras=("numpy<2",))) == ()


def test_the_set_with_the_fewest_moves_is_nearest() -> None:
    assert nearest(a_set("2025-12", peft="2.0", trl="2.0"), a_set("2026-11", peft="2.0")) == "2026-11"


def test_among_equally_many_moves_one_of_torch_is_farthest() -> None:
    assert nearest(a_set("2025-12", torch="2.0"), a_set("2026-11", peft="2.0")) == "2026-11"


def test_among_equally_many_moves_the_nearest_in_time_wins() -> None:
    assert nearest(a_set("2026-11", peft="2.0"), a_set("2025-08", peft="0.9")) == "2025-08"


def test_the_package_that_implements_an_option_moves_first() -> None:
    assert first(front_end="sft") == "trl"
    assert first(quant="nf4") == "bitsandbytes"
    assert first(strategy="fsdp2") == "torch"
    assert first(strategy="ddp", front_end="accelerate") == "accelerate"
    assert first() == "peft"


def test_the_order_has_every_package() -> None:
    assert set(likely(Options())) == set(PACKAGES)
