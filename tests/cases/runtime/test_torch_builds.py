"""Versions alone decide whether a build of torch can run on a machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cases.runtime.nvml import Gpu
from cases.runtime.torch_builds import runs_on, why_driver_is_too_old, why_no_kernels, why_unusable

if TYPE_CHECKING:
    from collections.abc import Callable

    from cases.runtime.gpu_pool import Pool

WHEEL = ["sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90"]  # torch 2.2 to 2.6


@pytest.mark.parametrize(
    ("build", "runs"),
    [("12.8", "13.0"), ("12.8", "12.2"), ("13.2", "13.0"), ("11.8", "12.0"), ("13.0", "13.0"), ("", "12.2")],
)
def test_a_driver_runs_its_major_version_and_all_before(build: str, runs: str) -> None:
    assert why_driver_is_too_old(build, runs=runs, driver="580.95") == ""


def test_the_reason_names_the_driver_that_a_newer_major_version_needs() -> None:
    reason = why_driver_is_too_old("13.0", runs="12.2", driver="535.104.05")
    assert reason == (
        "this build of torch is for CUDA 13.0 and needs driver 580.65 or newer:"
        " driver 535.104.05 runs CUDA 12.2 and older"
    )


def test_a_major_version_that_is_not_known_yet_needs_a_newer_driver() -> None:
    assert "needs a newer driver: driver 580.95 runs CUDA 13.0" in why_driver_is_too_old(
        "14.1", runs="13.0", driver="580.95"
    )


@pytest.mark.parametrize(
    ("architecture", "capability", "runs"),
    [
        ("sm_90", "9.0", True),
        ("sm_80", "8.9", True),
        ("sm_89", "8.0", False),
        ("sm_80", "9.0", False),
        ("sm_90a", "9.0", True),
        ("sm_100a", "10.3", False),
        ("sm_100f", "10.3", True),
        ("sm_100", "12.0", False),
        ("sm_120", "12.0", True),
        ("compute_90", "10.0", True),
        ("compute_90a", "10.0", False),
        ("compute_120", "9.0", False),
        ("lto_90", "9.0", True),
    ],
)
def test_machine_code_runs_on_its_major_version(architecture: str, capability: str, *, runs: bool) -> None:
    assert runs_on(architecture, capability) == runs


def test_a_gpu_that_is_newer_than_the_build_has_no_kernels() -> None:
    assert why_no_kernels(WHEEL, "9.0") == ""
    reason = why_no_kernels(WHEEL, "10.0")
    assert reason.startswith("this build of torch has no kernels for sm_100, only for sm_50, sm_60")


def test_code_that_the_driver_compiles_runs_on_newer_gpus() -> None:
    assert why_no_kernels([*WHEEL, "compute_90"], "10.0") == ""


def test_unknown_architectures_or_gpus_are_no_reason() -> None:
    assert why_no_kernels([], "9.0") == why_no_kernels(WHEEL, "") == ""


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"torch_cuda": "12.1", "torch_architectures": "sm_80 sm_90"}, ""),
        ({"torch_cuda": "12.1"}, ""),
        ({"torch_cuda": None, "torch_build": "2.4.1+cpu"}, "torch 2.4.1+cpu is a build without CUDA"),
        ({"torch_cuda": "14.0", "torch_architectures": "sm_90"}, "runs CUDA 13.0 and older"),
        ({"torch_cuda": "11.7", "torch_architectures": "sm_80 sm_86"}, "no kernels for sm_90, only for sm_80, sm_86"),
    ],
)
def test_the_build_facts_of_an_environment_are_compared_with_the_gpus(
    pool_of: Callable[..., Pool], facts: dict[str, str], expected: str
) -> None:
    reason = why_unusable(facts, pool_of((Gpu("GPU-0", "NVIDIA H200", 0, capability="9.0"),)))
    assert expected in reason
    assert bool(expected) == bool(reason)
