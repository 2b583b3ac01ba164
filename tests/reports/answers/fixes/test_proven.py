"""Fixes that pairs of a red and a green cell prove."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from cases.space.verdict import RED
from matrix.known import findings
from matrix.known.known_problems import Cells, Problem
from matrix.search.fixes import Change, Fixes, Kind
from matrix.search.fixes import Fix as Found
from matrix.search.neighbours import SETTINGS
from reports.answers import knowledge
from reports.answers.fixes import proven
from reports.answers.fixes.remedies import Remedy
from reports.results.grid import grid

if TYPE_CHECKING:
    from collections.abc import Callable

    from matrix.run.outcome import Outcome, RunRecord, SetRecord
    from reports.answers.fixes.proven import ProvenFix

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
OPTIONS = {"flow": "train", "method": "lora", "quant": "none", "strategy": "fsdp1", "auto_wrap_policy": "none"}


@pytest.fixture
def fixes(
    build_run: Callable[..., RunRecord], build_set: Callable[..., SetRecord], build_outcome: Callable[..., Outcome]
) -> Callable[..., list[ProvenFix]]:
    """Return the fixes of a problem that is red on 2025-12, with peft 0.18, and green as the arguments state."""

    def derive(
        case: str = "green",
        on: str = "2025-12",
        verdict: str = "pass",
        because: str = "it was changed",
        **different: Any,
    ) -> list[ProvenFix]:
        old, new = build_set("2024-06"), build_set("2025-12")
        new = new.model_copy(update={"pins": {**old.pins, "peft": "0.18.0"}})
        red = build_outcome("red", "2025-12", "fail", options=OPTIONS)
        green = build_outcome(case, on, verdict, options={**OPTIONS, **different})
        problem = Problem(
            id="a",
            title="a",
            red=(Cells(case="red", sets=("2025-12",), shows="any"),),
            green=(Cells(case=case, sets=(on,), because=because),),
        )
        matrix = grid(build_run(), (old, new), (red, green))
        return list(proven.by_problem(problem, [red], matrix, "cpu"))

    return derive


def test_a_differing_setting_is_the_fix(fixes: Callable[..., list[ProvenFix]]) -> None:
    (fix,) = fixes(auto_wrap_policy="peft")
    assert (fix.kind, fix.says) == (Kind.SETTINGS, "auto_wrap_policy=peft instead of none: it was changed")
    assert (fix.red, fix.green, fix.device) == ("2025-12__red", ("2025-12__green",), "cpu")


@pytest.mark.parametrize(
    "different",
    [
        {"quant": "int8"},
        {"front_end": "trainer"},
        {"loop": "eval"},
        {"auto_wrap_policy": "peft", "gradient_accumulation_steps": 2},
    ],
)
def test_a_change_outside_the_searched_settings_is_an_alternative(
    fixes: Callable[..., list[ProvenFix]], different: dict[str, Any]
) -> None:
    assert [fix.kind for fix in fixes(**different)] == [Kind.ALTERNATIVE]


def test_options_that_only_the_green_cell_has_are_named_unless_default(
    fixes: Callable[..., list[ProvenFix]],
) -> None:
    (fix,) = fixes(quant="nf4", bnb_4bit_quant_storage="bf16", bnb_4bit_use_double_quant=False)
    assert (fix.kind, fix.change) == (
        Kind.ALTERNATIVE,
        "quant=nf4 instead of none, bnb_4bit_quant_storage=bf16 instead of uint8",
    )


@pytest.mark.parametrize(
    "different", [{"flow": "resume", "auto_wrap_policy": "peft"}, {"flow": "api", "call": "resume"}]
)
def test_a_fix_in_other_code_uses_the_text_of_the_problem(
    fixes: Callable[..., list[ProvenFix]], different: dict[str, Any]
) -> None:
    (fix,) = fixes(**different)
    assert (fix.kind, fix.change, fix.says) == (Kind.ALTERNATIVE, "", "it was changed")
    assert fixes(because="", **different) == []


def test_the_same_case_on_another_set_is_a_move(fixes: Callable[..., list[ProvenFix]]) -> None:
    (fix,) = fixes(case="red", on="2024-06")
    assert (fix.kind, fix.says) == (Kind.VERSIONS, "peft=0.11.1 instead of 0.18.0: it was changed")


def test_a_pair_that_differs_in_settings_and_versions_proves_nothing(fixes: Callable[..., list[ProvenFix]]) -> None:
    assert fixes(on="2024-06", auto_wrap_policy="peft") == []


@pytest.mark.parametrize("verdict", ["wrong", "fail", "skip", "lost"])
def test_a_cell_that_is_not_green_proves_nothing(fixes: Callable[..., list[ProvenFix]], verdict: str) -> None:
    assert fixes(verdict=verdict, auto_wrap_policy="peft") == []


def test_settings_come_first_and_then_the_users_versions(fixes: Callable[..., list[ProvenFix]]) -> None:
    settings, move = fixes(auto_wrap_policy="peft"), fixes(case="red", on="2024-06")
    pins = {"2024-06": {"peft": "0.11.1"}, "2025-12": {"peft": "0.18.0"}}
    ordered = proven.ordered([*move, *settings, *settings], {}, pins)
    assert [fix.kind for fix in ordered] == [Kind.SETTINGS, Kind.VERSIONS]
    others = [replace(fix, green=("2024-06__green",)) for fix in settings]
    (alike,) = proven.ordered([*settings, *others], {"peft": "0.11.0"}, pins)
    assert alike.green == ("2024-06__green", "2025-12__green")


def test_a_known_fix_that_a_search_found_again_is_listed_once(fixes: Callable[..., list[ProvenFix]]) -> None:
    (known,) = fixes(auto_wrap_policy="peft")
    change = Change(name="auto_wrap_policy", old="none", new="peft")
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
    (fix,) = proven.ordered([proven.from_search(Remedy(fix=found, found=every), "cpu"), known], {}, {})
    assert fix.says == "auto_wrap_policy=peft instead of none: it was changed"
    assert set(fix.green) == {"2025-12__green", "2025-12__other"}


def test_a_setting_is_looked_up_on_every_set(
    build_run: Callable[..., RunRecord], build_set: Callable[..., SetRecord], build_outcome: Callable[..., Outcome]
) -> None:
    """Problems name CPU sets; GPU results have other sets."""
    problem = Problem(
        id="a",
        title="a",
        red=(Cells(case="red", sets=("2025-12",), shows="any"),),
        green=(Cells(case="green", sets=("2025-12",), because="it was changed"),),
    )
    red = build_outcome("red", "2026-03", "fail", options=OPTIONS)
    green = build_outcome("green", "2026-03", options={**OPTIONS, "auto_wrap_policy": "peft"})
    matrix = grid(build_run(), (build_set("2026-03"),), (red, green))
    (fix,) = proven.by_problem(problem, [red], matrix, "cuda")
    assert (fix.red, fix.green, fix.device) == ("2026-03__red", ("2026-03__green",), "cuda")


def test_the_same_call_on_another_set_is_nearer_than_another_call(
    build_run: Callable[..., RunRecord], build_set: Callable[..., SetRecord], build_outcome: Callable[..., Outcome]
) -> None:
    """The versions make the cell green, not the different call."""
    problem = Problem(
        id="a",
        title="a",
        red=(
            Cells(case="one", sets=("2024-06",), shows="any"),
            Cells(case="other", sets=("2024-06", "2025-12"), shows="any"),
        ),
        green=(Cells(case="one", sets=("2025-12",), because="newer versions"),),
    )
    one, other = ({"flow": "api", "call": call} for call in ("one", "other"))
    red = [
        build_outcome("one", "2024-06", "fail", options=one),
        build_outcome("other", "2024-06", "fail", options=other),
        build_outcome("other", "2025-12", "fail", options=other),
    ]
    sets = (build_set("2024-06", pins={"peft": "0.11.0"}), build_set("2025-12", pins={"peft": "0.18.0"}))
    matrix = grid(build_run(), sets, [*red, build_outcome("one", "2025-12", options=one)])
    (fix,) = proven.by_problem(problem, red, matrix, "cpu")
    assert (fix.kind, fix.red, fix.says) == (
        Kind.VERSIONS,
        "2024-06__one",
        "peft=0.18.0 instead of 0.11.0: newer versions",
    )


def test_no_published_fix_runs_other_code() -> None:
    """Each fix names options that a search changes, or uses the text of the problem."""
    rows = findings.with_known_problems()
    for device, matrix in knowledge.by_device().items():
        red = [each for each in matrix.outcomes if each.verdict in RED]
        found = [fix for row in rows for fix in proven.by_problem(row, red, matrix, device)]
        assert found
        assert [fix.red for fix in found if not fix.says or re.search("flow=|call=", fix.change)] == []
        settings = {name.partition("=")[0] for f in found if f.kind is Kind.SETTINGS for name in f.change.split(", ")}
        assert settings <= {row.option for row in SETTINGS}
