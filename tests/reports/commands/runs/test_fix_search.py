"""The cells that a fix search selects, and the texts and files of its fixes. No test runs a cell."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from cases.space.verdict import Verdict
from matrix.errors import UserError
from matrix.run.execute import Suite
from matrix.run.outcome import CheckRecord, ErrorRecord
from matrix.run.request import RunRequest
from matrix.search.finder import OFF_GRID
from matrix.search.fixes import Change, Fix, Fixes, Kind
from reports.answers.fixes.remedies import Remedy
from reports.commands.runs import fix_search
from reports.commands.runs.fix_search import FixOptions
from reports.results.document import document, dumped
from reports.results.grid import grid

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from matrix.run.outcome import Outcome, RunRecord, SetRecord

RED, GREEN = "train-lora-fsdp1-use_orig_params_false-fp32", "train-lora-fsdp1-fp32"
CELL = f"2025-09__{RED}"
REQUEST = RunRequest(device="cpu", profile="default", sets="slices")
FOUND = Fix(
    set="2025-09",
    case=RED,
    kind=Kind.SETTINGS,
    to_set="2025-09",
    to_case=GREEN,
    changes=(Change(name="use_orig_params", old=False, new=True),),
    runs=2,
    witnesses=(CELL,),
    tried=6,
    within="6 single settings",
)


@pytest.fixture
def results(
    tmp_path: Path,
    build_run: Callable[..., RunRecord],
    build_set: Callable[..., SetRecord],
    build_outcome: Callable[..., Outcome],
) -> Path:
    """Publish a red cell, a green one and the fix of the red one."""
    outcomes = [build_outcome(RED, "2025-09", "fail"), build_outcome(GREEN, "2025-09")]
    record = build_run()
    matrix = grid(record, (build_set("2025-09"),), outcomes)
    (tmp_path / "matrix.json").write_text(dumped(document(record, matrix, generated=record.started)))
    (tmp_path / "fixes.json").write_text(remedy(FOUND).found.model_dump_json(by_alias=True))
    return tmp_path


def remedy(fix: Fix) -> Remedy:
    when = datetime(2026, 11, 20, tzinfo=UTC)
    return Remedy(fix=fix, found=Fixes(generated=when, device="cpu", hardware="cpu: test", code="c0de", fixes=(fix,)))


def keys(order: fix_search.FixRequest) -> list[str]:
    return [f"{version_set.key}__{case.id}" for version_set, case in order.cells]


def test_every_selects_the_red_cells_of_the_profile(results: Path) -> None:
    assert keys(fix_search.order(REQUEST, FixOptions(every=True, results=results))) == [CELL]


def test_a_cell_can_be_named(results: Path) -> None:
    assert keys(fix_search.order(REQUEST, FixOptions(cell=CELL, results=results))) == [CELL]


def test_families_selects_their_red_cells(results: Path) -> None:
    assert len(keys(fix_search.order(REQUEST, FixOptions(known="families", results=results)))) >= 5


def test_a_red_cell_has_the_advised_cases_of_its_known_problem(results: Path) -> None:
    advised = fix_search.order(REQUEST, FixOptions(cell=CELL, results=results)).advised
    assert any(advised.values())
    assert all(cell.partition("__")[2] in Suite().cases for cell in advised)


@pytest.mark.parametrize(
    ("wish", "sentence"),
    [
        ({}, r"name one cell \(SET__CASE\), or give --all or --known"),
        ({"cell": CELL, "every": True}, "name one cell"),
        ({"cell": "2025-09"}, "is no cell: a set and a case"),
        ({"cell": f"1999-01__{RED}"}, "1999-01"),
        ({"cell": "2025-09__train-lora-fsdp1-use_orig_param_false-fp32"}, f"did you mean {RED}"),
        ({"cell": f"2025-09__{GREEN}"}, "is green: there is nothing to fix"),
        ({"known": "nonsense"}, "unknown problem 'nonsense'"),
        (
            {"every": True, "only": "luck"},
            "--only luck: unknown kind of change; choose from settings",
        ),
    ],
)
def test_an_invalid_request_is_refused_with_advice(results: Path, wish: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        fix_search.order(REQUEST, FixOptions(results=results, **wish))


def test_a_selection_without_a_red_cell_is_refused(results: Path) -> None:
    with pytest.raises(UserError, match="none of these cells is red there"):
        fix_search.order(
            RunRequest(device="cpu", profile="default", sets="2024-04"), FixOptions(every=True, results=results)
        )


def test_a_folder_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no results; give a run directory"):
        fix_search.order(REQUEST, FixOptions(every=True, results=tmp_path))


def test_a_search_for_one_device_ignores_results_of_the_other(results: Path) -> None:
    with pytest.raises(UserError, match="none of these cells is red there"):
        fix_search.order(
            RunRequest(device="cuda", profile="default", sets="slices"), FixOptions(every=True, results=results)
        )


def test_the_newest_case_code_decides_the_verdict_of_a_cell(build_outcome: Callable[..., Outcome]) -> None:
    old = build_outcome("a", verdict="fail", code="old")
    new = build_outcome("a", code="new", started=old.started + timedelta(days=1))
    assert fix_search.verdicts([new, old]) == {new.cell: Verdict.PASS}


def test_a_red_run_wins_over_a_green_one_of_the_same_code(build_outcome: Callable[..., Outcome]) -> None:
    red = build_outcome("a", verdict="fail")
    green = build_outcome("a", started=red.started + timedelta(days=1))
    assert fix_search.verdicts([red, green]) == {red.cell: Verdict.FAIL}


@pytest.mark.parametrize("silent", ["lost", "skip"])
def test_a_later_loss_or_skip_leaves_a_green_cell_green(silent: str, build_outcome: Callable[..., Outcome]) -> None:
    green = build_outcome("a")
    later = build_outcome("a", verdict=silent, started=green.started + timedelta(days=1))
    assert fix_search.verdicts([green, later]) == {green.cell: Verdict.PASS}


def test_a_case_outside_the_grid_is_rebuilt_from_its_stored_options(build_outcome: Callable[..., Outcome]) -> None:
    free = next(case for name, case in Suite().cases.items() if name == GREEN)
    outcome = build_outcome("elsewhere", group=OFF_GRID, options=free.options.stated)
    assert fix_search.cases_outside_grid([outcome])["elsewhere"].options == free.options


def test_an_earlier_fix_is_looked_up(results: Path) -> None:
    order = fix_search.order(REQUEST, FixOptions(cell=CELL, results=results))
    assert fix_search.looked_up(order, say=print) == (remedy(FOUND),)
    (row,) = json.loads(fix_search.fixes_json([remedy(FOUND)]))["fixes"]
    assert (row["to_case"], row["device"], row["hardware"]) == (GREEN, "cpu", "cpu: test")


def test_a_fix_of_a_cpu_is_not_looked_up_for_a_gpu(results: Path) -> None:
    order = fix_search.order(replace(REQUEST, device="cuda"), FixOptions(cell=CELL, results=results))
    with pytest.raises(UserError, match="no published search covers it on cuda"):
        fix_search.looked_up(order, say=print)


def test_fixes_in_a_subfolder_are_looked_up_too(results: Path) -> None:
    (results / "more").mkdir()
    (results / "fixes.json").rename(results / "more" / "fixes.json")
    order = fix_search.order(REQUEST, FixOptions(cell=CELL, results=results))
    assert fix_search.looked_up(order, say=print) == (remedy(FOUND),)


def test_a_cell_without_an_earlier_search_is_refused(results: Path) -> None:
    order = fix_search.order(REQUEST, FixOptions(known="families", results=results))
    with pytest.raises(UserError, match="no published search covers it"):
        fix_search.looked_up(order, say=print)


def test_the_text_of_a_fix_has_its_edit(results: Path) -> None:
    order = fix_search.order(REQUEST, FixOptions(cell=CELL, results=results))
    (text,) = fix_search.fix_texts([remedy(FOUND)], order)
    assert "-    use_orig_params=False,\n+    use_orig_params=True," in text
    assert "-  fsdp_use_orig_params: false\n+  fsdp_use_orig_params: true" in text
    assert "green in 2 runs on cpu: test, 2026-11-20" in text


def test_the_text_of_a_missing_fix_has_the_tried_changes(results: Path) -> None:
    order = fix_search.order(REQUEST, FixOptions(cell=CELL, results=results))
    none = Fix(set="2025-09", case=RED, kind=Kind.NONE, tried=9, within="9 single settings")
    (text,) = fix_search.fix_texts([remedy(none)], order)
    assert text == f"{CELL}\nNo fix found on CPU (gloo), cpu: test, 2026-11-20 (9 single settings)."


def test_published_cells_of_a_search_have_only_their_failures(build_outcome: Callable[..., Outcome]) -> None:
    fine = CheckRecord(name="steps", value=3, op="==", bound=3, ok=True)
    off = CheckRecord(name="loss", value=1.0, op="<=", bound=0.1, ok=False)
    error = ErrorRecord(type="ValueError", message="no", traceback="x" * 9000)
    whole = build_outcome("a", checks=(fine, off), error=error, facts={"torch": "2.8"}, metrics={"load_s": 1.0})
    kept, off_grid = fix_search.shortened(whole), fix_search.shortened(whole.model_copy(update={"group": OFF_GRID}))
    assert (kept.checks, kept.facts, kept.metrics, kept.error) == ((off,), {}, {}, error)
    assert off_grid.error is not None
    assert len(off_grid.error.traceback) == fix_search.TAIL
