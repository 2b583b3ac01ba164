"""Peak GPU memory by rank, with a fake torch that has only counters of memory."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from cases.runtime.memory import by_rank, peaks
from cases.runtime.rank_state import RankState, worst_metrics

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 2**20


@pytest.fixture
def fake_torch(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int], int]], None]:
    def install(held: Callable[[int], int]) -> None:
        cuda = SimpleNamespace(max_memory_allocated=held, max_memory_reserved=lambda device: held(device) + MIB)
        monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))

    return install


def test_peaks_are_in_mib_and_of_the_ranks_device(fake_torch: Callable[[Callable[[int], int]], None]) -> None:
    fake_torch(lambda device: (device + 64) * MIB)
    assert peaks(1) == {"peak_cuda_mib": 65.0, "peak_cuda_reserved_mib": 66.0}


def test_a_broken_context_has_no_peaks(fake_torch: Callable[[Callable[[int], int]], None]) -> None:
    def broken(device: int) -> int:
        raise RuntimeError(f"CUDA error: an illegal memory access was encountered on {device}")

    fake_torch(broken)
    assert peaks(0) == {}


def test_each_rank_has_its_peak_and_the_cell_has_the_highest() -> None:
    mib = [(0, 10.0), (1, 30.0), (0, 20.0)]  # rank 0 in two stages
    ranks = [RankState(number=number, metrics={"peak_cuda_mib": peak, "load_s": peak / 10}) for number, peak in mib]
    assert worst_metrics(ranks) | by_rank(ranks) == {
        "load_s": 3.0,
        "peak_cuda_mib": 30.0,
        "peak_cuda_mib_rank_0": 20.0,
        "peak_cuda_mib_rank_1": 30.0,
    }


def test_ranks_on_a_cpu_have_no_peaks() -> None:
    assert by_rank([RankState(number=0, metrics={"peak_rss_mib": 900.0})]) == {}
