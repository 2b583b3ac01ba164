"""The suite: what a fork server, its ranks and the tests need to know of the cases they run.

Another module with ``CASES``, ``preload``, ``impure``, ``needed``, ``allowed``, ``companions``, ``acts`` and ``run``
can take its place (``--suite``); the harness's own tests do that.
"""

from __future__ import annotations

import contextlib
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cases.apply import quantised_saving
from cases.apply.context import Setting
from cases.flows import stages
from cases.model import architectures
from cases.reference import twin
from cases.runtime import cuda_guard, flight_recorder, imported_modules, silence
from cases.runtime import preload as importing
from cases.runtime.memory import peaks
from cases.space.options import Options
from cases.space.place import Place
from cases.space.verdict import PROBING, Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cases.grid.profiles import Profile
    from cases.probes import requirements
    from cases.runtime.wire import Job
    from cases.space.case import Case


CASES: Mapping[str, Case]
PROFILES: Mapping[str, Profile]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """``CASES`` and ``PROFILES``, for processes that list cases; those that run them do not import the grid."""
        if name in ("CASES", "PROFILES"):
            from cases.grid import catalogue

            return getattr(catalogue, name)
        raise AttributeError(name)


def preload(*, to_fork: bool = False) -> None:
    """What every rank would import anyway; ``to_fork`` if this process is to be one that ranks are forked from.

    Raises:
        Exception: whatever importing the stack raises.
    """
    importing.preload(to_fork=to_fork)


def impure() -> str:
    """Why ranks must not be forked from this process after ``preload``; empty if they may."""
    import threading

    import torch

    if torch.cuda.is_initialized() or importing.cuda_driver_initialised():
        by = cuda_guard.INITIALISED[0] if cuda_guard.INITIALISED else "something beside torch"
        return f"importing the stack initialised CUDA: {by}"
    if threading.active_count() > 1:
        return f"importing the stack started threads: {', '.join(t.name for t in threading.enumerate()[1:])}"
    return ""


def needed(case: Case, device: str) -> list[requirements.Need]:
    from cases.probes import requirements  # probes are not part of the code of other cells

    return requirements.applicable(case.options, device)


def allowed(case: Case, device: str) -> silence.Patience:
    """How long a rank of the case may say nothing."""
    return silence.of(case.options, device)


def companions(job: Job) -> dict[str, Callable[[], None]]:
    """What has to be computed in a process of its own while the ranks run, by the file that shows it is done."""
    if job.kind != "cell":
        return {}
    options = Options(**job.options)
    path = Path(job.cache) / f"{twin.key(options)}.pt"

    def compute() -> None:
        import torch

        torch.set_num_threads(1)
        twin.save(twin.run(options), path)

    return {str(path): compute}


def acts(job: Job) -> list[tuple[int, int]]:
    """The acts of a job, each played by fresh ranks: its number, and how many ranks."""
    if job.kind != "cell":
        return [(0, job.ranks)]
    return stages.acts(Options(**job.options), continues=bool(job.given))


def tell_facts(device: str, say: Any) -> None:
    from cases.apply import compat

    say.facts(compat.facts(device))
    if device == "cuda":
        say.facts(compat.facts_of_gpus())


def run(job: Job, rank: int, act: int, companion: Callable[[str], Iterator[None]], say: Any) -> None:
    """The life of one rank in one act, from joining the others to its checks."""
    import torch

    if job.device == "cpu":
        torch.set_num_threads(1)
    if job.kind == "facts":
        tell_facts(job.device, say)
        return
    say.phase(Phase.LOAD)
    quiet()
    cache = Path(job.cache)
    options = Options(**job.options)
    architectures.checkpoint(options, cache)  # before the process group: later, only rank 0 would write it whole
    ranks = dict(acts(job))[act]
    place = Place(rank, ranks, "cpu" if job.device == "cpu" else rank)
    if options.prequantised:
        quantised_saving.make(cache, options, place, say)
    with joined(place, Path(job.folder) / f"rendezvous-{act}", say):
        if ranks > 1:
            flight_recorder.listen(Path(job.folder), rank)
        if job.kind == "probe":
            from cases.probes import requirements

            say.facts({PROBING: True})  # from here on, what is raised is the probe's own
            requirements.PROBES[job.name](place, cache)
            return

        with peaks_told(place, say):
            kept = Path(job.folder) / "kept"
            kept.mkdir(exist_ok=True)
            reference = partial(computed, cache / f"{twin.key(options)}.pt", companion, say)
            stages.run(act, Setting(options, place, cache, kept, Path(job.given or kept), reference, say))


def computed(path: Path, companion: Callable[[str], Iterator[None]], say: Any) -> twin.Trajectory:
    """What the companion of several jobs makes, once it is there."""
    with say.spending("reference"):
        for _ in companion(str(path)):
            say.beat()
        say.modules(sorted(imported_modules.noted_in(imported_modules.file_beside(path))))
        return twin.read(path)


@contextlib.contextmanager
def peaks_told(place: Place, say: Any) -> Iterator[None]:
    """Of a job that ends in an error as well: what ran out of memory had a peak."""
    try:
        yield
    finally:
        if place.kind == "cuda":
            for name, mib in peaks(place.device).items():
                say.metric(name, mib)


class joined:  # noqa: N801 - reads as a phrase after with
    """A process group of all ranks, if there is more than one."""

    def __init__(self, place: Place, rendezvous: Path, say: Any) -> None:
        self.place, self.rendezvous, self.say = place, rendezvous, say

    def __enter__(self) -> None:
        import torch
        import torch.distributed as dist

        if self.place.kind == "cuda":
            with self.say.spending("context"):
                torch.cuda.set_device(self.place.device)
                torch.empty(1, device="cuda")  # what makes the context, which is made anyway
        if self.place.world_size > 1:
            with self.say.spending("group"):
                dist.init_process_group(
                    "gloo" if self.place.kind == "cpu" else "nccl",
                    init_method=f"file://{self.rendezvous}",
                    rank=self.place.rank,
                    world_size=self.place.world_size,
                )

    def __exit__(self, error: object, *_: object) -> None:
        import torch.distributed as dist

        if error is None and dist.is_initialized():
            with self.say.spending("leaving"):
                dist.destroy_process_group()


def quiet() -> None:
    """No progress bars: they are noise in a log."""
    os.environ["TQDM_DISABLE"] = "1"
    from transformers.utils import logging

    logging.disable_progress_bar()
