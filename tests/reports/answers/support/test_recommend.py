"""The newest set that fulfils all queries, its proof, and the obstacles if there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from matrix.errors import UserError
from reports.answers import knowledge
from reports.answers.support.query import parse
from reports.answers.support.recommend import Recommendation, recommend_on, recommended
from reports.answers.support.requirements import requirement
from reports.answers.support.set_locks import lock_text
from reports.answers.support.status import SupportIndex
from reports.render.text.recommend_text import CAUTION, lines

if TYPE_CHECKING:
    from collections.abc import Callable

    from reports.results.grid import Grid

QLORA = "quant=nf4 torch_dtype=bf16"
STORED = f"{QLORA} bnb_4bit_quant_storage=bf16"
CELL = "train-lora-nf4-single-bf16"


@pytest.fixture
def ask_for(measure: Callable[..., Grid]) -> Callable[..., Recommendation]:
    def ask(table: dict[str, dict[str, str]], *queries: str, have: tuple[str, ...] = ()) -> Recommendation:
        return recommend_on("cpu", {"cpu": measure(table)}, [*map(parse, queries)], [*map(requirement, have)])

    return ask


def best(found: Recommendation) -> str:
    return found.best.key if found.best else ""


def test_the_newest_green_set_is_recommended_before_the_next_ones(
    ask_for: Callable[..., Recommendation],
) -> None:
    found = ask_for({"2025-03": {QLORA: "pass"}, "2025-06": {QLORA: "pass"}, "2025-09": {QLORA: "fail"}}, "qlora")
    assert (best(found), [each.key for each in found.others]) == ("2025-06", ["2025-03"])


def test_a_set_with_a_skipped_cell_is_not_recommended(ask_for: Callable[..., Recommendation]) -> None:
    assert best(ask_for({"2025-06": {QLORA: "pass"}, "2025-09": {QLORA: "skip"}}, "qlora")) == "2025-06"


def test_all_queries_must_be_green_on_the_same_set(ask_for: Callable[..., Recommendation]) -> None:
    merge = "flow=merge"
    table = {"2025-06": {QLORA: "pass", merge: "pass"}, "2025-09": {QLORA: "pass", merge: "fail"}}
    assert best(ask_for(table, "qlora", "lora merge")) == "2025-06"


def test_a_newer_set_with_a_setting_comes_first_and_the_plain_one_is_mentioned(
    ask_for: Callable[..., Recommendation],
) -> None:
    found = ask_for({"2025-06": {QLORA: "pass"}, "2025-09": {QLORA: "fail", STORED: "pass"}}, "qlora")
    assert found.best is not None
    assert found.without_settings is not None
    assert (found.best.key, found.best.settings, found.without_settings.key) == (
        "2025-09",
        "bnb_4bit_quant_storage=bf16",
        "2025-06",
    )
    assert f"    avoid, it is red: 2025-09__{CELL}" in lines(found)


def test_the_proof_names_cells_hardware_and_day(ask_for: Callable[..., Recommendation]) -> None:
    stated_outcomes = lines(ask_for({"2025-06": {QLORA: "pass"}}, "qlora"))
    assert f"    cell 2025-06__{CELL}" in stated_outcomes
    assert "Measured: 2026-11-20, cpu: test" in stated_outcomes
    assert f"Run it again: ftmatrix run --sets 2025-06 --where case={CELL}" in stated_outcomes


def test_cpu_results_are_labelled(ask_for: Callable[..., Recommendation]) -> None:
    assert lines(ask_for({"2025-06": {QLORA: "pass"}}, "qlora"))[-1] == CAUTION


@pytest.mark.parametrize(
    ("have", "key"),
    [
        ("torch==1.0", "2025-06"),
        ("torch==1.0+cu128", "2025-06"),
        ("Torch >= 1, < 2", "2025-06"),
        ("peft>=2", "2025-09"),
        ("torch==7.0", ""),
    ],
)
def test_installed_versions_narrow_the_sets(have: str, key: str, ask_for: Callable[..., Recommendation]) -> None:
    assert best(ask_for({"2025-06": {QLORA: "pass"}, "2025-09": {QLORA: "pass"}}, "qlora", have=(have,))) == key


def test_versions_that_no_set_has_give_no_answer(ask_for: Callable[..., Recommendation]) -> None:
    said = lines(ask_for({"2025-06": {QLORA: "pass"}}, "qlora", have=("torch==7.0",)))
    assert "No published set has these versions together." in said
    assert "Without --have torch==7.0.*: 2025-06" in said


def test_without_a_green_set_the_obstacles_of_each_set_are_listed(ask_for: Callable[..., Recommendation]) -> None:
    table = {"2025-03": {}, "2025-06": {QLORA: "skip"}, "2025-09": {QLORA: "fail"}}
    said = lines(ask_for(table, "qlora"))
    start = said.index("Obstacles:")
    assert said[start : start + 7] == [
        "Obstacles:",
        "  2025-09",
        "    qlora: red",
        f"      {CELL}: fail, RuntimeError: no",
        "  2025-06",
        "    qlora: unknown, skip: needs a GPU",
        "  1 set: not run",
    ]


def test_obstacles_are_in_the_json(ask_for: Callable[..., Recommendation]) -> None:
    found = ask_for({"2025-09": {QLORA: "fail", "flow=merge": "pass"}}, "qlora", "lora merge").as_json()
    assert found["in_the_way"] == [
        {
            "set": "2025-09",
            "need": "qlora",
            "standing": "red",
            "reason": "",
            "cells": [{"cell": f"2025-09__{CELL}", "verdict": "fail", "why": "RuntimeError: no"}],
        }
    ]
    assert found["nearest"]["set"] == "2025-09"


def test_without_a_green_set_hints_name_options_to_give_up(ask_for: Callable[..., Recommendation]) -> None:
    table = {"2025-09": {f"{QLORA} strategy=fsdp2": "fail", QLORA: "pass"}}
    said = lines(ask_for(table, "qlora fsdp2"))
    assert "Without strategy=fsdp2, with strategy=single: 2025-09" in said
    assert "Dropping one of these does not help: quant=nf4" in said


def test_an_unmeasured_query_is_reported(ask_for: Callable[..., Recommendation]) -> None:
    found = ask_for({"2025-09": {QLORA: "pass"}}, "lokr fsdp1")
    assert best(found) == ""
    assert "No published run has a case for: flow=train method=lokr quant=none strategy=fsdp1" in lines(found)
    assert "Obstacles:" not in lines(found)


def test_an_impossible_query_is_refused(ask_for: Callable[..., Recommendation]) -> None:
    with pytest.raises(UserError, match="quantised weights are not trainable"):
        ask_for({"2025-09": {QLORA: "pass"}}, "full nf4")


def test_cpu_results_are_no_answer_for_a_gpu(measure: Callable[..., Grid]) -> None:
    found = recommend_on("cuda", {"cpu": measure({"2025-06": {QLORA: "pass"}})}, [parse("qlora")])
    assert (found.measured, found.best, found.considered) == (False, None, 0)
    assert found.on_cpu is not None
    assert best(found.on_cpu) == "2025-06"
    said = lines(found)
    assert said[2] == "Unknown on cuda: there are no published results for cuda. To measure:"
    apart = said.index("CPU results, which may not hold for a GPU:")
    assert [line for line in said[:apart] if "2025-06" in line] == []
    assert said[-1].strip() == CAUTION


def test_a_gpu_result_answers_for_a_gpu(measure: Callable[..., Grid]) -> None:
    grids = {"cpu": measure({"2025-09": {QLORA: "pass"}}), "cuda": measure({"2025-06": {QLORA: "pass"}})}
    found = recommend_on("cuda", grids, [parse("qlora")])
    assert (best(found), found.on_cpu, CAUTION in lines(found)) == ("2025-06", None, False)


def test_an_impossible_query_is_refused_without_gpu_results_too() -> None:
    with pytest.raises(UserError, match="quantised weights are not trainable"):
        recommend_on("cuda", {}, [parse("full nf4")])


def test_every_recommended_published_set_has_a_lock() -> None:
    for usual, found in recommended(SupportIndex(knowledge.load()), device="cpu"):
        assert found.best is not None, usual.job
        assert "--hash=sha256:" in lock_text(found.best.column), usual.job


def test_recommended_published_sets_are_green() -> None:
    known = knowledge.load()
    for usual, found in recommended(SupportIndex(known), device="cpu"):
        assert found.best is not None, usual.job
        shown = [known.cells[outcome.case, found.best.key].verdict.value for outcome in found.best.outcomes]
        assert set(shown) == {"pass"}, usual.job


def test_versions_between_two_good_sets_name_both(ask_for: Callable[..., Recommendation]) -> None:
    table = {"2025-03": {QLORA: "pass"}, "2025-06": {QLORA: "pass"}, "2025-09": {QLORA: "pass"}}
    found = ask_for(table, "qlora", have=("peft==1.5",))
    assert (best(found), [each.key for each in found.around]) == ("", ["2025-03", "2025-06"])
    assert "Between them, not measured: torch 1.0 to 2.0" in "\n".join(lines(found))


@pytest.mark.parametrize("have", [("peft==0.5",), ("peft>=1.2,<1.9",), ("peft==1.5", "torch>=1.2,<1.9")])
def test_versions_outside_all_sets_and_ranges_have_none_around_them(
    ask_for: Callable[..., Recommendation], have: tuple[str, ...]
) -> None:
    found = ask_for({"2025-03": {QLORA: "pass"}, "2025-06": {QLORA: "pass"}}, "qlora", have=have)
    assert (best(found), found.around) == ("", ())


def test_a_red_set_before_or_after_is_not_around(ask_for: Callable[..., Recommendation]) -> None:
    assert ask_for({"2025-03": {QLORA: "pass"}, "2025-06": {QLORA: "fail"}}, "qlora", have=("peft==1.5",)).around == ()
