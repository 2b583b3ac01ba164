"""Tests that an edit of a module makes only those cells stale that imported it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cases.space.verdict import Verdict
from matrix.run.code_digest import NO_CODE, CaseCode, digest
from matrix.run.execute import Suite
from matrix.run.outcome import Outcome
from matrix.run.staleness import staleness

NOW = Suite().code
LORA = NOW.stamp(["cases.suite", "cases.reference.twin", "cases.reference.adapter_layers"])
FULL = NOW.stamp(["cases.suite", "cases.reference.twin"])
ADAPTERS = "cases.reference.adapter_layers"


def outcome(case: str, modules: str, code: str | None = None) -> Outcome:
    return Outcome(
        set="s",
        case=case,
        group="g",
        why="w",
        options={},
        verdict=Verdict.PASS,
        code=digest(modules) if code is None else code,
        modules=modules,
        started=datetime(2026, 1, 1, tzinfo=UTC),
        seconds=1.0,
    )


OUTCOMES = (outcome("lora", LORA), outcome("full", FULL))


def edited(old: bytes, new: bytes) -> CaseCode:
    source = NOW.sources[ADAPTERS]
    assert old in source
    return CaseCode({**NOW.sources, ADAPTERS: source.replace(old, new, 1)})


def test_without_an_edit_every_cell_is_current() -> None:
    found = staleness(OUTCOMES, NOW)
    assert (found.current, found.unknown, found.stale) == (2, 0, {})


def test_an_edited_docstring_makes_no_cell_stale() -> None:
    assert staleness(OUTCOMES, edited(b'"""', b'"""Reworded. ')).stale == {}


def test_an_edited_twin_makes_the_cells_stale_that_used_it() -> None:
    found = staleness(OUTCOMES, edited(b"return 0.0", b"return 0.5"))
    assert (found.current, found.stale) == (1, {"s__lora": (ADAPTERS,)})


def test_stale_cells_are_counted_by_module() -> None:
    assert staleness(OUTCOMES, edited(b"return 0.0", b"return 0.5")).changed_modules == {ADAPTERS: 1}


@pytest.mark.parametrize("code", ["0123456789ab", ""])
def test_an_outcome_of_an_older_schema_has_unknown_code(code: str) -> None:
    assert staleness([outcome("old", "", code)], NOW).unknown == 1


def test_a_cell_without_case_code_is_current() -> None:
    assert staleness([outcome("blocked", "", NO_CODE)], NOW).current == 1


def test_the_last_outcome_of_a_cell_counts() -> None:
    assert staleness([outcome("lora", "", "old"), outcome("lora", LORA)], NOW).unknown == 0
