"""The page of published errors counts an error as caught only if all cells of all its faults caught it."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from matrix.known import published_errors
from matrix.known.published_errors import KnownBy, Publication, PublishedError, PublishedErrors
from reports.render.published_errors_page import markdown

PUBLISHED = Path(__file__).parents[3] / "reports/published"
BUG, OTHER = "gradients_not_reduced", "strategy_ignored"


def page(*faults: dict[str, Any]) -> str:
    source = Publication(name="P", link="https://p", about="1 bug", on=date(2026, 11, 23), read="all")
    error = PublishedError(source="P", id="1", link="a/b#1", known=KnownBy.MATCHED, does="x", faults=(BUG, OTHER))
    document = {"hardware": "cpu", "started": "2026-11-23T00", "sets": [{"set": "2026-11", "faults": list(faults)}]}
    return markdown(PublishedErrors(source=(source,), error=(error,)), document)


def fault(name: str, *, caught: bool = True) -> dict[str, Any]:
    cell = {"case": "train", "verdict": "wrong", "caught": caught, "caught_by": ["gradient"] if caught else []}
    return {"name": name, "caught": caught, "cells": [cell]}


def test_an_error_is_caught_if_all_its_faults_are() -> None:
    assert "the checks catch 1 of 1 error" in page(fault(BUG), fault(OTHER))


@pytest.mark.parametrize("other", [(), (fault(OTHER, caught=False),)])
def test_a_fault_that_is_missed_or_not_injected_counts_against_its_error(other: tuple[dict[str, Any], ...]) -> None:
    assert "the checks catch 0 of 1 error" in page(fault(BUG), *other)


def test_a_row_names_the_check_and_how_the_error_is_known() -> None:
    found = page(fault(BUG), fault(OTHER, caught=False))
    assert "**caught** in 1 of 1 cell, by gradient<br>**MISSED** in 0 of 1 cell" in found
    assert "(our match)" in found


def test_the_published_page_shows_the_published_results() -> None:
    document = json.loads((PUBLISHED / "published_errors.json").read_text())
    assert (PUBLISHED / "published_errors.md").read_text() == markdown(published_errors.load(), document)
