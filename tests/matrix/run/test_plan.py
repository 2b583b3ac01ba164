"""Tests the selection of cases by `--where`, and its error messages."""

from __future__ import annotations

import pytest

from cases.grid import DEFAULT
from matrix.errors import UserError
from matrix.run.plan import renamings, select, spread, where

CASES = {case.id: case for case in DEFAULT}


def selected_ids(text: str) -> set[str]:
    return {case.id for case in select(CASES, where(text), text=text)}


def test_without_terms_every_case_is_selected() -> None:
    assert selected_ids("") == set(CASES)


def test_terms_narrow_each_other() -> None:
    assert selected_ids("quant=nf4 strategy=ddp") == selected_ids("quant=nf4") & selected_ids("strategy=ddp")


def test_values_of_a_term_widen_each_other() -> None:
    assert selected_ids("strategy=fsdp1,fsdp2") == selected_ids("strategy=fsdp1") | selected_ids("strategy=fsdp2")


def test_a_term_can_be_negated() -> None:
    assert selected_ids("quant!=none") == set(CASES) - selected_ids("quant=none")


def test_a_case_that_does_not_have_an_option_does_not_match_its_default() -> None:
    assert all(CASES[name].options.strategy == "fsdp1" for name in selected_ids("use_orig_params=true"))


def test_cases_and_groups_are_patterns() -> None:
    assert selected_ids("case=train-dora-*") == {name for name in CASES if name.startswith("train-dora-")}
    assert selected_ids("group=fsdp1*") == selected_ids("strategy=fsdp1")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("quant", "'quant' is not of the form option=value"),
        ("quant=", "'quant=' is not of the form option=value"),
        ("quant=nf5", "option 'quant' has no value 'nf5'; choose from none, nf4, fp4, int8"),
        ("strateg=ddp", "did you mean 'strategy'"),
        ("quant=nf4,", "option 'quant' has no value ''"),
        ("case=nothing-of-the-kind", "matches none of"),
    ],
)
def test_a_wrong_term_raises_a_user_error(text: str, sentence: str) -> None:
    with pytest.raises(UserError) as refused:
        selected_ids(text)
    assert sentence in str(refused.value)


@pytest.mark.parametrize("count", [1, 3, 8, 100])
def test_a_sample_is_no_larger_than_its_size_and_its_source(count: int) -> None:
    cells = [f"cell-{number}" for number in range(10)]
    assert len(spread(cells, count)) == min(count, 10)


def test_a_sample_is_spread_over_all_cells() -> None:
    assert spread([str(number) for number in range(8)], 4) == ("0", "2", "4", "6")
    assert spread(range(9), 3) == (0, 3, 6)


def test_a_sample_of_size_zero_is_empty() -> None:
    assert spread(["a", "b"], 0) == ()
    assert spread([], 3) == ()


@pytest.mark.parametrize("count", [3, 8, 9, 15])
def test_a_sample_of_any_size_reaches_the_last_cells(count: int) -> None:
    found = spread(range(10), count)
    assert len(set(found)) == len(found)
    assert found[-1] >= 6


def test_a_former_option_name_is_answered_with_the_present_one() -> None:
    assert renamings("quant=nf4 wrap=peft sharding!=grad_op") == (
        "--where wrap=peft: the option is auto_wrap_policy now (auto_wrap_policy=peft)",
        "--where sharding!=grad_op: the option is sharding_strategy now (sharding_strategy!=shard_grad_op)",
    )
