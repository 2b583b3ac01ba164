"""The request of ``ftmatrix pr``: the changed packages, the sets of both sides, and what to compare with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from matrix.errors import UserError
from matrix.keys import CellKey
from matrix.run import machine, store
from reports.results import stored_results
from reports.results.loading import load

if TYPE_CHECKING:
    from collections.abc import Callable

    from cases.space.case import Case
    from matrix.run.outcome import RunRecord
    from matrix.run.progress import Progress
    from matrix.run.request import RunRequest
    from matrix.versions.sets import VersionSet


@dataclass(frozen=True, kw_only=True)
class PrRequest:
    """The options of ``ftmatrix pr``.

    Attributes:
        run_request: the packages of ``--with``, the cases, the device and the build.
        base: sets to compare with, or the directory of a run or of published results of them.
        minutes: the time for all cells; None for no limit.
        repeats: further runs of each cell that became red or green, on the side where it is red.
        watcher: makes the progress for a number of cells.
        say: prints a line.
    """

    run_request: RunRequest
    base: str
    minutes: float | None = None
    repeats: int = 2
    watcher: Callable[[int], Progress]
    say: Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class SetOfBothSides:
    """A set, the same set with the packages of ``--with``, and the cases that run on both."""

    original: VersionSet
    replaced: VersionSet
    cases: tuple[Case, ...]


def stored_base(base: str) -> RunRecord | None:
    """The record of the run, or of the published results, that ``--base`` names; None if it names sets.

    Raises:
        UserError: it is a path without a run.
    """
    folder = Path(base)
    if (folder / store.RUN).exists() or stored_results.locate(folder) is not None:
        return load(folder).record
    if "/" in base:
        raise UserError(f"--base {base}: no run is there; name the directory of a run, a set, or newest")
    return None


def request_of_both(run_request: RunRequest, stored: RunRecord | None, base: str) -> RunRequest:
    """The request of both sides: once each, on the device and with the build of a stored base.

    Raises:
        UserError: the stored base ran on another device or hardware.
    """
    run_request = replace(run_request, cold_sample=0, repeats=1)
    if stored is None:
        return replace(run_request, sets=base)
    if run_request.device not in {"auto", stored.device}:
        raise UserError(f"--base {base} ran on {stored.device}, not on {run_request.device}; leave --device out")
    here = machine.hardware(stored.device)
    if here != stored.hardware:
        raise UserError(
            f"--base {base} ran on {stored.hardware!r}, and this machine is {here!r}; name a set with --base instead"
        )
    build = stored.request.get("torch_backend", "auto") if run_request.torch_backend == "auto" else ""
    keys = ",".join(dict.fromkeys(CellKey.parse(cell).set for cell in stored.planned))
    return replace(run_request, sets=keys, device=stored.device, torch_backend=build or run_request.torch_backend)


def sets_of_both(run_request: RunRequest, stored: RunRecord | None) -> list[SetOfBothSides]:
    """The sets of both sides, with the selected cases that a stored base has.

    Raises:
        UserError: a set or case does not exist, or the stored base has none of the cases.
    """
    originals = replace(run_request, replacements=(), resolved=None).version_sets()
    changed = run_request.version_sets()
    cases = run_request.cases()
    known = None if stored is None else {CellKey.parse(cell) for cell in stored.planned}
    found = [
        SetOfBothSides(
            original=original,
            replaced=replaced,
            cases=tuple(case for case in cases if known is None or CellKey(original.key, case.id) in known),
        )
        for original, replaced in zip(originals, changed, strict=True)
    ]
    if not any(each.cases for each in found):
        raise UserError(f"--base {run_request.sets}: it has none of the selected cases; choose another --profile")
    return [each for each in found if each.cases]
