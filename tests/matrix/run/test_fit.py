"""Tests the checks of the lock, the driver and the GPUs before installation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cases.runtime.nvml import Gpu, UnavailableError, Usage
from matrix.errors import UserError
from matrix.run.fit import ELSEWHERE, Fit, check_gpus, cuda_of
from matrix.versions import sets
from matrix.versions.locks import Lock, read

if TYPE_CHECKING:
    from collections.abc import Callable

    from cases.runtime.gpu_pool import Pool

    PoolOf = Callable[..., Pool]

SET = sets.load()[0]
CU13 = Lock(version_set=SET, text="torch==2.11.0\nnvidia-cuda-runtime==13.0.96\nnvidia-cudnn-cu13==9.1.0\n")


@pytest.mark.parametrize(
    ("backend", "text", "cuda"),
    [
        ("pypi", "torch==2.11.0\nnvidia-cuda-runtime==13.0.96", "13.0"),
        ("pypi", "torch==2.4.1\nnvidia-cuda-runtime-cu12==12.1.105", "12.1"),
        ("pypi", "torch==2.4.1+cpu", "cpu"),
        ("system", "torch==2.11.0+cu130", "13.0"),
        ("system", "torch==2.3.1+cu118", "11.8"),
        ("system", "torch==2.9.0a0+50eac811a6.nv25.9", ""),
        ("cu128", "torch==2.11.0\nnvidia-cuda-runtime==13.0.96", "12.8"),
        ("cpu", "torch==2.11.0\nnvidia-cuda-runtime==13.0.96", "cpu"),
    ],
)
def test_the_cuda_of_a_build_follows_from_backend_and_lock(backend: str, text: str, cuda: str) -> None:
    assert cuda_of(Lock(version_set=SET, text=text), backend) == cuda


@pytest.mark.parametrize("version_set", sets.load(), ids=lambda each: each.key)
def test_the_cuda_of_every_packaged_lock_is_known(version_set: sets.VersionSet) -> None:
    lock = read(version_set)
    if lock is not None:  # some sets cannot be resolved
        assert cuda_of(lock, "pypi").count(".") == 1


def test_an_old_driver_blocks_every_cell(pool_of: PoolOf) -> None:
    pool = pool_of(2)
    vars(pool.source).update(cuda="12.4", version="550.54")
    fit = check_gpus(CU13, "pypi", pool)
    assert "needs driver 580.65 or newer: driver 550.54 runs CUDA 12.4" in fit.shortage(1)
    assert fit.shortage(1) == fit.shortage(2)


def test_a_driver_of_the_same_major_version_is_new_enough(pool_of: PoolOf) -> None:
    assert check_gpus(CU13, "pypi", pool_of(2)).shortage(2) == ""


def test_a_build_without_cuda_blocks_every_cell_on_gpus(pool_of: PoolOf) -> None:
    assert "has no CUDA" in check_gpus(CU13, "cpu", pool_of(1)).shortage(1)


def test_cells_with_more_ranks_than_gpus_are_blocked(pool_of: PoolOf) -> None:
    fit = check_gpus(CU13, "pypi", pool_of(2))
    assert (fit.shortage(2), fit.shortage(4)) == ("", f"needs 4 GPUs, 2 can be used here; {ELSEWHERE}")


def test_ranks_that_share_a_gpu_need_only_one(pool_of: PoolOf) -> None:
    fit = check_gpus(CU13, "pypi", pool_of(1), "cuda-gloo")
    assert (fit.shortage(1), fit.shortage(4)) == ("", "")


def test_ranks_that_share_a_gpu_can_share_a_slice(pool_of: PoolOf) -> None:
    slices = pool_of((Gpu("MIG-a", "NVIDIA H200", 0, is_slice=True),))
    assert check_gpus(CU13, "pypi", slices, "cuda-gloo").shortage(2) == ""
    assert (
        check_gpus(CU13, "pypi", slices).shortage(2).startswith("needs 2 GPUs, 0 can be used here; NCCL joins no MIG")
    )


def test_occupied_gpus_block_the_cells_that_need_them(pool_of: PoolOf) -> None:
    fit = check_gpus(CU13, "pypi", pool_of(2, GPU_1=Usage(12_000.0, (4242,))))
    assert fit.shortage(1) == ""
    assert fit.shortage(2).startswith("needs 2 GPUs that are free: GPU 1 (NVIDIA H200) has 12000 MiB in use")


def test_a_gpu_lost_during_a_run_blocks_the_cells_that_need_it(
    pool_of: PoolOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = pool_of(2)
    answers = pool.source.usage

    def lost(gpu: Gpu) -> Usage:
        if gpu.uuid == "GPU-1":
            raise UnavailableError("a GPU is lost")
        return answers(gpu)

    monkeypatch.setattr(pool.source, "usage", lost)
    fit = check_gpus(CU13, "pypi", pool)
    assert fit.shortage(1) == ""
    assert fit.shortage(2) == "needs 2 GPUs that are free: GPU 1 (NVIDIA H200) does not answer: a GPU is lost"


def test_a_driver_that_stops_answering_raises_a_user_error(pool_of: PoolOf, monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone:
        @property
        def cuda(self) -> str:
            raise UnavailableError("the driver is not loaded")

    pool = pool_of(1)
    monkeypatch.setattr(pool, "source", Gone())
    with pytest.raises(UserError, match=r"does not answer \(the driver is not loaded\); continue with --resume"):
        check_gpus(CU13, "pypi", pool)


def test_without_a_pool_no_cell_is_blocked() -> None:
    assert check_gpus(CU13, "pypi", None) == Fit()
    assert Fit().shortage(8) == ""
