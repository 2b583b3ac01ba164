"""Other results narrow the moved packages of a regression down: bisections first, then neighbours, then findings."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from matrix.known import findings
from reports.alerts.from_diff import alert_document
from reports.answers.diagnosis.signatures import CauseKind, Signature
from reports.answers.diff.changes import CellCause, DiffSide
from reports.answers.diff.compare import compare
from reports.answers.diff.narrowing import OtherResults, narrowed
from reports.results.grid import grid

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import date

    from matrix.bisect.answer import BisectAnswer
    from matrix.run.outcome import Outcome, RunRecord, SetRecord
    from reports.answers.diff.changes import ResultDiff
    from reports.results.grid import Grid

BASE, NEW = "2025-12", "2026-03"
FINDING = next(each for each in findings.load() if each.id == "dynamic-rope-never-reset")
CASE = FINDING.red[0].case  # red on 2026-03
OLD_PINS = {"torch": "2.9.1", "transformers": "4.57.3", "peft": "0.18.0"}
NEW_PINS = {"torch": "2.10.0", "transformers": "5.3.0", "peft": "0.18.1"}
MOVED = ("torch", "transformers", "peft")


@pytest.fixture
def build_grid(
    build_run: Callable[..., RunRecord], build_set: Callable[..., SetRecord], build_outcome: Callable[..., Outcome]
) -> Callable[..., Grid]:
    def made(key: str, pins: dict[str, str], verdict: str, case: str = CASE) -> Grid:
        return grid(build_run(), [build_set(key, pins=pins)], [build_outcome(case, key, verdict)])

    return made


@pytest.fixture
def regressed(build_grid: Callable[..., Grid]) -> Callable[..., ResultDiff]:
    def made(case: str = CASE) -> ResultDiff:
        before, now = (
            DiffSide(
                name=key,
                device="cpu",
                hardware="cpu: test",
                matrix=build_grid(key, pins, verdict, case),
                locks={key: pins},
            )
            for key, pins, verdict in ((BASE, OLD_PINS, "pass"), (NEW, NEW_PINS, "wrong"))
        )
        return compare(before, now, [(BASE, NEW)], rows=[])

    return made


def suspects(diff: ResultDiff, other: OtherResults) -> tuple[tuple[str, ...], str]:
    (change,) = narrowed(diff, other).changes
    return change.suspects, change.proof


def test_without_other_results_nothing_changes(regressed: Callable[..., ResultDiff], build_grid: Any) -> None:
    other = OtherResults(matrix=build_grid(BASE, OLD_PINS, "pass"))
    assert suspects(regressed(), other) == ((), "")


def test_a_set_that_differs_in_one_package_and_is_green_names_it(
    regressed: Callable[..., ResultDiff], build_grid: Any
) -> None:
    key = f"{NEW}+peft0.18.0"
    other = OtherResults(matrix=build_grid(key, {**NEW_PINS, "peft": "0.18.0"}, "pass"), findings=[FINDING])
    words = f"`{key}`, which has peft 0.18.0 and otherwise the same stack, is green."
    assert suspects(regressed(), other) == (("peft",), words)


def test_a_set_that_is_red_or_differs_in_a_package_that_did_not_move_names_nothing(
    regressed: Callable[..., ResultDiff], build_grid: Any
) -> None:
    red = build_grid("x", {**NEW_PINS, "peft": "0.18.0"}, "wrong")
    unmoved = build_grid("x", {**NEW_PINS, "trl": "0.9.4"}, "pass")
    for matrix in (red, unmoved):
        assert suspects(regressed(), OtherResults(matrix=matrix)) == ((), "")


def test_a_finding_names_its_package_for_its_own_cells_only(
    regressed: Callable[..., ResultDiff], build_grid: Any
) -> None:
    other = OtherResults(matrix=build_grid(BASE, OLD_PINS, "pass"), findings=[FINDING])
    names, proof = suspects(regressed(), other)
    assert (names, proof) == (("transformers",), f"The finding {FINDING.id} is an error of transformers.")
    assert suspects(regressed("api-another"), other) == ((), "")


def test_a_bisection_between_the_same_sets_comes_first(
    regressed: Callable[..., ResultDiff], build_grid: Any, answer: Callable[..., BisectAnswer], later: date
) -> None:
    culprit = {"package": "torch", "last_good": "2.9.1", "first_bad": "2.10.0", "first_bad_set": "x"}
    found = answer(culprit, case=CASE, good=BASE, bad=NEW)
    matrix = build_grid(BASE, OLD_PINS, "pass")
    other = OtherResults(matrix=matrix, findings=[FINDING], bisected=[found])
    names, proof = suspects(regressed(), other)
    assert (names, proof) == (("torch",), "A bisection between these sets found torch 2.9.1 -> 2.10.0.")
    elsewhere = OtherResults(matrix=matrix, bisected=[found.model_copy(update={"device": "cuda"})])
    assert suspects(regressed(), elsewhere) == ((), "")
    (alert,) = alert_document(narrowed(regressed(), other), today=later).alerts
    assert [each.name for each in alert.moved] == ["torch"]
    assert proof in alert.body


@pytest.mark.parametrize(
    ("bounds", "names"),
    [
        ({"transformers": ">=5"}, ("transformers",)),
        ({"transformers": ">=4.50"}, ()),  # both versions have the cause
        ({"transformers": ">=5", "peft": ">=0.18.1"}, ()),  # either may be the reason
    ],
)
def test_a_package_that_moved_into_the_versions_of_the_cause_is_named(
    bounds: dict[str, str], names: tuple[str, ...], regressed: Callable[..., ResultDiff], build_grid: Any
) -> None:
    row = Signature(id="known", pattern="x", cause="It broke.", kind=CauseKind.BUG, versions=bounds)
    diff = regressed("api-another")
    (change,) = diff.changes
    explained = replace(diff, changes=(replace(change, cause=CellCause(title="known", signature=row)),))
    found, proof = suspects(explained, OtherResults(matrix=build_grid(BASE, OLD_PINS, "pass")))
    assert (found, bool(proof)) == (names, bool(names))
