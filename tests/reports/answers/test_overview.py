from __future__ import annotations

from typing import TYPE_CHECKING

from cases.space.verdict import RED
from matrix.search import fixes
from reports.answers import knowledge
from reports.answers.fixes import remedies
from reports.answers.overview import overview
from reports.answers.support.recommend import USUAL
from reports.render.text.recommend_text import none_of
from reports.results.grid import grid
from reports.results.loading import load

if TYPE_CHECKING:
    from collections.abc import Callable

    from matrix.run.outcome import Outcome, RunRecord, SetRecord
    from reports.answers.overview import Overview
    from reports.results.grid import Grid

    Run = tuple[RunRecord, list[SetRecord], list[Outcome]]


def test_every_red_cell_has_a_cause_or_is_counted_as_unexplained(
    small: Run, build_overview: Callable[[Grid], Overview]
) -> None:
    matrix = grid(*small)
    known = build_overview(matrix)
    red = {outcome.cell for outcome in matrix.outcomes if outcome.verdict in RED}
    assert set(known.by_cell) == red
    assert (known.red, known.unexplained) == (len(red), len(red) - 2)


def test_cells_with_different_fixes_are_listed_apart(small: Run, build_overview: Callable[[Grid], Overview]) -> None:
    known = build_overview(grid(*small))
    (finding,) = known.findings(known.causes[0])
    assert [(way.sets, bool(way.remedy.green)) for way in known.ways(finding)] == [
        (("2024-06",), True),
        (("2024-09",), False),
    ]


def test_published_results_do_not_apply_to_a_set_with_other_pins(
    build_run: Callable[..., RunRecord], build_set: Callable[..., SetRecord]
) -> None:
    published = {column.key: column.pins for column in knowledge.load().sets}
    same, other = published["2025-06"], {**published["2025-06"], "peft": "0.14.0"}
    known, unknown = (
        overview(build_run(), grid(build_run(), [build_set("2025-06", pins=pins)], [])) for pins in (same, other)
    )
    assert known.problems
    assert (unknown.problems, unknown.fixes) == ((), {})


def test_usual_jobs_are_listed_if_the_run_has_them() -> None:
    matrix = knowledge.load()
    record = load(knowledge.PUBLISHED).record
    found = overview(record, matrix)
    assert [usual.job for usual, _ in found.recommended] == [each.job for each in USUAL]
    assert [each.job for each in found.support] == [each.job for each in USUAL]


def test_a_set_whose_versions_have_an_error_that_the_job_meets_is_not_recommended(
    build_run: Callable[..., RunRecord], build_set: Callable[..., SetRecord], build_outcome: Callable[..., Outcome]
) -> None:
    """Peft 0.21 saves an empty adapter from FSDP1, although training is green."""
    options = {"method": "dora", "strategy": "fsdp1", "auto_wrap_policy": "peft", "use_orig_params": False}
    pins = next(each.pins for each in knowledge.load().sets if each.key == "2026-11")
    for peft, best in (("0.20.0", True), ("0.21.2", False)):
        column = build_set(pins={**pins, "peft": peft})
        run = grid(build_run(), [column], [build_outcome("train-dora-fsdp1", options={"flow": "train", **options})])
        ((usual, found),) = overview(build_run(), run).recommended
        assert (usual.job, found.best is not None) == ("DoRA + FSDP", best)
    assert "known errors: empty-adapter-from-fsdp1 on" in none_of(found)


def test_jobs_that_a_run_does_not_have_are_left_out(small: Run) -> None:
    found = overview(small[0], grid(*small))
    assert {usual.job for usual, _ in found.recommended} < {each.job for each in USUAL}


def test_a_fix_has_a_diff_of_the_users_files() -> None:
    matrix = knowledge.load()
    record = load(knowledge.PUBLISHED).record
    edit = overview(record, matrix).edits["2026-11__train-lora-fsdp1-use_orig_params_false-fp32"]
    assert "-    use_orig_params=False,\n+    use_orig_params=True," in edit


def test_a_fix_found_with_other_case_code_says_so() -> None:
    searched = fixes.read(knowledge.PUBLISHED / remedies.PUBLISHED_FIXES)
    run = load(knowledge.PUBLISHED)
    cell = "2026-11__train-lora-fsdp1-use_orig_params_false-fp32"
    (red,) = (each for each in run.outcomes if each.cell == cell)
    proofs = [
        overview(run.record, grid(run.record, run.sets, [each])).fixes[cell].proof
        for each in (red.model_copy(update={"code": searched.code, "modules": ""}), red)
    ]
    assert [proof.endswith("; found with another case code") for proof in proofs] == [False, True]
