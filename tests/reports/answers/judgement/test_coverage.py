"""Coverage of a job by measured cells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cases.space.case import Case
from cases.space.options import Options
from matrix.run.outcome import ErrorRecord
from reports.answers.diagnosis.diagnose import diagnose
from reports.answers.diagnosis.signatures import CauseKind, Signature
from reports.answers.judgement import coverage
from reports.answers.judgement.coverage import MeasuredCells, covers, unmeasured_settings
from reports.results.grid import grid

if TYPE_CHECKING:
    from collections.abc import Callable

    from matrix.run.outcome import Outcome, RunRecord, SetRecord
    from reports.answers.judgement.coverage import JobCoverage

FLAT = {"strategy": "fsdp1", "use_orig_params": False}
JOB = Options().but(**FLAT, optim="adamw", gradient_accumulation_steps=2, sync_module_states=True)


@pytest.fixture
def job_coverage(
    build_run: Callable[..., RunRecord], build_set: Callable[..., SetRecord], build_outcome: Callable[..., Outcome]
) -> Callable[..., JobCoverage]:
    """Return the coverage of the job by cells with some verdicts, with the versions of their set or others."""

    def build(
        *cells: tuple[str, dict[str, Any]],
        job: Options = JOB,
        also: tuple[str, tuple[str, dict[str, Any]]] | None = None,
        **versions: str,
    ) -> JobCoverage:
        outcomes = []
        on_sets = [("2024-06", cell) for cell in cells] + ([also] if also else [])
        for key, (verdict, changes) in on_sets:
            options = Options().but(**changes)
            case = Case(group="", why="", options=options)
            error = ErrorRecord(type="ValueError", message="no") if verdict == "fail" else None
            outcomes.append(build_outcome(case.id, key, verdict, options=options.stated, error=error))
        columns = [build_set(key) for key in dict.fromkeys(key for key, _ in on_sets)]
        return MeasuredCells(grid(build_run(), columns, outcomes)).coverage(job, {**columns[0].pins, **versions})

    return build


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (FLAT, True),
        ({**FLAT, "optim": "adamw"}, True),
        ({**FLAT, "clip_grad_norm": True}, False),
        ({**FLAT, "optim": "adamw_8bit"}, False),
        ({"strategy": "fsdp1"}, False),
        ({**FLAT, "auto_wrap_policy": "peft"}, False),
        ({**FLAT, "torch_dtype": "bf16"}, False),
        ({**FLAT, "method": "dora"}, False),
        ({**FLAT, "world_size": 4}, False),
    ],
)
def test_a_job_covers_its_simpler_forms_only(part: dict[str, Any], *, expected: bool) -> None:
    assert covers(JOB.stated, Options().but(**part).stated) is expected


def test_a_job_is_red_if_a_simpler_form_is_red(job_coverage: Callable[..., JobCoverage]) -> None:
    found = job_coverage(("fail", FLAT))
    assert [red.cell.outcome.case for red in found.reds] == ["train-lora-fsdp1-use_orig_params_false-fp32"]
    assert not found.is_green


def test_an_added_setting_may_avoid_the_failure(job_coverage: Callable[..., JobCoverage]) -> None:
    found = job_coverage(("fail", FLAT), ("pass", {**FLAT, "sync_module_states": True}))
    assert found.is_green


def test_a_green_cell_does_not_excuse_a_red_one_of_the_same_case(job_coverage: Callable[..., JobCoverage]) -> None:
    """The two cells ran on sets that differ only in packages that the case does not use."""
    found = job_coverage(("fail", FLAT), also=("2024-07", ("pass", FLAT)))
    assert (len(found.reds), len(found.greens)) == (1, 1)


def test_a_green_simpler_form_does_not_excuse_a_red_addition(job_coverage: Callable[..., JobCoverage]) -> None:
    found = job_coverage(("pass", FLAT), ("wrong", {**FLAT, "gradient_accumulation_steps": 2}))
    assert len(found.reds) == 1
    assert not found.is_green


def test_cells_of_other_jobs_are_not_covered(job_coverage: Callable[..., JobCoverage]) -> None:
    found = job_coverage(("fail", {"strategy": "fsdp2"}), ("fail", {**FLAT, "clip_grad_norm": True}), ("skip", FLAT))
    assert (found.reds, found.greens, found.is_green) == ((), (), False)


def test_cells_with_other_versions_of_a_used_package_are_not_covered(job_coverage: Callable[..., JobCoverage]) -> None:
    assert job_coverage(("fail", FLAT), peft="0.12.0").reds == ()
    assert len(job_coverage(("fail", FLAT), peft="0.11.1+local", trl="1.0.0").reds) == 1


def test_each_cause_is_reported_once(job_coverage: Callable[..., JobCoverage]) -> None:
    found = job_coverage(("fail", FLAT), ("fail", {**FLAT, "gradient_accumulation_steps": 2}))
    assert [red.cell.outcome.case for red in found.reds] == ["train-lora-fsdp1-use_orig_params_false-fp32"]


def test_without_covered_cells_the_nearest_count_if_all_are_red(job_coverage: Callable[..., JobCoverage]) -> None:
    near = ("fail", {**FLAT, "torch_dtype": "bf16", "autocast_adapter_dtype": False})
    assert job_coverage(("fail", {**FLAT, "auto_wrap_policy": "none"})).reds[0].near == ("auto_wrap_policy",)
    assert job_coverage(("fail", {**FLAT, "auto_wrap_policy": "none"}), ("pass", {"strategy": "fsdp1"})).reds == ()
    assert job_coverage(near).reds == ()
    assert job_coverage(near).nearest[0].outcome.verdict == "fail"


def test_cpu_cells_that_accelerate_should_shard_are_no_evidence(job_coverage: Callable[..., JobCoverage]) -> None:
    job = Options().but(**FLAT, front_end="accelerate")
    assert job_coverage(("wrong", {**FLAT, "front_end": "accelerate"}), job=job).reds == ()


@pytest.mark.parametrize("kind", [CauseKind.MACHINE, CauseKind.BUG])
def test_failures_caused_by_the_machine_are_listed_apart(
    job_coverage: Callable[..., JobCoverage], monkeypatch: pytest.MonkeyPatch, kind: CauseKind
) -> None:
    row = Signature(id="a-row", pattern="no", cause="because", kind=kind)
    monkeypatch.setattr(coverage, "diagnose", lambda of: diagnose(of, [row]))
    found = job_coverage(("fail", FLAT))
    machine_reds, reds = (
        (found.machine_reds, found.reds) if kind is CauseKind.MACHINE else (found.reds, found.machine_reds)
    )
    assert ([red.cause for red in machine_reds], reds) == (["a-row"], ())


def test_settings_that_no_green_case_has_are_named(job_coverage: Callable[..., JobCoverage]) -> None:
    found = job_coverage(("pass", {**FLAT, "optim": "adamw"}))
    assert unmeasured_settings(JOB, found.greens) == ("sync_module_states=True", "gradient_accumulation_steps=2")


PEFT_WRAPPED = {**FLAT, "auto_wrap_policy": "peft"}


def test_a_near_failure_that_the_difference_avoids_elsewhere_does_not_count(
    job_coverage: Callable[..., JobCoverage],
) -> None:
    job = Options().but(**PEFT_WRAPPED)
    elsewhere = ("pass", {**PEFT_WRAPPED, "torch_dtype": "bf16"})
    assert job_coverage(("fail", FLAT), job=job).reds[0].near == ("auto_wrap_policy",)
    assert job_coverage(("fail", FLAT), elsewhere, job=job).reds == ()
    pair = [("fail", {**FLAT, "clip_grad_norm": True}), ("pass", {**PEFT_WRAPPED, "clip_grad_norm": True})]
    assert job_coverage(("fail", FLAT), *pair, job=job).reds == ()
    assert job_coverage(("fail", FLAT), pair[1], job=job).reds != ()  # not known to fail without it


def test_near_failures_of_several_causes_show_that_the_difference_matters(
    job_coverage: Callable[..., JobCoverage], monkeypatch: pytest.MonkeyPatch
) -> None:
    near = [("fail", FLAT), ("fail", {"strategy": "fsdp1", "auto_wrap_policy": "peft"})]
    monkeypatch.setattr(coverage.Red, "cause", property(lambda red: red.cell.outcome.case))
    assert job_coverage(*near, job=Options().but(**PEFT_WRAPPED)).reds == ()
