"""The parts of a cell's time add up to the whole, and NCCL's log adds its timings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cases.runtime.wire import CellReport
from cases.space.verdict import Verdict
from matrix.experiments import profile

if TYPE_CHECKING:
    from pathlib import Path

# The format of NCCL's src/init.cc.
NCCL = """\
host:100:200 [0] NCCL INFO ncclCommInitRankConfig comm 0x55 rank 0 nranks 2 cudaDev 0 busId 1000 - Init COMPLETE
host:100:200 [0] NCCL INFO Init timings - ncclCommInitRankConfig: rank 0 nranks 2 total 0.72 (kernels 0.15, \
alloc 0.05, bootstrap 0.02, allgathers 0.00, topo 0.30, graphs 0.00, connections 0.18, rest 0.02)
host:100:200 [0] NCCL INFO Init timings - ncclCommSplit: rank 0 nranks 1 total 0.10 (kernels 0.00, alloc 0.05)
"""


def a_row(seconds: float, *late: str, **metrics: float) -> CellReport:
    return CellReport("a", Verdict.PASS, seconds=seconds, metrics=metrics, late_modules=late)


def test_the_parts_and_the_unattributed_time_add_up_to_the_whole() -> None:
    row = a_row(3.0, start_s=0.1, load_s=1.0, forward_s=0.5, first_forward_s=0.4, gpus_wait_s=7.0)
    found = profile.time_profile([row], [])
    assert sum(found.parts.values()) == pytest.approx(3.0)
    assert (found.parts["first step"], found.parts["later steps"]) == (0.4, 0.1)
    assert found.beside["wait for free GPUs"] == 7.0


def test_a_part_is_the_median_over_cells_and_zero_without_a_metric() -> None:
    found = profile.time_profile([a_row(1.0, wrap_s=0.3), a_row(1.0, wrap_s=0.5), a_row(1.0)], [])
    assert (found.cells, found.parts["wrap"]) == (3, 0.3)


def test_no_metric_is_counted_twice() -> None:
    names = [name for part in (*profile.PARTS.values(), *profile.OUTSIDE_THE_CELL.values()) for name in part]
    assert len(names) == len(set(names))


def test_late_imports_are_counted_by_their_outermost_package() -> None:
    rows = [a_row(1.0, "torch._inductor", "torch._inductor.ir", "torch.x.y"), a_row(1.0, "torch._inductor"), a_row(1.0)]
    assert profile.time_profile(rows, []).late == {"torch._inductor": 2, "torch.x.y": 1}


def test_the_timings_of_a_communicator_of_all_ranks_are_read(tmp_path: Path) -> None:
    (tmp_path / "100.log").write_text(NCCL, encoding="utf-8")
    (found,) = profile.nccl_timings(tmp_path, 2)
    assert (found["total"], found["topo"], found["bootstrap"]) == (0.72, 0.3, 0.02)


def test_a_log_of_nccl_without_timings_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "100.log").write_text("host:100:200 [0] NCCL INFO Bootstrap: using lo", encoding="utf-8")
    assert profile.nccl_timings(tmp_path, 2) == []
    assert profile.time_profile([], []).nccl_s == {}
