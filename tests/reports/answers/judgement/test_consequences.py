"""A fix that makes training green may make the rest of the job red, or bring a known error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cases.space.options import Options
from matrix.versions.sets import PACKAGES
from reports.answers.judgement.consequences import Consequences

if TYPE_CHECKING:
    from collections.abc import Callable

    from reports.results.grid import Grid

VERSIONS = dict.fromkeys(PACKAGES, "1.0")
BEFORE, AFTER = "strategy=fsdp2", "strategy=ddp"
SAVED = "flow=save_reload strategy=ddp"


def dangers(measure: Callable[..., Grid], cells: dict[str, str], *explained: str, device: str = "cpu") -> list[str]:
    matrix = measure({"2025-06": cells})
    before, after = (Options().but(strategy=name, world_size=2) for name in ("fsdp2", "ddp"))
    return list(Consequences(matrix, matrix, device).new_dangers(before, after, VERSIONS, explained))


def test_a_fix_after_which_saving_is_red_names_the_cell(measure: Callable[..., Grid]) -> None:
    (danger,) = dangers(measure, {BEFORE: "fail", AFTER: "pass", SAVED: "wrong"})
    assert danger == "saving and loading again is then red: 2025-06__save_reload-lora-ddp-fp32"


def test_a_fix_of_a_job_that_stays_green_has_no_dangers(measure: Callable[..., Grid]) -> None:
    assert dangers(measure, {BEFORE: "fail", AFTER: "pass", SAVED: "pass"}) == []


def test_what_was_red_for_the_same_cause_before_is_no_danger_of_the_fix(measure: Callable[..., Grid]) -> None:
    assert dangers(measure, {BEFORE: "fail", AFTER: "fail"}) == []
