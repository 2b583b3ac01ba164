"""The table of known problems: well-formed, and about cases and sets that there are."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from cases.suite import CASES
from matrix.errors import UserError
from matrix.known import known_problems
from matrix.versions import sets

if TYPE_CHECKING:
    from pathlib import Path

TABLE = known_problems.load()
NAMED_ALIKE = {"bnb-missing-cuda-binary"}  # two reports
FOUND = known_problems.load(known_problems.FINDINGS)
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
    strangers = {
        (key, case) for each in (*TABLE, *FOUND) for key, case in each.cells() if key not in keys or case not in CASES
    }
    assert strangers == set()


def test_no_problem_is_there_twice() -> None:
    assert len({each.id for each in TABLE}) == len(TABLE)


def test_what_is_reported_has_its_threads_and_what_we_found_has_none() -> None:
    assert [each.id for each in TABLE if not (each.links or each.family)] == []
    assert [each.id for each in FOUND if each.links or each.entries] == []


def test_no_upstream_report_is_claimed_by_two_rows() -> None:
    claimed = Counter(entry for each in TABLE for entry in set(each.entries))
    assert [entry for entry, rows in claimed.items() if rows > 1 and entry not in NAMED_ALIKE] == []


def test_every_row_says_what_would_show_it() -> None:
    assert [each.id for each in TABLE if not each.red] == []


def test_work_is_what_the_rows_name_set_by_set() -> None:
    problems = [each for each in TABLE if each.red][:1]
    work = known_problems.work(problems, sets.load(), CASES)
    assert {(each.key, case.id) for each, cases in work for case in cases} == set(problems[0].cells())


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "no table of known problems"),
        (ROW.replace('"x"', '"("'), "red.0.shows"),
        (ROW.replace("huggingface/peft#1", "somewhere"), "'somewhere' is no thread"),
        (ROW + 'colour = "red"\n', "colour: Extra inputs are not permitted"),
        (ROW + 'claims = [{ says = "upgrade" }]\n', "a claim names its cells"),
    ],
)
def test_a_malformed_row_is_refused_in_a_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(UserError) as refused:
        known_problems.load(written(tmp_path, text))
    assert sentence in str(refused.value)


def test_a_case_that_there_is_not_is_said(tmp_path: Path) -> None:
    problems = known_problems.load(written(tmp_path, ROW.replace("train-lora-single-fp32", "train-nothing")))
    with pytest.raises(UserError, match="known problem one: there is no case 'train-nothing'"):
        known_problems.work(problems, sets.load(), CASES)


def test_an_unknown_problem_is_named_with_those_near(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no known problem 'onee'; did you mean one"):
        known_problems.select(known_problems.load(written(tmp_path, ROW)), "onee")
