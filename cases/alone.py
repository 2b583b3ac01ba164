"""Runs one case without the harness, to debug it or to measure the time that a warm fork saves.

torchrun --nproc-per-node 2 -m cases.alone train-lora-fsdp2-fp32

Start the stages of a case one by one, e.g. the second with ``-m cases.alone CASE 1``. Each rank imports what the case
uses, as a user's script does. ``FTMATRIX_SHARED`` names a folder with finished checkpoints and references; every rank
writes its result to the folder ``FTMATRIX_OUT``, if that is set.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cases import suite
from cases.apply import quantised_saving
from cases.apply.context import Context
from cases.flows import stages
from cases.model import architectures
from cases.reference import sensitivity, twin
from cases.runtime import imported_modules, process_tree, rank_env, visible_gpus
from cases.runtime.wire import ErrorReport, Event
from cases.space import devices
from cases.space.place import Place
from cases.space.verdict import missed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cases.space.verdict import Check, Phase

OUT, SHARED = "FTMATRIX_OUT", "FTMATRIX_SHARED"


class Printer:
    """Reports to the terminal."""

    def __init__(self) -> None:
        self.all: list[Check] = []

    def phase(self, phase: Phase) -> None:
        print(phase.value, flush=True)

    def checks(self, checks: list[Check]) -> None:
        self.all += checks
        for check in checks:
            print("ok " if check.ok else "RED", check, flush=True)

    def metric(self, name: str, value: float) -> None:
        print(name, value)

    def series(self, series: Mapping[str, tuple[float, ...]]) -> None:
        for name, values in series.items():
            print(name, *values)

    def facts(self, facts: dict[str, Any]) -> None:
        print(facts)

    def modules(self, names: Sequence[str]) -> None:
        pass

    def beat(self) -> None:
        pass

    def observing(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


def main() -> int:
    if imported_modules.FILE in os.environ:
        imported_modules.record(imported_modules.note_in(Path(os.environ[imported_modules.FILE])))
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in suite.CASES:
        print(f"unknown case {name!r}; choose from", *suite.CASES, sep="\n  ")
        return 2
    stage = int(sys.argv[2]) if len(sys.argv) > 2 else 0  # noqa: PLR2004 - argv
    os.environ.update(rank_env.variables(os.environ))
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    device = os.environ.get("FTMATRIX_DEVICE", "cpu")
    if devices.uses_gpus(device):
        visible_gpus.limit(devices.gpus_of(device, int(os.environ.get("LOCAL_WORLD_SIZE", "1"))), os.environ)
    reporter = Printer()
    place = Place.on(device, rank, ranks)
    with written_result(result_name(stage, rank), reporter):
        run_stage(name, stage, place, reporter)
    if rank == 0 and OUT in os.environ:
        Path(os.environ[OUT], "checks.json").write_text(json.dumps([asdict(check) for check in reporter.all]))
    return 1 if missed(reporter.all) else 0


def run_stage(name: str, stage: int, place: Place, reporter: Printer) -> None:
    """Run one rank of one stage, as the suite does, in the process group that the launcher describes."""
    import torch
    import torch.distributed as dist

    if place.kind == "cpu":
        torch.set_num_threads(1)
    options = suite.CASES[name].options
    kept = Path(os.environ.get(OUT, tempfile.gettempdir())) / f"ftmatrix-{os.getuid()}-{name}"
    if stage == 0 and place.rank == 0:
        shutil.rmtree(kept, ignore_errors=True)  # of an earlier run
    suite.disable_progress_bars()
    with shared_folder() as cache:
        architectures.checkpoint(options, cache)
        if options.prequantised:
            quantised_saving.make(
                cache, options, place, reporter
            )  # it forks, so it must run before CUDA is initialised
        if place.kind == "cuda":
            torch.cuda.set_device(place.device)
        if place.world_size > 1:
            dist.init_process_group(place.backend)
        kept.mkdir(exist_ok=True)

        @functools.cache
        def reference() -> twin.Trajectory:
            known = cache / f"{twin.key(options)}.pt"
            if known.exists():
                return twin.read(known)
            return sensitivity.run(options, architectures.checkpoint(options, cache))

        stages.run(stage, Context(options, place, cache, kept, kept, reference, reporter))
    if dist.is_initialized():
        suite.leave_process_group(place)


@contextlib.contextmanager
def shared_folder() -> Iterator[Path]:
    """The folder that cases share; without ``FTMATRIX_SHARED``, a temporary one for this rank."""
    if SHARED in os.environ:
        yield Path(os.environ[SHARED])
    else:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder)


def result_name(stage: int, rank: int) -> str:
    """The file in ``FTMATRIX_OUT`` to which a rank writes its result."""
    return f"stage-{stage}-rank-{rank}.json"


@contextlib.contextmanager
def written_result(name: str, reporter: Printer) -> Iterator[None]:
    """Write the checks and the error, if any, of this rank to a file of ``FTMATRIX_OUT``."""
    failure: ErrorReport | None = None
    try:
        yield
    except BaseException as error:
        failure = ErrorReport(type(error).__name__, str(error))
        raise
    finally:
        if OUT in os.environ:
            path = Path(os.environ[OUT], name)
            unfinished = path.with_suffix(".unfinished")  # a launcher may kill this process while it writes
            unfinished.write_text(Event(checks=tuple(reporter.all), error=failure, done=failure is None).to_json())
            unfinished.rename(path)


if __name__ == "__main__":
    process_tree.leave(main())  # without the destructor of a Gloo group, see leave_process_group
