"""The symptom of a red cell is its error, or the first cause among the checks that it missed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cases.space.verdict import Phase
from matrix.errors import UserError
from matrix.run.outcome import CheckRecord
from reports.answers.scripts.symptom import CHECKS, MEANINGS, SymptomKind, symptom

if TYPE_CHECKING:
    from collections.abc import Callable

    from matrix.run.outcome import Outcome

    Build = Callable[..., Outcome]


def off(name: str, value: Any = 0.5, op: str = "<=", bound: Any = 0.1) -> CheckRecord:
    return CheckRecord(name=name, value=value, op=op, bound=bound, ok=False)


def wrong(build_outcome: Build, *checks: CheckRecord, flow: str = "train") -> Outcome:
    return build_outcome(verdict="wrong", checks=checks, options={"flow": flow})


def test_an_error_is_shown_where_it_was_raised(build_outcome: Build) -> None:
    error = {"type": "ValueError", "message": "no"}
    found = symptom(build_outcome(verdict="fail", error=error, phase="wrap", metrics={"forward_s": 1.0}))
    assert (found.kind, found.phase, found.again) == (SymptomKind.ERROR, Phase.WRAP, False)
    assert found.reaches("wrap")
    assert not found.reaches("forward")


def test_a_phase_that_was_passed_before_is_passed_again(build_outcome: Build) -> None:
    error = {"type": "ValueError", "message": "no"}
    assert symptom(build_outcome(verdict="fail", error=error, phase="forward", metrics={"forward_s": 1.0})).again


def test_the_symptom_of_several_missed_checks_is_the_cause(build_outcome: Build) -> None:
    found = symptom(wrong(build_outcome, off("reloaded logits"), off("trained parameters missing on disk", 2, "==", 0)))
    assert found.kind is SymptomKind.DISK


def test_a_gradient_after_a_checkpoint_is_a_symptom_of_resuming(build_outcome: Build) -> None:
    assert symptom(wrong(build_outcome, off("gradient"))).kind is SymptomKind.GRADIENT
    assert symptom(wrong(build_outcome, off("gradient"), flow="resume")).kind is SymptomKind.RESUMED


def test_a_gradient_of_a_trainer_is_a_symptom_of_the_trainer(build_outcome: Build) -> None:
    options = {"flow": "train", "front_end": "trainer"}
    found = symptom(build_outcome(verdict="wrong", checks=(off("gradient"),), options=options))
    assert found.kind is SymptomKind.TRAINER


def test_a_script_names_dtypes_as_torch_does(build_outcome: Build) -> None:
    found = symptom(wrong(build_outcome, off("adapter dtype", "bf16", "==", "fp32")))
    assert found.words == "adapter dtype bfloat16, bound == float32"


def test_every_measurement_has_a_meaning() -> None:
    assert set(MEANINGS) == set(SymptomKind) - {SymptomKind.ERROR}
    assert set(CHECKS.values()) | {SymptomKind.RESUMED, SymptomKind.TRAINER} == set(MEANINGS)


@pytest.mark.parametrize(
    ("verdict", "sentence"),
    [
        ("pass", "is green: there is nothing to reproduce"),
        ("skip", "is skip"),
        ("hang", "not hang"),
        ("crash", "not crash"),
    ],
)
def test_a_verdict_without_a_comparable_symptom_is_refused(verdict: str, sentence: str, build_outcome: Build) -> None:
    with pytest.raises(UserError, match=sentence):
        symptom(build_outcome(verdict=verdict))


def test_a_check_that_no_short_script_shows_is_named(build_outcome: Build) -> None:
    with pytest.raises(UserError, match="'peak memory' is not covered"):
        symptom(wrong(build_outcome, off("peak memory")))
