"""Tests the work of a run request: its sets and cases, and sets that load files of another set."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cases.suite import CASES
from matrix.environments.environment import cache_folder
from matrix.errors import UserError
from matrix.run import machine
from matrix.run.execute import Suite
from matrix.run.progress import Silent
from matrix.run.request import RunRequest, chosen_backend, open_store, prepare_context
from matrix.run.resumption import resumed_request
from matrix.run.run_plan import plan_of
from matrix.versions import backends, uv

if TYPE_CHECKING:
    from pathlib import Path

CARRIED = RunRequest(profile="nightly", sets="2024-06,2026-11", where="case=portability-lora-single-fp32")


def test_the_default_profile_selects_its_sets() -> None:
    plan = plan_of(RunRequest())
    assert (plan.profile.name, plan.sets) == ("default", ("2024-06", "2025-06", "2025-12", "2026-11"))


def test_a_run_on_gpus_can_be_planned_where_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("matrix.run.machine.why_no_gpu", lambda: "no NVIDIA driver")
    plan = plan_of(RunRequest(profile="gpu", device="cuda"))
    assert plan.seconds is None
    assert plan.cells > 100


def test_where_chooses_among_all_cases_unless_a_profile_is_named() -> None:
    everything = {case.id for case in RunRequest(where="flow=api").cases()}
    assert everything
    with pytest.raises(UserError, match="matches none of"):
        RunRequest(where="flow=api", profile="default").cases()


def test_every_set_loads_the_checkpoints_of_every_set() -> None:
    pairs = {(each.key, case.source) for each, cases in CARRIED.work() for case in cases}
    sets = ("2024-06", "2026-11")
    assert pairs == {(key, source) for key in sets for source in ("", *sets)}


def test_every_set_saves_before_any_set_loads() -> None:
    assert [bool(cases[0].source) for _, cases in CARRIED.work()] == [False, False, True, True]


def test_a_case_with_a_source_set_is_found_by_its_name() -> None:
    travelled = CASES["portability-lora-single-fp32-from-2024-06"]
    assert (travelled.source, travelled.begun) == ("2024-06", "portability-lora-single-fp32")


def test_repeats_multiply_the_cells() -> None:
    once, thrice = RunRequest(sets="2026-11"), RunRequest(sets="2026-11", repeats=3)
    assert plan_of(thrice).cells == 3 * plan_of(once).cells


def test_a_plan_lists_the_cases_it_leaves_out() -> None:
    plan = plan_of(RunRequest(profile="quick"))
    assert len(plan.cases) + len(plan.left_out) == len(Suite().cases)


def test_the_error_for_an_unknown_profile_lists_the_profiles() -> None:
    with pytest.raises(UserError, match="unknown profile 'large'; choose from quick, default, full, nightly"):
        RunRequest(profile="large").work()


def test_auto_means_the_cpu_if_no_gpu_can_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "why_no_gpu", lambda: "no NVIDIA driver")
    assert (RunRequest().resolved_device, RunRequest().why_cpu) == ("cpu", "no NVIDIA driver")
    monkeypatch.setattr(machine, "why_no_gpu", str)
    assert RunRequest().resolved_device == "cuda"


def test_auto_means_the_cpu_for_a_build_without_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "why_no_gpu", str)
    assert RunRequest(torch_backend="cpu").resolved_device == "cpu"
    with pytest.raises(UserError, match="is a build without CUDA; choose another one for --device cuda"):
        RunRequest(device="cuda", torch_backend="cpu").check()


def test_auto_reports_why_it_chose_the_cpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machine, "why_no_gpu", lambda: "CUDA_VISIBLE_DEVICES= leaves no GPU")
    messages: list[str] = []
    request = RunRequest(torch_backend="pypi", out=tmp_path / "run")
    prepare_context(request, (), watcher=Silent(), say=messages.append).store.close()
    assert messages == ["--device auto: cells run on the CPU (CUDA_VISIBLE_DEVICES= leaves no GPU)"]


@pytest.mark.parametrize("trace", [True, False])
def test_the_build_for_gpus_has_cuda(monkeypatch: pytest.MonkeyPatch, *, trace: bool) -> None:
    monkeypatch.setattr(machine, "why_no_gpu", str)
    monkeypatch.setattr(backends, "has_gpu", lambda: trace)
    assert chosen_backend(RunRequest(), uv.on_this_machine(cache_folder())).locked


def test_fewer_than_one_repeat_is_refused() -> None:
    with pytest.raises(UserError, match="--repeat 0: expected a whole number above 0"):
        RunRequest(repeats=0).check()


def test_a_resumed_run_has_its_original_work(tmp_path: Path) -> None:
    began = RunRequest(
        profile="nightly", sets="2024-06,2026-11", where="case=portability-lora-single-fp32", out=tmp_path
    )
    open_store(began, began.work()).close()
    resumed, work = resumed_request(RunRequest(resume=True, out=tmp_path))
    assert work is not None
    assert [(each.key, [case.id for case in cases]) for each, cases in work] == [
        (each.key, [case.id for case in cases]) for each, cases in began.work()
    ]
    assert resumed.repeat_count == began.repeat_count == 2


def test_a_resumed_run_may_be_extended(tmp_path: Path) -> None:
    assert resumed_request(RunRequest(resume=True, sets="2026-11", out=tmp_path))[1] is None


def test_a_planned_cell_that_no_longer_exists_is_named(tmp_path: Path) -> None:
    began = RunRequest(sets="2026-11", where="case=load-single-fp32", out=tmp_path)
    open_store(began, began.work()).close()
    text = (tmp_path / "run.json").read_text(encoding="utf-8")
    (tmp_path / "run.json").write_text(text.replace("load-single-fp32", "load-once"), encoding="utf-8")
    with pytest.raises(UserError, match="2026-11__load-once: the run planned this cell, but it no longer exists"):
        resumed_request(RunRequest(resume=True, out=tmp_path))
