"""The suite of cases that ftmatrix measures: which cases there are, and how a rank runs one.

``--suite`` names another module with a ``SUITE`` (``cases.runtime.case_suite.CaseSuite``); the harness's own tests and
``ftmatrix selfcheck`` do that.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cases.apply import quantised_saving
from cases.apply.context import Context
from cases.flows import stages
from cases.model import architectures
from cases.reference import sensitivity, twin
from cases.runtime import cuda_guard, deviations, flight_recorder, imported_modules, silence
from cases.runtime import preload as stack
from cases.runtime.memory import peaks
from cases.space import devices
from cases.space.options import OWN_CODE, Options
from cases.space.place import Place
from cases.space.verdict import PROBING, Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cases.grid.profiles import Profile
    from cases.probes.requirement import Requirement
    from cases.runtime.wire import CellReport, Job
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


class LibrarySuite:
    """The cases of the grid, run on the real stack."""

    @property
    def cases(self) -> dict[str, Case]:
        from cases.grid import catalogue

        return catalogue.CASES

    @property
    def profiles(self) -> Mapping[str, Profile]:
        from cases.grid import catalogue

        return catalogue.PROFILES

    def preload(self, *, to_fork: bool = False) -> None:
        """Import what every rank would import; with ``to_fork``, in the process that ranks are forked from.

        Raises:
            Exception: whatever importing the stack raises.
        """
        stack.preload(to_fork=to_fork)

    def why_unforkable(self) -> str:
        """The reason why ranks must not be forked from this process after ``preload``; empty if they may."""
        import threading

        import torch

        if torch.cuda.is_initialized() or stack.cuda_driver_initialised():
            by = cuda_guard.INITIALISED[0] if cuda_guard.INITIALISED else "a package other than torch"
            return f"importing the stack initialised CUDA: {by}"
        if threading.active_count() > 1:
            return f"importing the stack started threads: {', '.join(t.name for t in threading.enumerate()[1:])}"
        return ""

    def requirements(self, name: str, device: str) -> list[Requirement]:
        from cases.probes import requirements  # probes are not part of the code of other cells

        return requirements.applicable(self.cases[name].options, device)

    def why_settled(self, name: str, session: Path) -> str:  # noqa: ARG002 - the protocol's
        """No cell of the grid answers for another."""
        return ""

    def note(self, report: CellReport, session: Path) -> None:
        """Nothing: see ``why_settled``."""

    def silence_timeout(self, name: str, device: str) -> silence.SilenceTimeout:
        return silence.timeout(self.cases[name].options, device)

    def companions(self, job: Job) -> dict[str, Callable[[], None]]:
        """The reference of a cell, which is computed while its ranks run."""
        if job.kind != "cell":
            return {}
        options = Options(**job.options)
        path = Path(job.cache) / f"{twin.key(options)}.pt"

        def compute() -> None:
            import torch

            torch.set_num_threads(1)
            twin.save(sensitivity.run(options, architectures.checkpoint(options, path.parent)), path)

        if not is_located(options):
            return {str(path): compute}
        from cases.reference import recording

        def record() -> None:
            import torch

            torch.set_num_threads(1)
            recording.save(recording.run(options, architectures.checkpoint(options, path.parent)), modules)

        modules = recording.path(path.parent, options)
        return {str(path): compute, str(modules): record}

    def stages(self, job: Job) -> list[tuple[int, int]]:
        if job.kind != "cell":
            return [(0, job.ranks)]
        return stages.numbered_stages(Options(**job.options), continues=bool(job.source))

    def run(self, job: Job, rank: int, stage: int, companion: Callable[[str], Iterator[None]], reporter: Any) -> None:
        """Run one rank of one stage, from joining the process group to its checks."""
        import torch

        if job.device == "cpu":
            torch.set_num_threads(1)
        if job.kind == "facts":
            report_facts(job.device, reporter)
            return
        reporter.phase(Phase.LOAD)
        disable_progress_bars()
        cache = Path(job.cache)
        options = Options(**job.options)
        architectures.checkpoint(options, cache)  # before the process group: later, only rank 0 would write it whole
        ranks = dict(self.stages(job))[stage]
        place = Place.on(job.device, rank, ranks)
        if options.prequantised:
            quantised_saving.make(cache, options, place, reporter)
        with process_group(place, Path(job.folder) / f"rendezvous-{stage}", reporter):
            if ranks > 1:
                flight_recorder.listen(Path(job.folder), rank)
            if job.kind == "probe":
                from cases.probes import requirements

                reporter.facts({PROBING: True})  # from here on, exceptions are the probe's own
                requirements.PROBES[job.name](place, cache)
                return

            with reported_peaks(place, reporter):
                kept = Path(job.folder) / "kept"
                kept.mkdir(exist_ok=True)
                reference = partial(read_reference, cache / f"{twin.key(options)}.pt", companion, reporter)
                ctx = Context(options, place, cache, kept, Path(job.source or kept), reference, reporter)
                with recorded_modules(ctx, companion, Path(job.folder) / deviations.file_name(stage, rank)) as recorded:
                    stages.run(stage, recorded)


SUITE = LibrarySuite()


def report_facts(device: str, reporter: Any) -> None:
    from cases.apply import compat

    reporter.facts(compat.facts(device))
    if devices.uses_gpus(device):
        reporter.facts(compat.facts_of_gpus(device))


def read_reference(path: Path, companion: Callable[[str], Iterator[None]], reporter: Any) -> twin.Trajectory:
    """The reference that a companion computes, after it is there."""
    with reporter.spending("reference"):
        for _ in companion(str(path)):
            reporter.beat()
        reporter.modules(sorted(imported_modules.noted_in(imported_modules.file_beside(path))))
        return twin.read(path)


def is_located(options: Options) -> bool:
    """Return whether the modules of a cell are to be recorded; compiled ones run as one graph."""
    return deviations.REQUESTED in os.environ and options.flow not in OWN_CODE and not options.torch_compile


@contextlib.contextmanager
def recorded_modules(ctx: Context, companion: Callable[[str], Iterator[None]], path: Path) -> Iterator[Context]:
    """The context of a rank whose modules are compared with the reference's, if that was requested."""
    if not is_located(ctx.options):
        yield ctx
        return
    from cases.checks import module_hooks
    from cases.reference import recording

    def read() -> list[recording.RecordedStep]:
        stored = recording.path(ctx.cache, ctx.options)
        for _ in companion(str(stored)):
            ctx.reporter.beat()
        return recording.read(stored)

    recorder = module_hooks.ModuleRecorder(ctx, read)
    try:
        yield replace(ctx, record_modules=recorder.attach)
    finally:  # also where training raises
        recorder.write(path)


@contextlib.contextmanager
def reported_peaks(place: Place, reporter: Any) -> Iterator[None]:
    """Report peak memory at the end, also after an exception: a rank that ran out of memory had a peak."""
    try:
        yield
    finally:
        if place.kind == "cuda":
            for name, mib in peaks(place.device).items():
                reporter.metric(name, mib)


@contextlib.contextmanager
def process_group(place: Place, rendezvous: Path, reporter: Any) -> Iterator[None]:
    """A process group of all ranks, if there is more than one. After an exception, nothing ends it."""
    import torch
    import torch.distributed as dist

    if place.kind == "cuda":
        with reporter.spending("context"):
            torch.cuda.set_device(place.device)
            torch.empty(1, device="cuda")  # creates the context, so that its time counts here
    if place.world_size > 1:
        with reporter.spending("group"):
            dist.init_process_group(
                place.backend,
                init_method=f"file://{rendezvous}",
                rank=place.rank,
                world_size=place.world_size,
            )
    yield
    if dist.is_initialized():
        with reporter.spending("leaving"):
            leave_process_group(place)


def leave_process_group(place: Place) -> None:
    """Destroy the process group; a Gloo group ends with its process.

    Before torch 2.8, the destructor of a Gloo group holds the GIL while it waits for the group's threads, and these may
    need the GIL to free the tensors of the last collective. A cell would hang now and then for what it is not about
    (https://github.com/pytorch/pytorch/issues/56297, https://github.com/pytorch/pytorch/pull/154976).
    """
    import torch.distributed as dist

    if place.backend != "gloo":
        dist.destroy_process_group()


def disable_progress_bars() -> None:
    """Keep progress bars out of the logs."""
    os.environ["TQDM_DISABLE"] = "1"
    from transformers.utils import logging

    logging.disable_progress_bar()
