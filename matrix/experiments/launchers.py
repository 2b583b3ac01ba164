"""Starts a cell by torchrun or ``accelerate launch``, as users start a training, for comparison with a warm fork.

Each rank is a new Python process that imports the stack. The computation and the judgement are the same: the ranks run
``cases.alone`` with the checkpoints and references that the harness has already created.
"""

from __future__ import annotations

import socket
import tempfile
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cases.alone import result_name
from cases.flows import stages
from cases.runtime import rank_env
from cases.runtime.gpu_pool import BusyError
from cases.runtime.judge import judge
from cases.runtime.rank_state import RankState
from cases.runtime.wire import Event
from matrix import processes
from matrix.errors import UserError
from matrix.run import machine

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from cases.runtime.gpu_pool import Pool
    from cases.space.case import Case
    from cases.space.verdict import Verdict
    from matrix.environments.environment import Environment
    from matrix.processes import CommandRunner
    from matrix.run.execute import Bench

LIMIT_S: Final = 300.0  # for one stage


class OccupiedError(UserError):
    """Too few GPUs are free for a launch."""


@dataclass(frozen=True, kw_only=True)
class Launch:
    """The result of one cell under one launcher. ``seconds`` covers all stages, which run one after the other."""

    launcher: str
    case: str
    seconds: float
    verdict: Verdict
    reason: str


def torchrun(ranks: int, device: str) -> tuple[str, ...]:  # noqa: ARG001 - all launchers share this signature
    return ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), "-m")


def accelerate(ranks: int, device: str) -> tuple[str, ...]:
    """The arguments of ``accelerate launch``, which set every value that it would read from a configuration.

    ``--multi_gpu`` makes it start several ranks on one host, also on the CPU, where it would otherwise need MPI.
    """
    kind = ("--multi_gpu",) if ranks > 1 else ("--cpu",) if device == "cpu" else ()
    return (
        *("-m", "accelerate.commands.accelerate_cli", "launch", *kind),
        *("--num_processes", str(ranks), "--num_machines", "1", "--mixed_precision", "no"),
        *("--dynamo_backend", "no", "--main_process_port", str(free_port()), "--module"),
    )


LAUNCHERS: Final[Mapping[str, Callable[[int, str], tuple[str, ...]]]] = {
    "torchrun": torchrun,
    "accelerate launch": accelerate,
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(frozen=True, kw_only=True)
class CellLauncher:
    """Launches cells in the folder of a pass of the harness, with its copy of the suite and its checkpoints."""

    bench: Bench
    environment: Environment
    limit_s: float = LIMIT_S
    call: CommandRunner = processes.call
    open_pool: Callable[[], Pool] = machine.gpus

    def launch(self, launcher: str, case: Case) -> Launch:
        """Run a cell by this launcher on exclusive GPUs.

        Raises:
            OccupiedError: too few GPUs are free.
            UserError: the launcher started no rank.
        """
        try:
            with self.acquire_gpus(case.ranks) as gpus, tempfile.TemporaryDirectory(prefix="ftmatrix-launch-") as out:
                return self.run_stages(launcher, case, Path(out), gpus)
        except BusyError as busy:
            raise OccupiedError(str(busy)) from None

    def run_stages(self, launcher: str, case: Case, out: Path, gpus: Sequence[str]) -> Launch:
        states: list[RankState] = []
        stopped = ""
        began = time.monotonic()
        for stage, ranks in stages.numbered_stages(case.options, continues=bool(case.source)):
            process = self.call(
                [
                    *(str(self.environment.python), *LAUNCHERS[launcher](ranks, self.bench.device)),
                    *("cases.alone", case.id, str(stage)),
                ],
                timeout_s=self.limit_s,
                env=self.variables(out, gpus),
                cwd=self.bench.scratch / "suite",
            )
            results = [read_result(out / result_name(stage, number), number) for number in range(ranks)]
            stopped = "hang" if process.exit_code is None else ""
            if not stopped and all(each is None for each in results):
                last = process.log.strip().splitlines()[-1:] or ["it printed nothing"]
                raise UserError(f"{launcher} did not run {case.id}: {last[0]}")
            states += rank_states(results, stopped=bool(stopped))
            if process.exit_code != 0:
                break
        seconds = time.monotonic() - began
        judgement = judge(states, stopped=stopped, why=f"not done in {self.limit_s:g} s")
        return Launch(
            launcher=launcher,
            case=case.id,
            seconds=round(seconds, 3),
            verdict=judgement.verdict,
            reason=judgement.reason,
        )

    def variables(self, out: Path, gpus: Sequence[str]) -> dict[str, str]:
        """The environment variables of a warm rank, except those that ``cases.alone`` sets."""
        own = {
            "FTMATRIX_DEVICE": self.bench.device,
            "FTMATRIX_OUT": str(out),
            "FTMATRIX_SHARED": str(self.bench.scratch / "cache"),
            "OMP_NUM_THREADS": "1",  # avoids a long warning of torchrun
        }
        acquired = {"CUDA_VISIBLE_DEVICES": ",".join(gpus)} if gpus else {}
        return {**rank_env.variables(self.bench.variables(self.environment)), **own, **acquired}

    def acquire_gpus(self, count: int) -> AbstractContextManager[tuple[str, ...]]:
        return nullcontext(()) if self.bench.device == "cpu" else self.open_pool().acquire(count)


def read_result(path: Path, number: int) -> RankState | None:
    """The state of a rank from its result file; None if the file does not exist."""
    if not path.exists():
        return None
    event = Event.from_json(path.read_text(encoding="utf-8"))
    return RankState(number, checks=list(event.checks), error=event.error, done=event.done, exit_code=0)


def rank_states(results: Sequence[RankState | None], *, stopped: bool) -> list[RankState]:
    """The state of every rank. One without a result was ended by us if another rank raised; otherwise it vanished."""
    ended_by_us = stopped or any(each is not None and each.error is not None for each in results)
    return [
        each or RankState(number, exit_code=1, exit_at=0.0, ended_by_us=ended_by_us)
        for number, each in enumerate(results)
    ]


def differs(launch: Launch, warm: Verdict) -> str:
    """A sentence if launcher and warm fork disagree about a cell; empty if they agree."""
    if launch.verdict is warm:
        return ""
    launched = f"{launch.verdict.value} under {launch.launcher} ({launch.reason})"
    return f"{launch.case}: the verdict is {warm.value} after a warm fork, {launched}"
