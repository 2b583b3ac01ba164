"""`--where` narrows the grid, and says what is wrong with a term."""

from __future__ import annotations

import pytest

from cases.grid import DEFAULT
from matrix.errors import UserError
from matrix.run.plan import select, spread, where

CASES = {case.id: case for case in DEFAULT}


def chosen(text: str) -> set[str]:
    return {case.id for case in select(CASES, where(text), text=text)}


def test_nothing_asked_is_everything() -> None:
    assert chosen("") == set(CASES)


def test_terms_narrow_each_other() -> None:
    assert chosen("quant=nf4 strategy=ddp") == chosen("quant=nf4") & chosen("strategy=ddp")


def test_values_of_a_term_widen_each_other() -> None:
    assert chosen("strategy=fsdp1,fsdp2") == chosen("strategy=fsdp1") | chosen("strategy=fsdp2")


def test_a_term_can_be_turned_round() -> None:
    assert chosen("quant!=none") == set(CASES) - chosen("quant=none")


def test_a_case_that_does_not_have_an_option_does_not_match_its_default() -> None:
    assert all(CASES[name].options.strategy == "fsdp1" for name in chosen("use_orig_params=true"))


def test_cases_and_groups_are_patterns() -> None:
    assert chosen("case=train-dora-*") == {name for name in CASES if name.startswith("train-dora-")}
    assert chosen("group=fsdp1*") == chosen("strategy=fsdp1")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("quant", "'quant' is not of the form option=value"),
        ("quant=", "'quant=' is not of the form option=value"),
        ("quant=nf5", "option 'quant' has no value 'nf5'; choose from none, nf4, fp4, int8"),
        ("strateg=ddp", "did you mean 'strategy'"),
        ("quant=nf4,", "option 'quant' has no value ''"),
        ("case=nothing-of-the-kind", "leaves no case of"),
    ],
)
def test_a_wrong_term_is_said_in_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(UserError) as refused:
        chosen(text)
    assert sentence in str(refused.value)


@pytest.mark.parametrize("count", [1, 3, 8, 100])
def test_a_sample_is_never_larger_than_asked_nor_than_there_is(count: int) -> None:
    cells = [f"cell-{number}" for number in range(10)]
    assert len(spread(cells, count)) == min(count, 10)


def test_a_sample_reaches_over_all_cells() -> None:
    assert spread([str(number) for number in range(8)], 4) == ("0", "2", "4", "6")
    assert spread(range(9), 3) == (0, 3, 6)


def test_no_sample_is_none() -> None:
    assert spread(["a", "b"], 0) == ()
    assert spread([], 3) == ()


@pytest.mark.parametrize("count", [3, 8, 9, 15])
def test_it_reaches_to_the_end_however_many_are_asked_for(count: int) -> None:
    found = spread(range(10), count)
    assert len(set(found)) == len(found)
    assert found[-1] >= 6
