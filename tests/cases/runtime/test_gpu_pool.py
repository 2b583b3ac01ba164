"""GPUs are lent to one at a time, and never while somebody else is on them."""

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
    descriptor = pool.tried(name)
    if descriptor is not None:
        os.close(descriptor)
    return descriptor is None


def test_cells_at_the_same_time_get_different_gpus(pool_of: PoolOf) -> None:
    pool = pool_of(4)
    with pool.lent(2) as first, pool.lent(2) as second:
        assert len({*first, *second}) == 4


def test_what_was_lent_comes_back(pool_of: PoolOf) -> None:
    pool = pool_of(1)
    with pool.lent(1) as first:
        pass
    with pool.lent(1) as second:
        assert second == first


def test_it_comes_back_when_the_cell_raises(pool_of: PoolOf) -> None:
    pool = pool_of(1)
    with pytest.raises(ZeroDivisionError), pool.lent(1):
        raise ZeroDivisionError
    with pool.lent(1) as again:
        assert again == ("GPU-0",)


def test_it_comes_back_when_the_process_that_has_it_is_killed(pool_of: PoolOf) -> None:
    pool = pool_of(1)
    pool.opened("GPU-0")  # makes the file
    with subprocess.Popen([sys.executable, "-c", LOCKER, pool.folder / "GPU-0"], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        assert is_locked(pool, "GPU-0")
        other.kill()
    with pool.lent(1) as lent:
        assert lent == ("GPU-0",)


def test_who_wants_many_is_not_passed_by_who_wants_few(pool_of: PoolOf) -> None:
    """One of two is lent; who waits for both comes before a later one that would do with the other."""
    pool = pool_of(2)
    order: list[str] = []

    def want(name: str, count: int) -> None:
        with pool.lent(count):
            order.append(name)

    with pool.lent(1):
        many = threading.Thread(target=want, args=("many", 2))
        many.start()
        while not is_locked(pool, "turn"):
            time.sleep(0.001)
        few = threading.Thread(target=want, args=("few", 1))
        few.start()
        time.sleep(0.1)
        assert order == []
    many.join()
    few.join()
    assert order == ["many", "few"]


def test_a_gpu_with_others_work_is_not_lent(pool_of: PoolOf) -> None:
    with pool_of(2, GPU_0=FOREIGN).lent(1) as lent:
        assert lent == ("GPU-1",)


def test_memory_that_nobody_is_seen_to_have_is_others_work(pool_of: PoolOf) -> None:
    with pytest.raises(BusyError, match=r"GPU 0 \(NVIDIA H200\) has 600 MiB in use by hidden other processes"):
        pool_of(1, GPU_0=Usage(600.0)).lent(1).__enter__()


def test_too_many_busy_ones_are_named(pool_of: PoolOf) -> None:
    with pytest.raises(BusyError, match=r"needs 2 GPUs that are free: GPU 1 .* 12000 MiB in use by 1 other processes"):
        pool_of(2, GPU_1=FOREIGN).lent(2).__enter__()


def test_what_a_refused_cell_had_taken_is_free_again(pool_of: PoolOf) -> None:
    pool = pool_of(2, GPU_1=FOREIGN)
    with pytest.raises(BusyError):
        pool.lent(2).__enter__()
    with pool.lent(1) as lent:
        assert lent == ("GPU-0",)


def test_leftovers_of_an_ending_process_are_waited_for(pool_of: PoolOf) -> None:
    pool = pool_of(1, patience_s=10.0, GPU_0=FOREIGN)
    used: dict[str, Usage] = vars(pool.source)["used"]
    threading.Timer(0.1, used.clear).start()
    with pool.lent(1) as lent:
        assert lent == ("GPU-0",)


def test_others_work_is_waited_for_once_by_all_workers_together(pool_of: PoolOf) -> None:
    """The second pool is another worker's, whose patience would last longer than a test."""
    busy = Usage(12_000.0, (4242, 4243))
    with pytest.raises(BusyError):
        pool_of(1, GPU_0=busy).lent(1).__enter__()
    before = time.monotonic()
    with pytest.raises(BusyError, match=r"in use by 2 other processes \(4242, 4243\)"):
        pool_of(1, patience_s=60.0, GPU_0=busy).lent(1).__enter__()
    assert time.monotonic() - before < 10.0


def test_a_gpu_that_came_free_is_waited_for_again(pool_of: PoolOf) -> None:
    with pytest.raises(BusyError):
        pool_of(1, GPU_0=FOREIGN).lent(1).__enter__()
    with pool_of(1).lent(1):
        pass
    test_leftovers_of_an_ending_process_are_waited_for(pool_of)


def test_occupied_gpus_are_told_before_any_is_wanted(pool_of: PoolOf) -> None:
    pool = pool_of(2, GPU_1=FOREIGN)
    occupied = pool.occupied()
    assert occupied == {"GPU-1": "GPU 1 (NVIDIA H200) has 12000 MiB in use by 1 other processes (4242)"}
    assert pool.lacking(1, occupied) == ""
    assert pool.lacking(2, occupied) == f"needs 2 GPUs that are free: {occupied['GPU-1']}"


def test_gpus_that_are_lent_are_not_occupied_by_others(pool_of: PoolOf) -> None:
    pool = pool_of(1)
    with pool.lent(1):
        vars(pool.source)["used"]["GPU-0"] = FOREIGN  # the cell's own
        assert pool.occupied() == {}
        vars(pool.source)["used"].clear()


def test_settling_takes_until_the_memory_is_back(pool_of: PoolOf) -> None:
    pool = pool_of(2)
    used: dict[str, Usage] = vars(pool.source)["used"]
    with pool.lent(2) as lent:
        used["GPU-1"] = FOREIGN
        threading.Timer(0.2, used.clear).start()
        seconds, left = pool.settled(lent)
    assert (seconds > 0.1, left) == (True, "")


def test_a_gpu_that_a_cell_does_not_give_back_is_named_and_not_lent(
    pool_of: PoolOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cases.runtime.gpu_pool.SETTLES_S", 0.1)
    pool = pool_of(2)
    used: dict[str, Usage] = vars(pool.source)["used"]
    with pool.lent(2) as lent:
        used["GPU-0"] = Usage(600.0)
        _, left = pool.settled(lent)
    assert left == "GPU 0 (NVIDIA H200) has 600 MiB in use by hidden other processes"
    with pool.lent(1) as again:
        assert again == ("GPU-1",)
    with pytest.raises(BusyError, match=r"GPU 0 .*, which a cell of ours left behind"):
        pool.lent(2).__enter__()
    used.clear()
    with pool.lent(2) as again:
        assert again == ("GPU-0", "GPU-1")
    used["GPU-0"] = FOREIGN
    assert "left behind" not in pool.busy(pool.gpus[0])


def test_fewer_than_asked_are_said_at_once(pool_of: PoolOf) -> None:
    with pytest.raises(BusyError, match="needs 4 GPUs, 2 can be used here"):
        pool_of(2).lent(4).__enter__()


def test_slices_serve_one_rank_and_no_more(pool_of: PoolOf) -> None:
    pool = pool_of(SLICES)
    with pool.lent(1) as lent:
        assert lent == ("MIG-0",)
    with pytest.raises(BusyError, match="needs 2 GPUs, 0 can be used here; NCCL joins no MIG slices"):
        pool.lent(2).__enter__()


@pytest.mark.parametrize(
    ("asked", "left"),
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
def test_what_is_hidden_is_not_used(pool_of: PoolOf, asked: str | None, left: str) -> None:
    environment = {} if asked is None else {"CUDA_VISIBLE_DEVICES": asked}
    assert [str(gpu.index) for gpu in visible(pool_of(3).gpus, environment)] == left.split()


def test_locks_are_shared_by_all_users(pool_of: PoolOf) -> None:
    pool = pool_of(1)
    os.close(pool.opened("GPU-0"))
    assert pool.folder.stat().st_mode & 0o7777 == 0o1777
    assert (pool.folder / "GPU-0").stat().st_mode & 0o044 == 0o044


def test_locks_can_be_read_by_others_whatever_the_umask(pool_of: PoolOf) -> None:
    pool = pool_of(1)
    before = os.umask(0o077)
    try:
        os.close(pool.opened("GPU-0"))
    finally:
        os.umask(before)
    assert (pool.folder / "GPU-0").stat().st_mode & 0o777 == 0o644


def test_every_run_of_the_machine_finds_the_same_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = set()
    for number in range(2):
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / str(number)))  # as TMPDIR of a job
        found.add(locks_folder((tmp_path / "lacking", tmp_path)))
    assert found == {tmp_path / "ftmatrix-gpus"}
    assert locks_folder(()).parent == tmp_path / "1"


def broken(pool: Pool, uuid: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, the driver does not answer for this one."""
    answers = pool.source.usage

    def usage(gpu: Gpu) -> Usage:
        if gpu.uuid == uuid:
            raise UnavailableError("a GPU is lost")
        return answers(gpu)

    monkeypatch.setattr(pool.source, "usage", usage)


def test_a_gpu_that_broke_is_passed_over_and_its_lock_is_free(pool_of: PoolOf, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = pool_of(2)
    broken(pool, "GPU-0", monkeypatch)
    with pool.lent(1) as lent:
        assert lent == ("GPU-1",)
    with pytest.raises(BusyError, match=r"GPU 0 \(NVIDIA H200\) cannot be asked: a GPU is lost"):
        pool.lent(2).__enter__()
    assert not is_locked(pool, "GPU-0")


def test_what_breaks_its_gpu_is_told_of_it_and_no_more(pool_of: PoolOf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cases.runtime.gpu_pool.SETTLES_S", 0.05)
    pool = pool_of(1)
    with pool.lent(1) as lent:
        broken(pool, "GPU-0", monkeypatch)
        _, left = pool.settled(lent)
    assert left == "GPU 0 (NVIDIA H200) cannot be asked: a GPU is lost"
