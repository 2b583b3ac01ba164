"""``--device both``: runs the cells that this machine's GPUs can hold on them, and all others on the CPU.

Each device gets a run directory of its own, ``cuda`` and ``cpu`` below that of the command. A run has one device
everywhere else, in its record, its hardware and its grid, so every report and every answer keeps the two apart.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cases.space import devices
from cases.space.plural import counted
from matrix.errors import UserError
from matrix.run import fit, machine, resumption, store
from matrix.run.request import BOTH, RUNS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cases.space.case import Case
    from matrix.run.request import RunRequest
    from matrix.run.timings import Work

    Part = tuple[RunRequest, Work | None]


def parts(request: RunRequest, *, say: Callable[[str], None] = print) -> tuple[Part, ...]:
    """The runs of a request with their work: one, or with ``--device both`` one for each device that has cells.

    A request that only resumes continues every run of the directory. The work is None if it is the request's own.

    Raises:
        UserError: bad input, or ``--device both`` without a usable GPU.
    """
    if request.only_resumes:
        found = store.runs_in(request.out) if request.out else store.newest_runs(RUNS)
        return tuple(resumption.resumed_request(replace(request, out=each)) for each in found)
    if request.device == BOTH:
        return split(request, say=say)
    request.check()
    if advice := advice_on(request):
        say(advice)
    return ((request, None),)


def advice_on(request: RunRequest) -> str:
    """A sentence about cells that this machine has too few GPUs for; empty if there are none."""
    if request.resolved_device != devices.CUDA:
        return ""
    pool, cases = machine.gpus(), [case for _, cases in request.work() for case in cases]
    short = sum(bool(pool.shortage(case.ranks)) for case in cases)
    if not short:
        return ""
    return f"{short} of {counted(len(cases), 'cell')} will be skipped, as they need more GPUs: {fit.ELSEWHERE}"


def split(request: RunRequest, *, say: Callable[[str], None]) -> tuple[Part, ...]:
    """A run on the GPUs and one on the CPU; a device without cells gets none.

    Raises:
        UserError: bad input, or this process can use no GPU.
    """
    replace(request, device=devices.CUDA).check()
    if why := machine.why_no_gpu():
        raise UserError(f"--device both: {why}; use --device cpu")
    work = request.work()
    folder = directory(request)
    found: list[Part] = []
    for device, chosen in divided(work).items():
        cells = sum(len(cases) for _, cases in chosen)
        say(f"--device both: {counted(cells, 'cell')} on {device}")
        if cells:
            found.append((replace(request, device=device, out=folder / device, resolved=request.replaced), chosen))
    return tuple(found)


def divided(work: Work) -> dict[str, Work]:
    """The work of the GPUs and that of the CPU: cells with more ranks than the machine has GPUs for."""
    pool = machine.gpus()

    def part(*, fits: bool) -> Work:
        kept = [(each, [case for case in cases if is_held(case) is fits]) for each, cases in work]
        return [(each, cases) for each, cases in kept if cases]

    def is_held(case: Case) -> bool:
        return not pool.shortage(case.ranks)

    return {devices.CUDA: part(fits=True), devices.CPU: part(fits=False)}


def directory(request: RunRequest) -> Path:
    """The folder of both runs: that of ``--out``, the one to continue, or a new one.

    Raises:
        UserError: it has a run itself.
    """
    if request.out is not None and (request.out / store.RUN).exists():
        raise UserError(f"{request.out} is a run of one device; choose another --out for --device both")
    if request.out is not None:
        return request.out
    if request.resume:
        return store.newest_runs(RUNS)[0].parent
    return RUNS / datetime.now(UTC).strftime(store.FOLDER)
