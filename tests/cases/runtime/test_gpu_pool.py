"""A GPU is acquired by one cell at a time, and never while another process uses it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from cases.runtime.gpu_pool import BusyError, Pool, locks_folder, visible
from cases.runtime.nvml import Gpu, UnavailableError, Usage

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    PoolOf = Callable[..., Pool]

FOREIGN = Usage(12_000.0, (4242,))
SLICES = tuple(Gpu(f"MIG-{n}", "NVIDIA H200", 0, is_slice=True) for n in range(2))


LOCKER = """
import fcntl, os, sys, time
fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX)
print(flush=True)
time.sleep(60)
"""


def is_locked(pool: Pool, name: str) -> bool:
    descriptor = pool.try_lock(name)
    if descriptor is not None:
        os.close(descriptor)
    return descriptor is None


def test_cells_at_the_same_time_get_different_gpus(pool_of: PoolOf) -> None:
    pool = pool_of(4)
    with pool.acquire(2) as first, pool.acquire(2) as second:
        assert len({*first, *second}) == 4


def test_a_gpu_is_free_again_after_its_cell(pool_of: PoolOf) -> None:
    pool = pool_of(1)
    with pool.acquire(1) as first:
        pass
    with pool.acquire(1) as second:
        assert second == first


def test_a_gpu_is_free_again_after_an_exception(pool_of: PoolOf) -> None:
    pool = pool_of(1)
    with pytest.raises(ZeroDivisionError), pool.acquire(1):
        raise ZeroDivisionError
    with pool.acquire(1) as again:
        assert again == ("GPU-0",)


def test_a_gpu_is_free_again_after_its_process_was_killed(pool_of: PoolOf) -> None:
    pool = pool_of(1)
    pool.open_lock("GPU-0")  # makes the file
    with subprocess.Popen([sys.executable, "-c", LOCKER, pool.folder / "GPU-0"], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        assert is_locked(pool, "GPU-0")
        other.kill()
    with pool.acquire(1) as acquired:
        assert acquired == ("GPU-0",)


def test_small_cells_do_not_overtake_a_large_one(pool_of: PoolOf) -> None:
    """One of two GPUs is acquired: a cell that waits for both comes before a later one that needs only the other."""
    pool = pool_of(2)
    order: list[str] = []

    def acquire(name: str, count: int) -> None:
        with pool.acquire(count):
            order.append(name)

    with pool.acquire(1):
        many = threading.Thread(target=acquire, args=("many", 2))
        many.start()
        while not is_locked(pool, "turn"):
            time.sleep(0.001)
        few = threading.Thread(target=acquire, args=("few", 1))
        few.start()
        time.sleep(0.1)
        assert order == []
    many.join()
    few.join()
    assert order == ["many", "few"]


def test_a_gpu_that_another_process_uses_is_skipped(pool_of: PoolOf) -> None:
    with pool_of(2, GPU_0=FOREIGN).acquire(1) as acquired:
        assert acquired == ("GPU-1",)


def test_memory_of_hidden_processes_counts_as_foreign_use(pool_of: PoolOf) -> None:
    with pytest.raises(BusyError, match=r"GPU 0 \(NVIDIA H200\) has 600 MiB in use by hidden other processes"):
        pool_of(1, GPU_0=Usage(600.0)).acquire(1).__enter__()


def test_a_shortage_names_the_processes_on_the_gpus(pool_of: PoolOf) -> None:
    with pytest.raises(BusyError, match=r"needs 2 GPUs that are free: GPU 1 .* 12000 MiB in use by 1 other process"):
        pool_of(2, GPU_1=FOREIGN).acquire(2).__enter__()


def test_a_refused_cell_releases_the_gpus_that_it_had_locked(pool_of: PoolOf) -> None:
    pool = pool_of(2, GPU_1=FOREIGN)
    with pytest.raises(BusyError):
        pool.acquire(2).__enter__()
    with pool.acquire(1) as acquired:
        assert acquired == ("GPU-0",)


def test_a_cell_waits_for_the_memory_of_an_ending_process(pool_of: PoolOf) -> None:
    pool = pool_of(1, settle_timeout_s=10.0, GPU_0=FOREIGN)
    used: dict[str, Usage] = vars(pool.source)["used"]
    threading.Timer(0.1, used.clear).start()
    with pool.acquire(1) as acquired:
        assert acquired == ("GPU-0",)


def test_only_one_worker_waits_for_foreign_processes(pool_of: PoolOf) -> None:
    """The second pool is another worker's, whose timeout would last longer than a test."""
    busy = Usage(12_000.0, (4242, 4243))
    with pytest.raises(BusyError):
        pool_of(1, GPU_0=busy).acquire(1).__enter__()
    before = time.monotonic()
    with pytest.raises(BusyError, match=r"in use by 2 other processes \(4242, 4243\)"):
        pool_of(1, settle_timeout_s=60.0, GPU_0=busy).acquire(1).__enter__()
    assert time.monotonic() - before < 10.0


def test_after_a_gpu_was_free_a_worker_waits_again(pool_of: PoolOf) -> None:
    with pytest.raises(BusyError):
        pool_of(1, GPU_0=FOREIGN).acquire(1).__enter__()
    with pool_of(1).acquire(1):
        pass
    test_a_cell_waits_for_the_memory_of_an_ending_process(pool_of)


def test_occupied_gpus_are_known_before_any_is_acquired(pool_of: PoolOf) -> None:
    pool = pool_of(2, GPU_1=FOREIGN)
    occupied = pool.occupied()
    assert occupied == {"GPU-1": "GPU 1 (NVIDIA H200) has 12000 MiB in use by 1 other process (4242)"}
    assert pool.shortage(1, occupied) == ""
    assert pool.shortage(2, occupied) == f"needs 2 GPUs that are free: {occupied['GPU-1']}"


def test_gpus_of_our_cells_do_not_count_as_occupied(pool_of: PoolOf) -> None:
    pool = pool_of(1)
    with pool.acquire(1):
        vars(pool.source)["used"]["GPU-0"] = FOREIGN  # the cell's own
        assert pool.occupied() == {}
        vars(pool.source)["used"].clear()


def test_a_cell_waits_until_its_memory_is_freed(pool_of: PoolOf) -> None:
    pool = pool_of(2)
    used: dict[str, Usage] = vars(pool.source)["used"]
    with pool.acquire(2) as acquired:
        used["GPU-1"] = FOREIGN
        threading.Timer(0.2, used.clear).start()
        seconds, left = pool.wait_until_free(acquired)
    assert (seconds > 0.1, left) == (True, "")


def test_a_gpu_with_leftovers_of_a_cell_is_named_and_skipped(pool_of: PoolOf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cases.runtime.gpu_pool.SETTLES_S", 0.1)
    pool = pool_of(2)
    used: dict[str, Usage] = vars(pool.source)["used"]
    with pool.acquire(2) as acquired:
        used["GPU-0"] = Usage(600.0)
        _, left = pool.wait_until_free(acquired)
    assert left == "GPU 0 (NVIDIA H200) has 600 MiB in use by hidden other processes"
    with pool.acquire(1) as again:
        assert again == ("GPU-1",)
    with pytest.raises(BusyError, match=r"GPU 0 .*, which a cell of ours left behind"):
        pool.acquire(2).__enter__()
    used.clear()
    with pool.acquire(2) as again:
        assert again == ("GPU-0", "GPU-1")
    used["GPU-0"] = FOREIGN
    assert "left behind" not in pool.use(pool.gpus[0])


def test_a_request_for_too_many_gpus_fails_at_once(pool_of: PoolOf) -> None:
    with pytest.raises(BusyError, match="needs 4 GPUs, 2 can be used here"):
        pool_of(2).acquire(4).__enter__()


def test_a_mig_slice_serves_one_rank_only(pool_of: PoolOf) -> None:
    pool = pool_of(SLICES)
    with pool.acquire(1) as acquired:
        assert acquired == ("MIG-0",)
    with pytest.raises(BusyError, match="needs 2 GPUs, 0 can be used here; NCCL joins no MIG slices"):
        pool.acquire(2).__enter__()


@pytest.mark.parametrize(
    ("listed", "left"),
    [
        (None, "0 1 2"),
        ("", ""),
        ("-1", ""),
        ("2,0", "2 0"),
        ("GPU-1", "1"),
        ("0,9,1", "0"),
        ("0,0,1", "0"),
        (" 1 , 2", "1 2"),
    ],
)
def test_hidden_gpus_are_not_used(pool_of: PoolOf, listed: str | None, left: str) -> None:
    environment = {} if listed is None else {"CUDA_VISIBLE_DEVICES": listed}
    assert [str(gpu.index) for gpu in visible(pool_of(3).gpus, environment)] == left.split()


def test_locks_are_shared_by_all_users(pool_of: PoolOf) -> None:
    pool = pool_of(1)
    os.close(pool.open_lock("GPU-0"))
    assert pool.folder.stat().st_mode & 0o7777 == 0o1777
    assert (pool.folder / "GPU-0").stat().st_mode & 0o044 == 0o044


def test_other_users_can_read_locks_whatever_the_umask(pool_of: PoolOf) -> None:
    pool = pool_of(1)
    before = os.umask(0o077)
    try:
        os.close(pool.open_lock("GPU-0"))
    finally:
        os.umask(before)
    assert (pool.folder / "GPU-0").stat().st_mode & 0o777 == 0o644


def test_every_run_on_the_machine_finds_the_same_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = set()
    for number in range(2):
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / str(number)))  # as TMPDIR of a job
        found.add(locks_folder((tmp_path / "lacking", tmp_path)))
    assert found == {tmp_path / "ftmatrix-gpus"}
    assert locks_folder(()).parent == tmp_path / "1"


def broken(pool: Pool, uuid: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the driver stop answering for one GPU."""
    answers = pool.source.usage

    def usage(gpu: Gpu) -> Usage:
        if gpu.uuid == uuid:
            raise UnavailableError("a GPU is lost")
        return answers(gpu)

    monkeypatch.setattr(pool.source, "usage", usage)


def test_a_broken_gpu_is_skipped_and_its_lock_released(pool_of: PoolOf, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = pool_of(2)
    broken(pool, "GPU-0", monkeypatch)
    with pool.acquire(1) as acquired:
        assert acquired == ("GPU-1",)
    with pytest.raises(BusyError, match=r"GPU 0 \(NVIDIA H200\) does not answer: a GPU is lost"):
        pool.acquire(2).__enter__()
    assert not is_locked(pool, "GPU-0")


def test_the_report_of_a_cell_that_broke_its_gpu_says_so(pool_of: PoolOf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cases.runtime.gpu_pool.SETTLES_S", 0.05)
    pool = pool_of(1)
    with pool.acquire(1) as acquired:
        broken(pool, "GPU-0", monkeypatch)
        _, left = pool.wait_until_free(acquired)
    assert left == "GPU 0 (NVIDIA H200) does not answer: a GPU is lost"
