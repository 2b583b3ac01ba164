"""The judgement of a job: red, green or unknown, and what depends on what nobody stated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cases.space.options import Options
from matrix.versions.sets import PACKAGES
from reports.answers.judgement.coverage import MeasuredCells
from reports.answers.judgement.flows import JobFlows
from reports.answers.judgement.judge import JobStatus, JudgedJob, Judgement, judge

if TYPE_CHECKING:
    from collections.abc import Callable

    from reports.results.grid import Grid

TRAIN, SAVE, RESUME = "method=lora", "flow=save_reload", "flow=resume"
VERSIONS = dict.fromkeys(PACKAGES, "1.0")


@pytest.fixture
def judged(measure: Callable[..., Grid]) -> Callable[..., Judgement]:
    def run(cells: dict[str, str], **job: Any) -> Judgement:
        return judge(JudgedJob(**{"options": Options(), **job}), VERSIONS, MeasuredCells(measure({"2025-06": cells})))

    return run


def test_a_job_is_green_if_training_and_saving_are(judged: Callable[..., Judgement]) -> None:
    assert judged({TRAIN: "pass", SAVE: "pass"}).status is JobStatus.GREEN


def test_training_alone_is_not_the_job(judged: Callable[..., Judgement]) -> None:
    found = judged({TRAIN: "pass"})
    assert (found.status, found.unmeasured) == (JobStatus.UNKNOWN, ("save_reload",))
    assert judged({TRAIN: "pass"}, flows=JobFlows(certain=("train",))).status is JobStatus.GREEN


def test_a_job_whose_saving_is_red_is_red(judged: Callable[..., Judgement]) -> None:
    found = judged({TRAIN: "pass", SAVE: "wrong"})
    assert found.status is JobStatus.RED
    assert [red.cell.stated["flow"] for red in found.reds] == ["save_reload"]


def test_a_resume_that_nobody_requested_is_only_a_possible_problem(judged: Callable[..., Judgement]) -> None:
    found = judged({TRAIN: "pass", SAVE: "pass", RESUME: "wrong"})
    assert (found.status, found.reds, len(found.possible_reds)) == (JobStatus.GREEN, (), 1)
    requested = JobFlows(certain=("train", "save_reload", "resume"))
    assert judged({TRAIN: "pass", SAVE: "pass", RESUME: "wrong"}, flows=requested).status is JobStatus.RED


def test_one_failure_of_training_and_saving_is_one_problem(judged: Callable[..., Judgement]) -> None:
    found = judged({TRAIN: "fail", SAVE: "fail"})
    assert [red.cell.stated["flow"] for red in found.reds] == ["train"]


def test_a_setting_that_no_cell_measures_leaves_it_unknown(judged: Callable[..., Judgement]) -> None:
    found = judged({TRAIN: "pass", SAVE: "pass"}, forcing=("DeepSpeed",))
    assert found.status is JobStatus.UNKNOWN
    assert judged({TRAIN: "fail"}, forcing=("DeepSpeed",)).status is JobStatus.RED


def test_an_assumed_launcher_is_red_only_if_every_launcher_is(judged: Callable[..., Judgement]) -> None:
    assumed = ("strategy",)
    found = judged({TRAIN: "fail", "strategy=ddp": "pass"}, assumed=assumed)
    assert (found.status, len(found.possible_reds)) == (JobStatus.UNKNOWN, 1)
    assert judged({TRAIN: "fail", "strategy=ddp": "fail"}, assumed=assumed).status is JobStatus.RED


def test_an_assumed_method_is_never_a_problem(judged: Callable[..., Judgement]) -> None:
    found = judged({TRAIN: "fail"}, assumed=("method",))
    assert (found.status, len(found.possible_reds)) == (JobStatus.UNKNOWN, 1)


def test_saving_in_another_precision_counts_if_nothing_nearer_was_measured(judged: Callable[..., Judgement]) -> None:
    half = {"options": Options().but(torch_dtype="bf16")}
    assert judged({"torch_dtype=bf16": "pass", SAVE: "pass"}, **half).status is JobStatus.GREEN
    assert judged({TRAIN: "pass", SAVE: "pass"}, **half).status is JobStatus.UNKNOWN


def test_a_job_of_an_assumed_method_is_never_green(judged: Callable[..., Judgement]) -> None:
    assert judged({TRAIN: "pass", SAVE: "pass"}, assumed=("method",)).status is JobStatus.UNKNOWN


def test_a_job_is_not_green_if_it_is_red_with_another_launcher(judged: Callable[..., Judgement]) -> None:
    cells = {TRAIN: "pass", SAVE: "pass", "strategy=ddp": "fail"}
    assert judged(cells).status is JobStatus.GREEN
    found = judged(cells, assumed=("strategy",))
    assert (found.status, found.reds, len(found.possible_reds)) == (JobStatus.UNKNOWN, (), 1)
