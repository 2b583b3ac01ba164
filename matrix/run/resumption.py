"""Restores the request and the work of a stored run, to resume it or to repeat its cells."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from matrix.errors import UserError
from matrix.keys import CellKey
from matrix.run import store
from matrix.run.request import RUNS

if TYPE_CHECKING:
    from cases.space.case import Case
    from matrix.run.outcome import RunRecord
    from matrix.run.request import RunRequest
    from matrix.run.timings import Work
    from matrix.versions.sets import VersionSet


def resumed_request(request: RunRequest) -> tuple[RunRequest, Work | None]:
    """The original request of a resumed run, and its work; for any other run, the request itself and None.

    Raises:
        UserError: the run is damaged, or has cases or sets that no longer exist.
    """
    if not request.only_resumes:
        return request, None
    directory = request.out or store.newest_runs(RUNS)[0]
    if not (directory / store.RUN).exists():
        return request, None  # opening the store raises
    store.lock_directory(directory).close()  # raises if another process runs there
    record, _, _ = store.read(directory)
    original = replace(request_of_record(record, request), out=directory, repeats=int(record.request.get("repeats", 1)))
    return original, work_of_record(record, original)


def request_of_record(record: RunRecord, request: RunRequest) -> RunRequest:
    """The request with the device, the build and the packages of ``--with`` of a stored run."""
    return replace(
        request,
        device=record.device,
        torch_backend=record.request.get("torch_backend", request.torch_backend),
        replacements=request.replacements or tuple(json.loads(record.request.get("with", "[]"))),
    )


def work_of_record(record: RunRecord, request: RunRequest) -> Work:
    """The cells that a run planned, in order; a set may occur more than once."""
    keys = {CellKey.parse(cell).set for cell in record.planned}
    known = {each.key: each for each in request.known} if request.replaced is None else request.replaced.of_keys(keys)
    cases = request.suite.cases
    work: list[tuple[VersionSet, list[Case]]] = []
    for cell in record.planned:
        key, name = CellKey.parse(cell)
        try:
            each, case = known[key], cases[name]
        except KeyError:
            remedy = "name its file with --scripts again" if name.startswith("script-") else "start a new run"
            if request.replacements and key not in known:
                remedy = "what --with names has changed since, so start a new run"
            raise UserError(f"{cell}: the run planned this cell, but it no longer exists; {remedy}") from None
        if not work or work[-1][0].key != key:
            work.append((each, []))
        work[-1][1].append(case)
    return work
