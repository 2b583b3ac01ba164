from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from cases.runtime.nvml import Gpu, UnavailableError
from matrix.errors import UserError
from matrix.run import machine

if TYPE_CHECKING:
    from collections.abc import Callable

    from cases.runtime.gpu_pool import GpuSource, Pool


def test_hardware_counts_the_gpus(pool_of: Callable[..., Pool]) -> None:
    assert machine.hardware("cuda", open_pool=lambda: pool_of(2)) == "cuda: NVIDIA H200 x 2"


def test_hardware_counts_the_one_gpu_that_ranks_share(pool_of: Callable[..., Pool]) -> None:
    assert machine.hardware("cuda-gloo", open_pool=lambda: pool_of(2)) == "cuda-gloo: NVIDIA H200 x 1"


def test_hardware_distinguishes_slices_from_whole_gpus(pool_of: Callable[..., Pool]) -> None:
    cut = pool_of((Gpu("MIG-a", "NVIDIA H200", 0, is_slice=True),))
    assert machine.hardware("cuda", open_pool=lambda: cut) == "cuda: MIG slice of NVIDIA H200 x 1"


def test_hardware_of_a_cpu_counts_the_cores() -> None:
    assert machine.hardware("cpu").endswith(f" x {machine.cores()}")


def test_facts_of_a_gpu_machine_name_the_driver(pool_of: Callable[..., Pool]) -> None:
    found = machine.facts("cuda", open_pool=lambda: pool_of(1))
    assert (found["driver"], found["driver_cuda"], found["gpus"]) == ("580.1", "13.0", 1)


def test_the_error_without_gpus_suggests_the_cpu(pool_of: Callable[..., Pool]) -> None:
    with pytest.raises(UserError, match="no NVIDIA GPU; use --device cpu"):
        machine.hardware("cuda", open_pool=lambda: pool_of(0))


def test_the_error_without_a_driver_suggests_the_cpu() -> None:
    def none() -> Pool:
        raise UnavailableError("no NVIDIA driver")

    with pytest.raises(UserError, match="no NVIDIA driver; use --device cpu"):
        machine.hardware("cuda", open_pool=none)


def test_a_driver_that_does_not_answer_raises_a_user_error(pool_of: Callable[..., Pool]) -> None:
    class Silent:
        @property
        def version(self) -> str:
            raise UnavailableError("the driver is too old")

    pool = pool_of(1)
    pool.source = cast("GpuSource", Silent())
    with pytest.raises(UserError, match="--device cuda: the driver is too old; use --device cpu"):
        machine.facts("cuda", open_pool=lambda: pool)


def test_the_error_names_cuda_visible_devices_if_it_hides_the_gpus(
    monkeypatch: pytest.MonkeyPatch, pool_of: Callable[..., Pool]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    with pytest.raises(UserError, match="CUDA_VISIBLE_DEVICES=7 leaves no GPU"):
        machine.hardware("cuda", open_pool=lambda: pool_of(0))
