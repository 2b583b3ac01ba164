"""A fix is a pair of cells, one red and one green, and says what lies between them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from matrix.fixes import Change, Fixes, Kind
from matrix.fixes import Fix as Found
from matrix.known import Cells, Problem
from reports.answers import proven
from reports.answers.remedies import Remedy
from reports.grid import grid

if TYPE_CHECKING:
    from collections.abc import Callable

    from matrix.outcome import Outcome, RunRecord, SetRecord
    from reports.answers.proven import Fix

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
OPTIONS = {"method": "lora", "wrap": "none", "quant": "none"}


@pytest.fixture
def fixes(
    build_run: Callable[..., RunRecord], build_set: Callable[..., SetRecord], build_outcome: Callable[..., Outcome]
) -> Callable[..., list[Fix]]:
    """Of a problem that is red as ``red`` on 2025-12, with peft 0.18, and green as and where a test says."""

    def found(case: str = "green", on: str = "2025-12", verdict: str = "pass", **different: Any) -> list[Fix]:
        old, new = build_set("2024-06"), build_set("2025-12")
        new = new.model_copy(update={"pins": {**old.pins, "peft": "0.18.0"}})
        red = build_outcome("red", "2025-12", "fail", options=OPTIONS)
        green = build_outcome(case, on, verdict, options={**OPTIONS, **different})
        problem = Problem(
            id="a",
            title="a",
            red=(Cells(case="red", sets=("2025-12",), shows="any"),),
            green=(Cells(case=case, sets=(on,), because="it was changed"),),
        )
        matrix = grid(build_run(), (old, new), (red, green))
        return list(proven.beside(problem, [red], matrix, "cpu"))

    return found


def test_a_setting_that_differs_is_the_fix(fixes: Callable[..., list[Fix]]) -> None:
    (fix,) = fixes(wrap="peft")
    assert (fix.kind, fix.says) == (Kind.SETTINGS, "wrap=peft instead of none: it was changed")
    assert (fix.red, fix.green, fix.device) == ("2025-12__red", ("2025-12__green",), "cpu")


def test_what_gives_up_part_of_the_wish_is_an_alternative(fixes: Callable[..., list[Fix]]) -> None:
    assert [fix.kind for fix in fixes(quant="nf4")] == [Kind.ALTERNATIVE]


def test_the_same_case_on_another_set_is_a_move(fixes: Callable[..., list[Fix]]) -> None:
    (fix,) = fixes(case="red", on="2024-06")
    assert (fix.kind, fix.says) == (Kind.VERSIONS, "peft=0.11.1 instead of 0.18.0: it was changed")


def test_what_differs_in_settings_and_versions_proves_neither(fixes: Callable[..., list[Fix]]) -> None:
    assert fixes(on="2024-06", wrap="peft") == []


@pytest.mark.parametrize("verdict", ["wrong", "fail", "skip", "lost"])
def test_what_is_not_green_proves_nothing(fixes: Callable[..., list[Fix]], verdict: str) -> None:
    assert fixes(verdict=verdict, wrap="peft") == []


def test_settings_come_first_and_versions_like_the_users(fixes: Callable[..., list[Fix]]) -> None:
    settings, move = fixes(wrap="peft"), fixes(case="red", on="2024-06")
    pins = {"2024-06": {"peft": "0.11.1"}, "2025-12": {"peft": "0.18.0"}}
    ordered = proven.ordered([*move, *settings, *settings], {}, pins)
    assert [fix.kind for fix in ordered] == [Kind.SETTINGS, Kind.VERSIONS]
    others = [replace(fix, green=("2024-06__green",)) for fix in settings]
    (alike,) = proven.ordered([*settings, *others], {"peft": "0.11.0"}, pins)
    assert alike.green == ("2024-06__green", "2025-12__green")


def test_what_a_search_found_again_is_told_once(fixes: Callable[..., list[Fix]]) -> None:
    (known,) = fixes(wrap="peft")
    change = Change(name="wrap", old="none", new="peft")
    found = Found(
        set="2025-12",
        case="red",
        kind=Kind.SETTINGS,
        to_set="2025-12",
        to_case="other",
        changes=(change,),
        tried=3,
        within="3",
    )
    every = Fixes(generated=NOON, device="cpu", hardware="cpu: test", code="c0de", fixes=(found,))
    (fix,) = proven.ordered([proven.searched(Remedy(fix=found, found=every), "cpu"), known], {}, {})
    assert fix.says == "wrap=peft instead of none: it was changed"
    assert set(fix.green) == {"2025-12__green", "2025-12__other"}


def test_a_setting_is_looked_for_on_every_set(
    build_run: Callable[..., RunRecord], build_set: Callable[..., SetRecord], build_outcome: Callable[..., Outcome]
) -> None:
    """A GPU's sets are not those that a problem names."""
    problem = Problem(
        id="a",
        title="a",
        red=(Cells(case="red", sets=("2025-12",), shows="any"),),
        green=(Cells(case="green", sets=("2025-12",), because="it was changed"),),
    )
    red = build_outcome("red", "2026-03", "fail", options=OPTIONS)
    green = build_outcome("green", "2026-03", options={**OPTIONS, "wrap": "peft"})
    matrix = grid(build_run(), (build_set("2026-03"),), (red, green))
    (fix,) = proven.beside(problem, [red], matrix, "cuda")
    assert (fix.red, fix.green, fix.device) == ("2026-03__red", ("2026-03__green",), "cuda")
