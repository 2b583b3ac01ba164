"""Launchers start cells by their own commands, and the same rules judge these cells and warm ones."""

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
    """A fake launcher: its ranks write the given results, and it ends with an exit code."""

    def __init__(self, *results: Event | None, exit_code: int | None = 0) -> None:
        self.results, self.exit_code = results, exit_code
        self.commands: list[Sequence[str]] = []
        self.env: Mapping[str, str] = {}

    def __call__(self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, **_: Any) -> Finished:
        self.commands.append(argv)
        self.env = env or {}
        for number, event in enumerate(self.results):
            if event is not None:
                path = Path(self.env["FTMATRIX_OUT"], result_name(int(argv[-1]), number))
                path.write_text(event.to_json(), encoding="utf-8")
        return Finished(exit_code=self.exit_code, log="the end")


def result(*checks: Check) -> Event:
    return Event(checks=checks, done=True)


RAISED = Event(error=ErrorReport("ValueError", "no"))


class FakePool:
    """A pool of GPUs with these names; too few mean that other processes use the rest."""

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
    gpus: FakePool | None = None,
) -> launchers.Launch:
    lease = leases.acquire_shared(folder / "lease")
    environment = Environment(key="s", lock="l", backend="b", root=Path("/env"), installed={}, lease=lease)
    bench = Bench(scratch=folder, device="cuda" if gpus else "cpu", workers=1)
    pool: Any = lambda: gpus  # noqa: E731 - shorter than a function
    try:
        at = launchers.CellLauncher(bench=bench, environment=environment, call=ranks, open_pool=pool)
        return at.launch(launcher, case)
    finally:
        lease.release()


def test_ranks_whose_checks_hold_pass(tmp_path: Path) -> None:
    assert launch(tmp_path, Ranks(result(GREEN), result(GREEN))).verdict == "pass"


def test_one_rank_whose_check_is_missed_is_wrong(tmp_path: Path) -> None:
    assert launch(tmp_path, Ranks(result(GREEN), result(RED), exit_code=1)).verdict == "wrong"


def test_an_error_of_one_rank_is_a_fail_although_the_other_rank_was_ended(tmp_path: Path) -> None:
    found = launch(tmp_path, Ranks(RAISED, None, exit_code=1))
    assert (found.verdict, found.reason) == ("fail", "ValueError: no")


def test_a_rank_without_a_result_crashed(tmp_path: Path) -> None:
    assert launch(tmp_path, Ranks(result(GREEN), None, exit_code=1)).verdict == "crash"


def test_a_launch_that_exceeds_its_limit_hangs(tmp_path: Path) -> None:
    assert launch(tmp_path, Ranks(None, None, exit_code=None)).verdict == "hang"


def test_a_launcher_that_starts_no_rank_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="torchrun did not run train-lora-ddp-bf16: the end"):
        launch(tmp_path, Ranks(None, None, exit_code=1))


def test_every_stage_starts_with_its_number_of_ranks(tmp_path: Path) -> None:
    ranks = Ranks(result(GREEN), result(GREEN))
    launch(tmp_path, ranks, SAVING)
    started = [(command[command.index("--nproc-per-node") + 1], command[-1]) for command in ranks.commands]
    assert started == [("2", "0"), ("1", "1")]


def test_no_stage_follows_a_failed_one(tmp_path: Path) -> None:
    ranks = Ranks(RAISED, None, exit_code=1)
    launch(tmp_path, ranks, SAVING)
    assert len(ranks.commands) == 1


@pytest.mark.parametrize(
    ("ranks", "device", "kind"), [(2, "cpu", "--multi_gpu"), (2, "cuda", "--multi_gpu"), (1, "cpu", "--cpu")]
)
def test_accelerate_gets_the_number_of_ranks_and_their_device(ranks: int, device: str, kind: str) -> None:
    words = launchers.accelerate(ranks, device)
    assert kind in words
    assert words[words.index("--num_processes") + 1] == str(ranks)


def test_one_rank_on_a_gpu_is_no_distributed_training() -> None:
    assert not {"--multi_gpu", "--cpu"} & set(launchers.accelerate(1, "cuda"))


def test_ranks_get_the_shared_folder_and_the_device(tmp_path: Path) -> None:
    ranks = Ranks(result(GREEN), result(GREEN))
    launch(tmp_path, ranks, launcher="accelerate launch")
    assert ranks.env["FTMATRIX_SHARED"] == str(tmp_path / "cache")
    assert (ranks.env["FTMATRIX_DEVICE"], ranks.env["CUDA_VISIBLE_DEVICES"]) == ("cpu", "")


def test_launched_ranks_see_the_gpus_that_they_acquired(tmp_path: Path) -> None:
    ranks = Ranks(result(GREEN), result(GREEN))
    launch(tmp_path, ranks, gpus=FakePool("GPU-a", "GPU-b", "GPU-c"))
    assert (ranks.env["FTMATRIX_DEVICE"], ranks.env["CUDA_VISIBLE_DEVICES"]) == ("cuda", "GPU-a,GPU-b")


def test_a_secret_of_the_caller_does_not_reach_launched_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "correct-horse")
    ranks = Ranks(result(GREEN), result(GREEN))
    launch(tmp_path, ranks)
    assert "correct-horse" not in ranks.env.values()


def test_an_error_names_the_gpus_in_use_by_other_processes(tmp_path: Path) -> None:
    with pytest.raises(OccupiedError, match="needs 2 GPUs that are free: GPU 0 has 900 MiB in use"):
        launch(tmp_path, Ranks(), gpus=FakePool())
