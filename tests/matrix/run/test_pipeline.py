"""Tests that the pipeline skips cells that the machine cannot run before it installs anything."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from cases.runtime.nvml import Usage
from cases.space.verdict import Verdict
from cases.suite import CASES
from matrix.run import pipeline
from matrix.run.context import RunContext
from matrix.run.fit import ELSEWHERE
from matrix.run.outcome import RunRecord
from matrix.run.store import Store
from matrix.versions import sets
from matrix.versions.uv import Uv

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from cases.runtime.gpu_pool import Pool
    from matrix.run.outcome import Outcome

    PoolOf = Callable[..., Pool]
    RunCases = Callable[[Pool], dict[str, Outcome]]

NEWEST = max((each for each in sets.load() if each.default), key=lambda each: each.as_of)
OLDEST = min((each for each in sets.load() if each.default), key=lambda each: each.as_of)
ONE, TWO, FOUR = "train-lora-single-bf16", "train-lora-ddp-bf16", "train-lora-ddp-4ranks-fp32"
RECORD = RunRecord(
    harness="0", code="c", started=datetime(2026, 1, 1, tzinfo=UTC), device="cuda", request={}, planned=(), hardware="x"
)


class InstalledError(Exception):
    """Raised on any attempt to install an environment."""


def refuse(*_: Any, **__: Any) -> Any:
    raise InstalledError


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    new_store = Store.create(tmp_path / "run", RECORD)
    yield new_store
    new_store.close()


@pytest.fixture
def context(store: Store, tmp_path: Path) -> Callable[[Pool], RunContext]:
    """The context of a run in which every installation raises."""
    uv = Uv(binary=tmp_path, workdir=tmp_path / "work", variables={"UV_CACHE_DIR": str(tmp_path)}, call=refuse)
    return lambda pool: RunContext(store=store, uv=uv, cache=tmp_path, device="cuda", pool=pool, workers=1)


@pytest.fixture
def run_cases(store: Store, context: Callable[[Pool], RunContext]) -> RunCases:
    """The outcomes of three cases on one, two and four GPUs, by case."""

    def run(pool: Pool, cases: tuple[str, ...] = (ONE, TWO, FOUR)) -> dict[str, Outcome]:
        pipeline.run([(NEWEST, [CASES[name] for name in cases])], context(pool))
        return {outcome.case: outcome for outcome in store.outcomes}

    return run


def test_an_old_driver_skips_every_cell_for_the_same_reason(pool_of: PoolOf, run_cases: RunCases) -> None:
    pool = pool_of(4)
    vars(pool.source).update(cuda="12.4", version="550.54")
    found = run_cases(pool)
    assert {outcome.verdict for outcome in found.values()} == {Verdict.SKIP}
    (reason,) = {outcome.reason for outcome in found.values()}
    assert "needs driver 580.65 or newer: driver 550.54 runs CUDA 12.4 and older" in reason


def test_a_driver_that_is_too_old_for_one_set_leaves_the_others(
    pool_of: PoolOf, store: Store, context: Callable[[Pool], RunContext]
) -> None:
    pool = pool_of(1)
    vars(pool.source).update(cuda="12.4", version="550.54")
    with pytest.raises(InstalledError):  # the set for CUDA 12 starts after the one for CUDA 13
        pipeline.run([(NEWEST, [CASES[ONE]]), (OLDEST, [CASES[ONE]])], context(pool))
    assert [(each.set, each.verdict) for each in store.outcomes] == [(NEWEST.key, Verdict.SKIP)]


def test_occupied_gpus_skip_every_cell_and_the_reason_names_their_processes(
    pool_of: PoolOf, run_cases: RunCases
) -> None:
    foreign = Usage(12_000.0, (4242,))
    found = run_cases(pool_of(2, GPU_0=foreign, GPU_1=foreign))
    assert [outcome.reason.partition(":")[0] for outcome in found.values()] == [
        "needs 1 GPU that is free",
        "needs 2 GPUs that are free",
        f"needs 4 GPUs, 2 can be used here; {ELSEWHERE}",
    ]
    assert "12000 MiB in use by 1 other process (4242)" in found[ONE].reason


def test_a_cell_with_enough_gpus_starts(pool_of: PoolOf, run_cases: RunCases) -> None:
    with pytest.raises(InstalledError):
        run_cases(pool_of(1))


def test_cells_with_too_few_gpus_are_skipped_before_the_others_start(
    pool_of: PoolOf, run_cases: RunCases, store: Store
) -> None:
    with pytest.raises(InstalledError):
        run_cases(pool_of(1))
    assert {outcome.case: outcome.reason for outcome in store.outcomes} == {
        TWO: f"needs 2 GPUs, 1 can be used here; {ELSEWHERE}",
        FOUR: f"needs 4 GPUs, 1 can be used here; {ELSEWHERE}",
    }


def test_a_resumed_run_retries_cells_that_lacked_gpus(
    pool_of: PoolOf, run_cases: RunCases, store: Store, context: Callable[[Pool], RunContext]
) -> None:
    pool = pool_of(4, GPU_0=Usage(9_000.0, (1,)))
    vars(pool.source).update(cuda="12.4")
    run_cases(pool)
    assert len(store.outcomes) == 3
    (lock,) = {outcome.lock for outcome in store.outcomes}
    again = pipeline.unfinished(NEWEST, [CASES[name] for name in (ONE, TWO, FOUR)], lock, 1, context(pool))
    assert [case.id for case in again] == [ONE, TWO, FOUR]
