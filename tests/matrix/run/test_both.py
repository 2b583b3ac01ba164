"""With ``--device both``, cells that the GPUs can hold run on them, the others on the CPU, in a run for each device."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from cases.space.verdict import Verdict
from matrix.errors import UserError
from matrix.run import both, fit, machine, pipeline, store
from matrix.run.outcome_builder import blank
from matrix.run.request import RunRequest, run_all

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from cases.runtime.gpu_pool import Pool
    from matrix.run.context import RunContext
    from matrix.run.timings import Work

    Use = Callable[[int], None]

ONE, TWO = "load-single-fp32", "train-lora-ddp-bf16"
REQUEST = RunRequest(sets="2026-11", where=f"case={ONE},{TWO}", device="both", torch_backend="pypi")


@pytest.fixture
def with_gpus(pool_of: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch) -> Use:
    """Let this machine have so many GPUs."""

    def use(count: int) -> None:
        pool = pool_of(count)
        monkeypatch.setattr(machine, "gpus", lambda: pool)
        monkeypatch.setattr(machine, "why_no_gpu", str)
        monkeypatch.setattr(machine, "hardware", lambda device: f"{device}: a model x {count}")
        monkeypatch.setattr(machine, "facts", lambda _: {})

    return use


def cases_by_device(parts: Sequence[both.Part]) -> dict[str, list[str]]:
    return {each.device: [case.id for _, cases in work or () for case in cases] for each, work in parts}


def pass_every_cell(monkeypatch: pytest.MonkeyPatch, *, but: str = "", end: type[BaseException] = UserError) -> None:
    """Let each run store a pass for its cells; the run on the device ``but`` ends with an exception instead."""

    def measure(work: Work, ctx: RunContext) -> None:
        if ctx.device == but:
            raise end
        for version_set, cases in work:
            for case in cases:
                passed = blank(version_set, case, "", ctx).model_copy(update={"verdict": Verdict.PASS})
                ctx.store.append(passed)

    monkeypatch.setattr(pipeline, "run", measure)


def results(folder: Path) -> dict[str, list[tuple[str, str]]]:
    """The case and the hardware of each outcome, by the device of its run."""
    runs = [store.read(each) for each in store.runs_in(folder)]
    return {record.device: [(each.case, each.hardware) for each in outcomes] for record, _, outcomes in runs}


def test_cells_with_more_ranks_than_gpus_run_on_the_cpu(with_gpus: Use, tmp_path: Path) -> None:
    with_gpus(1)
    lines: list[str] = []
    parts = both.parts(replace(REQUEST, out=tmp_path), say=lines.append)
    assert cases_by_device(parts) == {"cuda": [ONE], "cpu": [TWO]}
    assert [each.out for each, _ in parts] == [tmp_path / "cuda", tmp_path / "cpu"]
    assert lines == ["--device both: 1 cell on cuda", "--device both: 1 cell on cpu"]


def test_a_device_without_cells_gets_no_run(with_gpus: Use) -> None:
    with_gpus(2)
    assert cases_by_device(both.parts(REQUEST)) == {"cuda": [ONE, TWO]}


def test_a_machine_without_gpus_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "why_no_gpu", lambda: "no NVIDIA driver")
    with pytest.raises(UserError, match="--device both: no NVIDIA driver; use --device cpu"):
        both.parts(REQUEST)


def test_the_directory_of_a_run_is_refused(with_gpus: Use, tmp_path: Path) -> None:
    with_gpus(1)
    (tmp_path / store.RUN).touch()
    with pytest.raises(UserError, match="is a run of one device; choose another --out"):
        both.parts(replace(REQUEST, out=tmp_path))


def test_other_commands_refuse_both() -> None:
    with pytest.raises(UserError, match="--device both: only run and plan take it"):
        REQUEST.check()


def test_every_outcome_states_the_device_of_its_run(
    with_gpus: Use, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_gpus(1)
    pass_every_cell(monkeypatch)
    directories = run_all(both.parts(replace(REQUEST, out=tmp_path)))
    assert directories == (tmp_path / "cuda", tmp_path / "cpu")
    assert results(tmp_path) == {"cuda": [(ONE, "cuda: a model x 1")], "cpu": [(TWO, "cpu: a model x 1")]}


def test_an_interrupted_command_continues_on_both_devices(
    with_gpus: Use, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_gpus(1)
    pass_every_cell(monkeypatch, but="cuda", end=KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        run_all(both.parts(replace(REQUEST, out=tmp_path)))
    resumed = both.parts(RunRequest(resume=True, out=tmp_path))
    assert cases_by_device(resumed) == {"cuda": [ONE], "cpu": [TWO]}
    pass_every_cell(monkeypatch)
    run_all(resumed)
    assert results(tmp_path) == {"cuda": [(ONE, "cuda: a model x 1")], "cpu": [(TWO, "cpu: a model x 1")]}


def test_bad_input_leaves_no_directory(with_gpus: Use, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpus(1)
    pass_every_cell(monkeypatch, but="cuda")
    with pytest.raises(UserError):
        run_all(both.parts(replace(REQUEST, out=tmp_path / "new")))
    assert not (tmp_path / "new").exists()


def test_an_error_after_finished_cells_keeps_both_runs(
    with_gpus: Use, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_gpus(1)
    pass_every_cell(monkeypatch, but="cpu")
    shown: list[Path] = []
    with pytest.raises(UserError):
        run_all(both.parts(replace(REQUEST, out=tmp_path)), on_interruption=shown.append)
    assert shown == [tmp_path / "cuda"]
    assert store.runs_in(tmp_path) == (tmp_path / "cpu", tmp_path / "cuda")


def test_a_run_is_not_continued_on_another_device(
    with_gpus: Use, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_gpus(1)
    pass_every_cell(monkeypatch)
    on_cpu = replace(REQUEST, device="cpu", out=tmp_path)
    run_all([(on_cpu, None)])
    with pytest.raises(UserError, match="is a run on cpu, and a run has one device; continue it with --device cpu"):
        run_all([(replace(on_cpu, device="cuda", resume=True), None)])


def test_a_run_on_one_gpu_is_pointed_to_both(with_gpus: Use) -> None:
    with_gpus(1)
    lines: list[str] = []
    both.parts(replace(REQUEST, device="auto"), say=lines.append)
    assert lines == [f"1 of 2 cells will be skipped, as they need more GPUs: {fit.ELSEWHERE}"]


@pytest.mark.parametrize(("device", "gpus"), [("cuda", 2), ("cuda-gloo", 1), ("cpu", 1)])
def test_no_run_with_enough_gpus_is_pointed_to_both(with_gpus: Use, device: str, gpus: int) -> None:
    with_gpus(gpus)
    lines: list[str] = []
    both.parts(replace(REQUEST, device=device), say=lines.append)
    assert lines == []
