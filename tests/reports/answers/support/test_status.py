"""A set is green if all plain cells passed; skipped, lost and missing cells show nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from reports.answers.support.query import parse
from reports.answers.support.status import QueryStatus, SupportIndex, SupportStatus, newest_first

if TYPE_CHECKING:
    from collections.abc import Callable

    from reports.results.grid import Grid

QLORA = "quant=nf4 torch_dtype=bf16"
STORED = f"{QLORA} bnb_4bit_quant_storage=bf16"


@pytest.fixture
def on(measure: Callable[..., Grid]) -> Callable[..., QueryStatus]:
    """Return the status for a query of a set with some cells; other sets may have other cells."""

    def status_of(query: str, cells: dict[str, str], **others: dict[str, str]) -> QueryStatus:
        table = {"2025-06": cells, **{f"2025-0{number}": each for number, each in enumerate(others.values(), 7)}}
        return SupportIndex(measure(table)).statuses(parse(query))[0]

    return status_of


def test_passed_cells_are_green(on: Callable[..., QueryStatus]) -> None:
    found = on("qlora", {QLORA: "pass"})
    assert (found.status, found.proof) == (SupportStatus.GREEN, ("train-lora-nf4-single-bf16",))


@pytest.mark.parametrize("verdict", ["skip", "lost", "blocked"])
def test_cells_that_did_not_run_are_unknown_with_a_reason(verdict: str, on: Callable[..., QueryStatus]) -> None:
    found = on("qlora", {QLORA: verdict})
    assert found.status is SupportStatus.UNKNOWN
    assert found.reason.startswith(verdict)


def test_missing_cells_are_unknown(on: Callable[..., QueryStatus]) -> None:
    assert on("qlora", {}, other={QLORA: "pass"}).reason == "not run"


@pytest.mark.parametrize("verdict", ["fail", "wrong", "hang", "crash"])
def test_failed_cells_are_red(verdict: str, on: Callable[..., QueryStatus]) -> None:
    assert on("qlora", {QLORA: verdict}).status is SupportStatus.RED


def test_one_red_plain_cell_is_enough(on: Callable[..., QueryStatus]) -> None:
    cells = {"method=full torch_dtype=bf16": "pass", "method=full torch_dtype=fp32": "fail"}
    found = on("full", cells)
    assert found.status is SupportStatus.SETTING
    assert (found.greens[0].words, found.avoid) == ("torch_dtype=bf16", ("train-full-single-fp32",))


def test_a_red_cell_with_a_green_neighbour_is_green_with_the_setting(on: Callable[..., QueryStatus]) -> None:
    found = on("qlora", {QLORA: "fail", STORED: "pass"})
    assert (found.status, found.greens[0].words) == (SupportStatus.SETTING, "bnb_4bit_quant_storage=bf16")


def test_a_skipped_neighbour_is_no_setting(on: Callable[..., QueryStatus]) -> None:
    assert on("qlora", {QLORA: "fail", STORED: "skip"}).status is SupportStatus.RED


def test_a_red_setting_does_not_affect_green_plain_cells(on: Callable[..., QueryStatus]) -> None:
    assert on("qlora", {QLORA: "pass", STORED: "fail"}).status is SupportStatus.GREEN


def test_a_named_option_is_no_setting(on: Callable[..., QueryStatus]) -> None:
    assert on("qlora bnb_4bit_quant_storage=bf16", {QLORA: "fail", STORED: "pass"}).status is SupportStatus.GREEN


def test_each_of_several_named_values_must_be_green(on: Callable[..., QueryStatus]) -> None:
    both = {"method=dora strategy=fsdp1": "pass", "method=dora strategy=fsdp2": "pass"}
    assert on("dora fsdp", both).status is SupportStatus.GREEN
    found = on("dora fsdp", {**both, "method=dora strategy=fsdp1": "fail"})
    assert (found.status, found.greens[0].words) == (SupportStatus.SETTING, "strategy=fsdp2")
    assert on("dora fsdp", {"method=dora strategy=fsdp2": "pass"}).status is SupportStatus.SETTING


def test_red_unusual_cases_leave_the_status_unknown_while_one_is_untried(on: Callable[..., QueryStatus]) -> None:
    assert on("qlora", {STORED: "fail"}, other={QLORA: "pass"}).status is SupportStatus.UNKNOWN
    assert on("qlora", {STORED: "fail"}, other={STORED: "pass"}).status is SupportStatus.RED


def test_repeats_that_disagree_are_not_green(measure: Callable[..., Grid]) -> None:
    once = measure({"2025-06": {QLORA: "pass"}})
    (good,) = once.outcomes
    bad = measure({"2025-06": {QLORA: "wrong"}}).outcomes[0]
    key = good.case, good.set
    flaky = replace(once, cells={key: bad}, verdicts={key: bad.verdict}, repeats={key: (good.verdict, bad.verdict)})
    assert SupportIndex(flaky).statuses(parse("qlora"))[0].status is SupportStatus.RED


def test_the_newest_set_comes_first(measure: Callable[..., Grid]) -> None:
    found = newest_first(measure({"2025-06": {}, "2025-06+peft0.5": {}, "2025-09": {}}).sets)
    assert [column.key for column in found] == ["2025-09", "2025-06", "2025-06+peft0.5"]
