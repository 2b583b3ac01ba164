"""Tests that the table of known problems is valid, and names existing cases and sets."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from cases.suite import CASES
from matrix.errors import UserError
from matrix.known import findings, known_problems
from matrix.versions import sets

if TYPE_CHECKING:
    from pathlib import Path

TABLE = known_problems.load()
NAMED_ALIKE = {"bnb-missing-cuda-binary"}  # two reports
ROW = """
[[problem]]
id = "one"
title = "something breaks"
links = ["huggingface/peft#1"]
red = [{ case = "train-lora-single-fp32", sets = ["2024-06"], shows = "x" }]
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "known.toml"
    path.write_text(text)
    return path


def test_every_cell_of_the_table_exists() -> None:
    keys = {each.key for each in sets.load()}
    unknown = {
        (key, case)
        for each in findings.with_known_problems()
        for key, case in each.cells()
        if key not in keys or case not in CASES
    }
    assert unknown == set()


def test_ids_are_unique() -> None:
    ids = Counter(each.id for each in findings.with_known_problems())
    assert [name for name, rows in ids.items() if rows > 1] == []


def test_problems_have_threads() -> None:
    assert [each.id for each in TABLE if not (each.links or each.family)] == []


def test_no_entry_belongs_to_two_problems() -> None:
    rows_by_entry = Counter(entry for each in TABLE for entry in set(each.entries))
    assert [entry for entry, rows in rows_by_entry.items() if rows > 1 and entry not in NAMED_ALIKE] == []


def test_every_problem_has_red_cells() -> None:
    assert [each.id for each in TABLE if not each.red] == []


def test_work_has_the_cells_of_the_problems_by_set() -> None:
    problems = [each for each in TABLE if each.red][:1]
    work = known_problems.work(problems, sets.load(), CASES, device="cpu")
    assert {(each.key, case.id) for each, cases in work for case in cases} == set(problems[0].cells())


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "no known problems; the file needs [[problem]] tables"),
        (ROW.replace('"x"', '"("'), "red.0.shows"),
        (ROW.replace("huggingface/peft#1", "somewhere"), "'somewhere' is no thread"),
        (ROW + 'colour = "red"\n', "colour: Extra inputs are not permitted"),
        (ROW + 'claims = [{ says = "upgrade" }]\n', "a claim needs cells"),
    ],
)
def test_a_malformed_row_raises_a_user_error(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(UserError) as refused:
        known_problems.load(written(tmp_path, text))
    assert sentence in str(refused.value)


def test_the_error_names_an_unknown_case(tmp_path: Path) -> None:
    problems = known_problems.load(written(tmp_path, ROW.replace("train-lora-single-fp32", "train-nothing")))
    with pytest.raises(UserError, match="known problem one: unknown case 'train-nothing'"):
        known_problems.work(problems, sets.load(), CASES, device="cpu")


def test_cells_for_gpus_run_on_gpus_only(tmp_path: Path) -> None:
    row = ROW.replace("shows", 'device = "cuda", shows')
    problems = known_problems.load(written(tmp_path, row))
    work = known_problems.work(problems, sets.load(), CASES, device="cuda")
    assert [(each.key, [case.id for case in cases]) for each, cases in work] == [
        ("2024-06", ["train-lora-single-fp32"])
    ]
    with pytest.raises(UserError, match="none of these problems has a cell for cpu on these sets"):
        known_problems.work(problems, sets.load(), CASES, device="cpu")


def test_the_error_for_an_unknown_problem_suggests_similar_ids(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="unknown problem 'onee'; did you mean one"):
        known_problems.select(known_problems.load(written(tmp_path, ROW)), "onee")
