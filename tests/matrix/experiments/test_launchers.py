"""Launched cells are started by the launchers' own commands and judged as warm ones are."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cases.alone import result_name
from cases.runtime.gpu_pool import BusyError
from cases.runtime.wire import ErrorReport, Event
from cases.space.verdict import at_most
from cases.suite import CASES
from matrix.environments import leases
from matrix.environments.environment import Environment
from matrix.errors import UserError
from matrix.experiments import launchers
from matrix.experiments.launchers import OccupiedError
from matrix.processes import Finished
from matrix.run.execute import Bench

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cases.space.case import Case
    from cases.space.verdict import Check

TRAINING, SAVING = CASES["train-lora-ddp-bf16"], CASES["save_reload-lora-fsdp2-fp32"]
GREEN, RED = at_most("loss", 0.1, 1.0), at_most("loss", 2.0, 1.0)


class Ranks:
    """Stands in for a launcher: its ranks leave what they are told to, and it ends with an exit code."""

    def __init__(self, *left: Event | None, exit_code: int | None = 0) -> None:
        self.left, self.exit_code = left, exit_code
        self.commands: list[Sequence[str]] = []
        self.env: Mapping[str, str] = {}

    def __call__(self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, **_: Any) -> Finished:
        self.commands.append(argv)
        self.env = env or {}
        for number, left in enumerate(self.left):
            if left is not None:
                path = Path(self.env["FTMATRIX_OUT"], result_name(int(argv[-1]), number))
                path.write_text(left.to_json(), encoding="utf-8")
        return Finished(exit_code=self.exit_code, log="the end")


def left(*checks: Check) -> Event:
    return Event(checks=checks, done=True)


RAISED = Event(error=ErrorReport("ValueError", "no"))


class Lender:
    """Stands in for the pool: lends GPUs by these names, or says that others are at work on them."""

    def __init__(self, *names: str) -> None:
        self.names = names

    @contextlib.contextmanager
    def acquire(self, count: int) -> Iterator[tuple[str, ...]]:
        if len(self.names) < count:
            raise BusyError("needs 2 GPUs that are free: GPU 0 has 900 MiB in use")
        yield self.names[:count]


def launch(
    folder: Path,
    ranks: Ranks,
    case: Case = TRAINING,
    launcher: str = "torchrun",
    *,
    lender: Lender | None = None,
) -> launchers.Launch:
    lease = leases.acquire_shared(folder / "lease")
    environment = Environment(key="s", lock="l", backend="b", root=Path("/env"), installed={}, lease=lease)
    bench = Bench(scratch=folder, device="cuda" if lender else "cpu", workers=1)
    pool: Any = lambda: lender  # noqa: E731 - a seam
    try:
        at = launchers.CellLauncher(bench=bench, environment=environment, call=ranks, open_pool=pool)
        return at.launch(launcher, case)
    finally:
        lease.release()


def test_ranks_whose_checks_hold_pass(tmp_path: Path) -> None:
    assert launch(tmp_path, Ranks(left(GREEN), left(GREEN))).verdict == "pass"


def test_one_rank_whose_check_is_missed_is_wrong(tmp_path: Path) -> None:
    assert launch(tmp_path, Ranks(left(GREEN), left(RED), exit_code=1)).verdict == "wrong"


def test_what_a_rank_raised_is_a_fail_though_the_other_was_ended_with_it(tmp_path: Path) -> None:
    found = launch(tmp_path, Ranks(RAISED, None, exit_code=1))
    assert (found.verdict, found.reason) == ("fail", "ValueError: no")


def test_a_rank_that_left_nothing_crashed(tmp_path: Path) -> None:
    assert launch(tmp_path, Ranks(left(GREEN), None, exit_code=1)).verdict == "crash"


def test_what_does_not_end_hangs(tmp_path: Path) -> None:
    assert launch(tmp_path, Ranks(None, None, exit_code=None)).verdict == "hang"


def test_a_launcher_that_starts_no_rank_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="torchrun did not run train-lora-ddp-bf16: the end"):
        launch(tmp_path, Ranks(None, None, exit_code=1))


def test_every_act_is_started_with_its_ranks(tmp_path: Path) -> None:
    ranks = Ranks(left(GREEN), left(GREEN))
    launch(tmp_path, ranks, SAVING)
    started = [(command[command.index("--nproc-per-node") + 1], command[-1]) for command in ranks.commands]
    assert started == [("2", "0"), ("1", "1")]


def test_no_act_follows_on_one_that_failed(tmp_path: Path) -> None:
    ranks = Ranks(RAISED, None, exit_code=1)
    launch(tmp_path, ranks, SAVING)
    assert len(ranks.commands) == 1


@pytest.mark.parametrize(
    ("ranks", "device", "kind"), [(2, "cpu", "--multi_gpu"), (2, "cuda", "--multi_gpu"), (1, "cpu", "--cpu")]
)
def test_accelerate_is_told_how_many_and_where(ranks: int, device: str, kind: str) -> None:
    words = launchers.accelerate(ranks, device)
    assert kind in words
    assert words[words.index("--num_processes") + 1] == str(ranks)


def test_one_rank_on_a_gpu_is_no_distributed_training() -> None:
    assert not {"--multi_gpu", "--cpu"} & set(launchers.accelerate(1, "cuda"))


def test_ranks_find_what_the_harness_has_made_and_where_to_report(tmp_path: Path) -> None:
    ranks = Ranks(left(GREEN), left(GREEN))
    launch(tmp_path, ranks, launcher="accelerate launch")
    assert ranks.env["FTMATRIX_SHARED"] == str(tmp_path / "cache")
    assert (ranks.env["FTMATRIX_DEVICE"], ranks.env["CUDA_VISIBLE_DEVICES"]) == ("cpu", "")


def test_launched_ranks_see_the_gpus_that_they_acquired(tmp_path: Path) -> None:
    ranks = Ranks(left(GREEN), left(GREEN))
    launch(tmp_path, ranks, lender=Lender("GPU-a", "GPU-b", "GPU-c"))
    assert (ranks.env["FTMATRIX_DEVICE"], ranks.env["CUDA_VISIBLE_DEVICES"]) == ("cuda", "GPU-a,GPU-b")


def test_gpus_that_others_use_are_said(tmp_path: Path) -> None:
    with pytest.raises(OccupiedError, match="needs 2 GPUs that are free: GPU 0 has 900 MiB in use"):
        launch(tmp_path, Ranks(), lender=Lender())
