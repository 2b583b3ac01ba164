"""Caught faults are counted strictly, and false alarms are distinguished from findings."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from cases.injection.fault_suite import CASES as INJECTED
from cases.injection.faults import FAULTS
from cases.space.verdict import Verdict
from cases.suite import CASES
from matrix.experiments import selfcheck
from matrix.experiments.selfcheck import green, of_set
from matrix.run.outcome import CheckRecord, DeviationRecord, ErrorRecord, LocationRecord, Outcome
from matrix.run.progress import Silent
from matrix.run.request import RunRequest

if TYPE_CHECKING:
    from pathlib import Path

FAULT = "sum_instead_of_mean"
CELLS = [name for name, case in INJECTED.items() if case.fault == FAULT]
MISSED = CheckRecord(name="gradient", value=1.0, op="<=", bound=0.1, ok=False)


def an_outcome(case: str, verdict: str = "pass", repeat: int = 1, **other: Any) -> Outcome:
    return Outcome(
        set="2026-11",
        case=case,
        group="",
        why="",
        options={},
        verdict=Verdict(verdict),
        repeat=repeat,
        started=datetime.now(UTC),
        seconds=1.0,
        **other,
    )


def test_faults_cover_every_kind_of_flow_and_strategy() -> None:
    flows = {CASES[case].options.flow for fault in FAULTS.values() for case in fault.cases}
    strategies = {CASES[case].options.strategy for fault in FAULTS.values() for case in fault.cases}
    assert len(FAULTS) >= 30
    assert {"load", "train", "save_reload", "resume", "merge", "merge_reload", "generate", "portability"} <= flows
    assert strategies == {"single", "ddp", "fsdp1", "fsdp2"}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=lambda fault: fault.name)
def test_a_fault_declares_its_description_and_cases(fault: Any) -> None:
    assert fault.what
    assert fault.cases
    assert set(fault.cases) <= set(CASES)


def test_a_fault_that_one_cell_misses_is_not_caught() -> None:
    first, *others = CELLS
    injected = [an_outcome(first), *(an_outcome(name, "wrong", checks=(MISSED,)) for name in others)]
    found = of_set("2026-11", [], injected)
    assert (found.injected, found.caught) == (1, 0)


def test_the_check_that_caught_it_is_named() -> None:
    found = of_set("2026-11", [], [an_outcome(name, "wrong", checks=(MISSED,)) for name in CELLS])
    assert found.caught == 1
    assert {cell.caught_by for cell in found.faults[0].cells} == {("gradient",)}


def test_a_lost_cell_is_no_catch() -> None:
    assert of_set("2026-11", [], [an_outcome(name, "lost") for name in CELLS]).caught == 0


def test_green_once_and_wrong_again_is_a_false_alarm_and_wrong_twice_a_finding() -> None:
    clean = [an_outcome("a"), an_outcome("a", "wrong", 2), an_outcome("b", "wrong"), an_outcome("b", "wrong", 2)]
    found = of_set("2026-11", clean, [])
    assert (found.clean_cells, found.false_alarms, found.silent_errors) == (2, ("a",), ("b",))


def test_faults_are_injected_only_where_every_pass_was_green() -> None:
    clean = [an_outcome("a"), an_outcome("a", repeat=2), an_outcome("b"), an_outcome("b", "wrong", 2)]
    assert green(clean) == {("2026-11", "a")}


@pytest.mark.parametrize("begun", ["clean", "injected", "planted"])
def test_a_selfcheck_resumes(begun: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both of its runs do; the second one only if it had begun."""
    request = RunRequest(sets="2026-11", where="case=train-lora-ddp-bf16", device="cpu", resume=True)
    (tmp_path / begun).mkdir()
    (tmp_path / begun / "run.json").touch()
    seen: dict[str, bool] = {}

    def run(request: RunRequest, **_: Any) -> None:
        assert request.out is not None
        seen[request.out.name] = request.resume

    monkeypatch.setattr("matrix.experiments.selfcheck.run_request.run", run)
    monkeypatch.setattr("matrix.experiments.selfcheck.store.read", lambda _: (None, (), ()))
    selfcheck.run(request, directory=tmp_path, watcher=lambda _: Silent(), say=print)
    faults = "planted" if begun == "planted" else "injected"  # the name in earlier versions
    assert seen == {"clean": True, faults: begun != "clean"}


def test_an_error_without_a_message_counts_too() -> None:
    error = ErrorRecord(type="AssertionError", message="", traceback="")
    (fault,) = of_set("2026-11", [], [an_outcome(name, "wrong", error=error) for name in CELLS]).faults
    assert {cell.caught_by for cell in fault.cells} == {("AssertionError: ",)}


@pytest.mark.parametrize(("kind", "right"), [("weight gradient", True), ("output", False)])
def test_a_location_is_right_if_it_names_what_the_fault_changed(kind: str, *, right: bool) -> None:
    first = DeviationRecord(kind=kind, name="a", module="a", step=1, rank=0, distance=1.0, allowed=0.1)
    found = an_outcome(CELLS[0], "wrong", location=LocationRecord(beginnings=(first,)))
    (located,) = of_set("2026-11", [], [found]).located
    assert (located.named, located.is_right) == (f"{kind} a", right)
