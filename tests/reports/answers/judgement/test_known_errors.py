"""Errors of released versions, by the version of the package and the facts of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from packaging.version import Version

from cases.space.options import Options
from matrix.known.findings import Finding
from matrix.versions.sets import PACKAGES
from reports.answers.judgement.coverage import MeasuredCells
from reports.answers.judgement.judge import JudgedJob, judge
from reports.answers.judgement.known_errors import Affected, KnownError, MeasuredErrors, placed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from reports.results.grid import Grid

CASE = "train-lora-single-fp32"
TERMS = "method=lora"
TABLE = {"2025-03": {TERMS: "fail"}, "2025-06": {TERMS: "fail"}, "2025-09": {TERMS: "pass"}}  # 1.0, 2.0 and 3.0


def finding(**changed: Any) -> Finding:
    row = {
        "id": "one",
        "title": "it breaks",
        "kind": "bug",
        "package": "peft",
        "meet": "Train.",
        "when": [{"method": ["lora"]}],
        "threads": [{"link": "huggingface/peft#1", "status": "open"}],
        "red": [{"case": CASE, "sets": ["2025-03"], "shows": "RuntimeError"}],
    }
    return Finding.model_validate({**row, **changed})


@pytest.fixture
def met(measure: Callable[..., Grid]) -> Callable[..., tuple[KnownError, ...]]:
    """Return the errors that a job meets with one version of all packages."""

    def meet(
        version: str, facts: Mapping[str, Any], *, assumed: tuple[str, ...] = (), **changed: Any
    ) -> tuple[KnownError, ...]:
        known = MeasuredErrors(measure(TABLE), [finding(**changed)])
        return tuple(known.met_by(facts, dict.fromkeys(PACKAGES, version), assumed))

    return meet


@pytest.mark.parametrize(
    ("version", "affected"),
    [
        ("1.0", Affected.YES),
        ("1.5", Affected.BETWEEN),
        ("2.0", Affected.YES),
        ("2.5", Affected.OPEN),
        ("3.0", Affected.NO),
        ("3.5", Affected.NO),
        ("0.5", Affected.OPEN),
    ],
)
def test_a_version_is_placed_among_the_measured_ones(version: str, affected: Affected) -> None:
    measured = {Version("1.0"): True, Version("2.0"): True, Version("3.0"): False}
    assert placed(Version(version), measured) is affected


def test_cells_decide_which_versions_have_the_error(met: Callable[..., tuple[KnownError, ...]]) -> None:
    facts = {"method": "lora"}
    found = {version: [each.certain for each in met(version, facts)] for version in ("1.0", "1.5", "2.5", "3.0")}
    assert found == {"1.0": [True], "1.5": [True], "2.5": [False], "3.0": []}


def test_stated_versions_win_over_cells(met: Callable[..., tuple[KnownError, ...]]) -> None:
    facts = {"method": "lora"}
    assert [bool(met(version, facts, versions=">=2.5")) for version in ("1.0", "3.0")] == [False, True]


def test_a_fact_that_is_assumed_or_missing_makes_an_error_uncertain(
    met: Callable[..., tuple[KnownError, ...]],
) -> None:
    assert [each.certain for each in met("1.0", {"method": "lora"}, assumed=("method",))] == [False]
    assert [each.certain for each in met("1.0", {})] == [False]
    assert met("1.0", {"method": "dora"}) == ()


def test_an_error_of_the_users_own_code_is_told_apart(met: Callable[..., tuple[KnownError, ...]]) -> None:
    (error,) = met("1.0", {"method": "lora"}, when=[{"method": ["lora"], "own_code": [True]}])
    assert (error.in_code, error.certain) == (True, False)
    (error,) = met("1.0", {}, when=[{"resumes": [True]}])
    assert (error.in_code, error.certain) == (False, False)


def test_wrong_numbers_in_logs_and_chosen_behaviour_are_no_failure(
    met: Callable[..., tuple[KnownError, ...]],
) -> None:
    chosen = {"kind": "by design", "documented": "https://a.b/c", "threads": []}
    for changed in ({"numbers_only": True}, chosen):
        (error,) = met("1.0", {"method": "lora"}, **changed)
        assert (error.certain, error.is_failure) == (True, False)


@pytest.mark.parametrize(("corrected", "certain"), [((), 1), (("one",), 0)])
def test_an_error_that_a_framework_corrects_is_only_possible(
    measure: Callable[..., Grid], corrected: tuple[str, ...], certain: int
) -> None:
    matrix = measure(TABLE)
    job = JudgedJob(options=Options(), facts={"accumulates": True}, corrected=corrected)
    known = MeasuredErrors(matrix, [finding(versions=">=0.1", when=[{"accumulates": [True]}])])
    found = judge(job, dict.fromkeys(PACKAGES, "9.0"), MeasuredCells(matrix), known)
    assert (len(found.errors), len(found.possible_errors)) == (certain, 1 - certain)


@pytest.mark.parametrize(("own", "certain"), [(False, 1), (True, 0)])
def test_a_job_with_a_trainer_of_its_own_only_may_meet_an_error_of_the_trainer(
    measure: Callable[..., Grid], certain: int, *, own: bool
) -> None:
    matrix = measure(TABLE)
    job = JudgedJob(options=Options(), facts={"front_end": "trainer"}, own_trainer=own)
    known = MeasuredErrors(matrix, [finding(versions=">=0.1", when=[{"front_end": ["trainer"]}])])
    found = judge(job, dict.fromkeys(PACKAGES, "9.0"), MeasuredCells(matrix), known)
    assert (len(found.errors), len(found.possible_errors)) == (certain, 1 - certain)
